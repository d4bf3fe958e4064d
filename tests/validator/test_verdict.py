"""Wrong implementations of every kind are seen, true ones pass, and NaN is NaN."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from spoiling import Change, judged, larger, missing_term, negative, spoilt
from torch import Tensor, nn

import rematbench.validator.rounding
from rematbench import validator
from rematbench.graphs.ir import Op
from rematbench.graphs.kinds import Kind, kinds_of
from rematbench.graphs.plan import program_order
from rematbench.tracing.alternatives import cudnn, with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.validator import GradientVerdict, StepResult, Validator, compare
from rematbench.validator.alone import compare_alone
from rematbench.validator.compare import TOLERANCE


class Bottleneck(nn.Module):
    """ResNet-50's block, narrow."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.reduce = nn.Conv2d(4 * width, width, 1, bias=False)
        self.first = nn.BatchNorm2d(width)
        self.conv = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.BatchNorm2d(width)
        self.expand = nn.Conv2d(width, 4 * width, 1, bias=False)
        self.third = nn.BatchNorm2d(4 * width)

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.first(self.reduce(x)))
        y = F.relu(self.second(self.conv(y)))
        return F.relu(x + self.third(self.expand(y)))


def residual_network(blocks: int = 10, width: int = 4) -> Workload:
    """Like ResNet-50 at its initial weights, with a dropout and a smooth activation."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 4 * width, 3, padding=1),
        nn.BatchNorm2d(4 * width),
        nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
        *(Bottleneck(width) for _ in range(blocks)),
        nn.Conv2d(4 * width, 4 * width, 3, padding=1),
        nn.SiLU(),
        nn.Dropout(0.2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4 * width, 10),
    )
    return Workload(
        "bottlenecks",
        module,
        lambda: (torch.randn(4, 3, 24, 24), torch.randint(10, (4,))),
        lambda model, x, y: F.cross_entropy(model(x), y),
    )


@pytest.fixture(scope="module")
def network() -> Captured:
    plain = capture(residual_network())
    return with_alternatives(plain, density=validator.densities(plain, "cpu"))


@pytest.fixture(scope="module")
def checker(network: Captured) -> Validator:
    return Validator(network, "cpu", 0)


def op_with(captured: Captured, implementation: str, starts: str) -> Op:
    """The last such op: what it does wrong is not in the gradients of all layers."""
    found = [
        op
        for op in captured.graph.ops
        if op.name.startswith(starts) and any(w.name == implementation for w in op.implementations)
    ]
    return found[len(found) // 2]


IMPLEMENTATIONS = [
    ("convolution_", "conv:chunk2"),
    ("convolution_", "conv:fft"),
    ("convolution_", "conv:winograd"),
    ("convolution_backward_", "conv:im2col"),
    ("convolution_backward_", "conv:channels_last"),
    ("native_batch_norm_backward", "output"),
    ("_native_batch_norm_legit_functional", "statistics"),
    ("silu_backward", "output:side_bits"),
    ("native_batch_norm_backward", "lossy:fp16"),
    ("convolution_backward_", "lossy:fp16"),
    ("convolution_backward_", "encoded:csr"),
    ("convolution_backward_", "encoded:bitmap"),
]


@pytest.mark.parametrize(("starts", "implementation"), IMPLEMENTATIONS)
@pytest.mark.parametrize("change", [negative, missing_term, larger])
def test_a_wrong_implementation_is_wrong(
    network: Captured, checker: Validator, starts: str, implementation: str, change: Change
) -> None:
    op = op_with(network, implementation, starts)
    kinds = kinds_of(implementation)
    true = judged(checker, network, {op.name: implementation})
    expected = GradientVerdict.LOSSY if Kind.LOSSY in kinds else GradientVerdict.ROUNDING
    exact = network.traits[op.name, implementation].tolerance == 0
    assert (true.verdict, true.reason) == (GradientVerdict.EXACT if exact else expected, None)
    wrong = judged(
        checker, spoilt(network, op.name, implementation, change), {op.name: implementation}
    )
    assert wrong.verdict is GradientVerdict.WRONG
    if exact:
        assert "differs from eager training" in wrong.reason
    else:
        assert f"{op.name} {implementation} alone: " in wrong.reason
        assert wrong.rounding.float64_error > rematbench.validator.rounding.FLOAT64_TOLERANCE


@pytest.mark.parametrize("change", [negative, missing_term, larger])
def test_a_wrong_exact_implementation_beside_an_inexact_one(
    network: Captured, checker: Validator, change: Change
) -> None:
    one = op_with(network, "conv:chunk2", "convolution_").name
    two = op_with(network, "statistics", "_native_batch_norm_legit_functional").name
    implementations = {one: "conv:chunk2", two: "statistics"}
    assert judged(checker, network, implementations).verdict is GradientVerdict.ROUNDING
    wrong = judged(checker, spoilt(network, two, "statistics", change), implementations)
    assert f"{two} statistics alone: " in wrong.reason


@pytest.mark.parametrize("encoding", ["fp16", "csr"])
@pytest.mark.parametrize("change", [negative, missing_term, larger])
def test_a_wrong_encoder(
    network: Captured, checker: Validator, encoding: str, change: Change
) -> None:
    implementation = {"fp16": "lossy:fp16", "csr": "encoded:csr"}[encoding]
    op = op_with(network, implementation, "convolution_backward_")
    reads = next(w.reads for w in op.implementations if w.name == implementation)
    encoder = next(
        o.name for o in network.graph.ops if {*o.writes} & {*reads} and o.name.endswith(encoding)
    )
    assert judged(checker, network, {op.name: implementation}).reason is None
    wrong = judged(checker, spoilt(network, encoder, "default", change), {op.name: implementation})
    assert wrong.verdict is GradientVerdict.WRONG


def test_what_rounds_too_much_is_seen_alone(network: Captured, checker: Validator) -> None:
    """In double precision it keeps every bit."""
    op = op_with(network, "conv:chunk2", "convolution_").name
    half = spoilt(network, op, "conv:chunk2", lambda x: x.half().to(x.dtype))
    wrong = judged(checker, half, {op: "conv:chunk2"})
    assert f"{op} conv:chunk2 alone: " in wrong.reason
    assert wrong.rounding.float64_error < 1e-12


def test_a_device_that_does_not_repeat_its_bits_allows_more(
    network: Captured, checker: Validator
) -> None:
    op = op_with(network, "conv:chunk2", "convolution_").name
    checker.use(spoilt(network, op, "conv:chunk2", lambda x: x * (1 - 3e-5)))
    chosen = op, "conv:chunk2"
    strict, lax = (compare_alone(checker.bench, [chosen], exact)[chosen] for exact in (True, False))
    assert strict.reason is not None
    assert strict.error > strict.tolerance == network.traits[chosen].tolerance
    assert strict.tolerance < lax.error < lax.tolerance == TOLERANCE[torch.float32]
    assert lax.reason is None


def test_what_hides_behind_rounding_is_seen_in_double(
    network: Captured, checker: Validator
) -> None:
    """A term of a few millionths is missing: alone it is within what is stated."""
    op = op_with(network, "conv:chunk2", "convolution_backward_").name
    slightly = spoilt(network, op, "conv:chunk2", lambda x: x * (1 - 3e-6))
    wrong = judged(checker, slightly, {op: "conv:chunk2"})
    assert wrong.rounding.alone_error <= wrong.rounding.alone_tolerance
    assert wrong.reason.startswith("in float64, gradient of")


def test_true_implementations_of_a_residual_network(network: Captured, checker: Validator) -> None:
    """All at once: in single precision the gradients say nothing."""
    implementations = {}
    for number, op in enumerate(network.graph.ops):
        inexact = [
            implementation.name
            for implementation in op.implementations[1:]
            if network.traits[op.name, implementation.name].tolerance > 0
            and Kind.LOSSY not in kinds_of(implementation.name)
        ]
        if inexact:
            implementations[op.name] = inexact[number % len(inexact)]
    found = judged(checker, network, implementations)
    assert (found.verdict, found.reason) == (GradientVerdict.ROUNDING, None)
    assert found.rounding.float64_reference == "eager"
    assert found.rounding.float64_error < 1e-10
    assert found.rounding.alone_count == len(implementations)
    assert 0 < found.rounding.alone_error <= found.rounding.alone_tolerance
    assert found.comparison.max_error > 1e3 * found.rounding.float64_error


def test_without_double_precision_the_row_says_so(
    network: Captured, checker: Validator, monkeypatch: pytest.MonkeyPatch
) -> None:
    op = op_with(network, "conv:chunk2", "convolution_").name

    def single_only(x: Tensor) -> Tensor:
        if x.dtype is torch.float64:
            raise NotImplementedError("not for double")
        return x

    found = judged(checker, spoilt(network, op, "conv:chunk2", single_only), {op: "conv:chunk2"})
    assert (found.verdict, found.reason) == (GradientVerdict.ROUNDING, None)
    assert found.rounding.float64_error is None
    assert found.rounding.float64_reason == "NotImplementedError: not for double"
    monkeypatch.setattr(rematbench.validator.rounding, "free_memory", lambda device: 1000)
    found = judged(checker, network, {op: "conv:chunk2"})
    assert found.reason is None
    assert found.rounding.float64_error is None
    assert "1000 are free" in found.rounding.float64_reason
    wrong = judged(checker, spoilt(network, op, "conv:chunk2", larger), {op: "conv:chunk2"})
    assert wrong.verdict is GradientVerdict.WRONG


class Standardised(nn.Module):
    """Adds what depends on the precision, which a trace holds as a number."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x.float())
        return (y / (y.abs().mean() + torch.finfo(y.dtype).eps)).sin().sum()


def test_a_model_that_depends_on_its_precision() -> None:
    torch.manual_seed(0)
    workload = Workload(
        "standardised", Standardised(), lambda: (torch.randn(4, 3, 8, 8),), lambda m, x: m(x)
    )
    captured = with_alternatives(capture(workload))
    checker = Validator(captured, "cpu", 0)
    op = op_with(captured, "conv:chunk2", "convolution").name
    found = judged(checker, captured, {op: "conv:chunk2"})
    assert (found.verdict, found.rounding.float64_reference) == (
        GradientVerdict.ROUNDING,
        "captured",
    )
    wrong = judged(checker, spoilt(captured, op, "conv:chunk2", larger), {op: "conv:chunk2"})
    assert "in float64" in wrong.reason
    kept = {name: t.dtype for name, t in workload.module.state_dict().items()}
    assert set(kept.values()) == {torch.float32}
    assert torch.get_default_dtype() is torch.float32


def workload_of(loss: Callable[..., Tensor], dtype: torch.dtype = torch.float32) -> Workload:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU())
    return Workload("odd", module, lambda: (torch.randn(4, 3, 6, 6),), loss).cast(dtype)


OVERFLOWS = [
    (lambda m, x: m(x).sum() * float("nan"), torch.float32),
    (lambda m, x: (m(x) * 1e30).square().sum(), torch.float32),
    (lambda m, x: (m(x) * 1e3).square().mean(), torch.float16),
    (lambda m, x: m(x - x.sum() * float("inf")).sum(), torch.float32),
]


@pytest.mark.parametrize(("loss", "dtype"), OVERFLOWS)
def test_equal_nans_are_equal(loss: Callable[..., Tensor], dtype: torch.dtype) -> None:
    captured = capture(workload_of(loss, dtype))
    measured = validator.measure(captured, program_order(captured.graph), device="cpu", repeats=1)
    assert not any(t.isfinite().all() for t in [checker_of(captured).reference.loss])
    assert (measured.verdict, measured.gradient_bitwise) == ("exact", True)
    assert measured.gradient_max_error == 0.0


def checker_of(captured: Captured) -> Validator:
    return validator.validator_of(captured, "cpu", 0)


def test_a_loss_that_overflows_in_an_inexact_plan() -> None:
    captured = with_alternatives(capture(workload_of(OVERFLOWS[1][0])))
    checker = Validator(captured, "cpu", 0)
    op = op_with(captured, "conv:chunk2", "convolution").name
    found = judged(checker, captured, {op: "conv:chunk2"})
    assert (found.verdict, found.reason) == (GradientVerdict.ROUNDING, None)
    assert found.rounding.float64_error < 1e-10


def with_nan(x: Tensor) -> Tensor:
    x = x.clone()
    x.view(-1)[:3] = float("nan")
    return x


@pytest.mark.parametrize("implementation", ["conv:chunk2", "shape"])
def test_nan_in_one_alone_is_wrong(
    network: Captured, checker: Validator, implementation: str
) -> None:
    op = op_with(network, implementation, "convolution_backward_").name
    found = judged(checker, spoilt(network, op, implementation, with_nan), {op: implementation})
    assert found.verdict is GradientVerdict.WRONG
    assert "gradient of" in found.reason
    assert "entries are NaN or infinite in only one of them" in found.reason
    assert (found.comparison.max_error, found.comparison.bitwise) == (None, False)


def result(**gradients: Tensor) -> StepResult:
    return StepResult(torch.tensor(1.0), gradients, {})


def test_comparing() -> None:
    nan, inf = float("nan"), float("inf")
    x = torch.tensor([1.0, nan, inf, -inf, 1e-3])
    assert compare(result(x=x), result(x=x.clone()), exact=True).bitwise
    near = torch.tensor([1.0, nan, inf, -inf, 2e-3])
    found = compare(result(x=near), result(x=x), tolerance=1e-2)
    assert (found.bitwise, found.reason) == (False, None)
    assert found.max_error == pytest.approx(1e-3)
    found = compare(result(x=-x), result(x=x), tolerance=10)
    assert (found.max_error, found.worst) == (None, "gradient of x")
    assert found.reason.startswith("gradient of x differs from eager training: 2 of 5 entries")
    assert compare(result(), result(x=x)).reason == "gradient of x is missing"
    assert "type" in compare(result(x=x.double()), result(x=x)).reason
    assert "shape" in compare(result(x=x[:2]), result(x=x)).reason
    huge = torch.tensor([1e308], dtype=torch.float64)
    found = compare(result(x=-huge), result(x=huge), tolerance=1e-8)
    assert found.reason
    # A small gradient is held against itself, one that is 0 but for rounding is not.
    pair = {"a.weight": torch.tensor([1.0]), "a.bias": torch.tensor([1e-6])}
    off = {**pair, "a.bias": torch.tensor([1.05e-6])}
    assert compare(result(**off), result(**pair), tolerance=1e-8, floor=1e-3).reason
    zero = {"a.weight": torch.tensor([1.0]), "a.bias": torch.tensor([1e-15])}
    off = {**zero, "a.bias": torch.tensor([-1e-15])}
    assert not compare(result(**off), result(**zero), tolerance=1e-8, floor=1e-3).reason


class Mixed(nn.Module):
    """Every inexact rule has a say, and a bias whose gradient is 0 but for rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.body = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.one, self.two = nn.BatchNorm2d(8), nn.BatchNorm2d(8)
        self.up, self.norm = nn.ConvTranspose2d(8, 6, 3, 2), nn.LayerNorm(6)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.one(self.stem(x)))
        x = self.up(F.silu(x + self.two(self.body(x))))
        return self.head(self.norm(F.gelu(x.mean((2, 3))))).square().mean()


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str
)
def test_every_precision(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    workload = Workload("mixed", Mixed(), lambda: (torch.randn(6, 3, 12, 12),), lambda m, x: m(x))
    captured = with_alternatives(capture(workload.cast(dtype)))
    checker = Validator(captured, "cpu", 0)
    implementations = [
        (op.name, implementation.name)
        for op in captured.graph.ops
        for implementation in op.implementations[1:]
    ]
    found = compare_alone(checker.bench, implementations, exact=True)
    assert len(found) == len(implementations) > 15
    assert [alone for alone in found.values() if alone.reason is not None] == []
    assert any(alone.error for alone in found.values())
    inexact = {
        op: implementation
        for op, implementation in implementations
        if captured.traits[op, implementation].tolerance > 0
    }
    lossy = any(Kind.LOSSY in kinds_of(implementation) for implementation in inexact.values())
    judgement = judged(checker, captured, inexact)
    assert judgement.verdict is (GradientVerdict.LOSSY if lossy else GradientVerdict.ROUNDING)
    assert judgement.rounding.float64_error < 1e-10


def test_what_has_no_double_precision_is_replaced_and_said(
    network: Captured, checker: Validator
) -> None:
    op = op_with(network, "conv:chunk2", "convolution_").name
    traits = replace(network.traits[op, "conv:chunk2"], float64=False)
    given = replace(
        network, traits={**network.traits, (op, "conv:chunk2"): traits}, code={**network.code}
    )
    found = judged(checker, given, {op: "conv:chunk2"})
    assert found.verdict is GradientVerdict.ROUNDING
    assert f"{op} conv:chunk2 has no float64; PyTorch's own ran" in found.rounding.float64_reason
    x, w = torch.randn(2, 3, 5, 5).double(), torch.randn(4, 3, 3, 3).double()
    own = cudnn.convolve(x, w, None, ([1, 1], [1, 1], [1, 1]), [2, 4, 5, 5], 0)
    assert torch.equal(own, F.conv2d(x, w, padding=1))
