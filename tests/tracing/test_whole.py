"""Steps that traces used to round otherwise than eager training, or to refuse."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers import recompute_everything
from torch import Tensor, nn
from torch.distributions import Distribution, MultivariateNormal, Normal

from rematbench import validator
from rematbench.base.errors import CaptureError
from rematbench.graphs.plan import program_order
from rematbench.tracing.captured import Captured, TorchCall
from rematbench.tracing.trace import FRONTS, capture
from rematbench.tracing.workload import Workload
from rematbench.validator import GradientVerdict
from rematbench.validator.timing import Timing

BOTH = [front for front in FRONTS if front != "auto"]


class Tied(nn.Module):
    """A layer that runs twice, and an output layer of the same weight."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.out = nn.Linear(32, 32), nn.Linear(32, 32, bias=False)
        self.out.weight = self.layer.weight

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(2):
            x = x + F.gelu(self.layer(x))
        return self.out(x)


class Between(nn.Module):
    """A function between two convolutions."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.second = (nn.Conv2d(3, 3, 3, padding=1) for _ in range(2))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x)))


class Of(nn.Module):
    """A function of a matrix and of the batch."""

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 5) + 5 * torch.eye(5))
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.weight, x)


class Recurrent(nn.Module):
    """An LSTM, and an output layer."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.cells, self.out = nn.LSTM(8, 16, layers, batch_first=True), nn.Linear(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(x)[0])


def scaled(mode: str) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, scale_factor=2, mode=mode)


def inverse(weight: Tensor, x: Tensor) -> Tensor:
    return torch.linalg.inv(weight) @ x


def root(weight: Tensor, x: Tensor) -> Tensor:
    return torch.linalg.cholesky(weight @ weight.T + 5 * torch.eye(5)) @ x


def drawn(weight: Tensor, x: Tensor) -> Tensor:
    return Normal(weight @ x, 1.0).rsample() + MultivariateNormal(x[0], torch.eye(5)).rsample()


def workload(make: Callable[[], nn.Module], *shape: int) -> Workload:
    torch.manual_seed(0)
    return Workload(
        "net", make(), lambda: (torch.randn(shape),), lambda model, x: model(x).square().sum()
    )


IMAGES, MATRIX = (2, 3, 8, 8), (5, 5)
EXACT: list[tuple[Callable[[], nn.Module], tuple[int, ...]]] = [
    (Tied, (8, 32)),
    (lambda: Between(scaled("bilinear")), IMAGES),
    (lambda: Between(scaled("bicubic")), IMAGES),
    (lambda: Of(torch.linalg.solve), MATRIX),
    (lambda: Of(inverse), MATRIX),
    (lambda: Of(root), MATRIX),
    (lambda: Of(drawn), MATRIX),
]


@pytest.mark.parametrize("front", BOTH)
@pytest.mark.parametrize(("make", "shape"), EXACT)
def test_the_bits_of_eager_training(
    make: Callable[[], nn.Module], shape: tuple[int, ...], front: str
) -> None:
    captured = capture(workload(make, *shape), front=front)
    for plan in (program_order(captured.graph), recompute_everything(captured.graph)):
        found = validator.measure(captured, plan, device="cpu", repeats=1)
        assert (found.verdict, found.reason) == (GradientVerdict.EXACT, None)


@pytest.mark.parametrize("loss", [F.multi_margin_loss, F.multilabel_margin_loss])
def test_margin_losses(loss: Callable[[Tensor, Tensor], Tensor]) -> None:
    shape = (6,) if loss is F.multi_margin_loss else (6, 10)
    torch.manual_seed(0)
    made = Workload(
        "margin",
        nn.Linear(8, 10),
        lambda: (torch.randn(6, 8), torch.randint(10, shape)),
        lambda model, x, y: loss(model(x), y),
    )
    captured = capture(made)
    found = validator.measure(captured, program_order(captured.graph), device="cpu", repeats=1)
    assert (found.verdict, found.reason) == (GradientVerdict.EXACT, None)


@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_is_eager_trainings_but_for_rounding(layers: int) -> None:
    """Eager training runs oneDNN's, which cannot be traced."""
    captured = capture(workload(lambda: Recurrent(layers), 4, 5, 8))
    for plan in (program_order(captured.graph), recompute_everything(captured.graph)):
        found = validator.measure(captured, plan, device="cpu", repeats=1)
        assert (found.verdict, found.reason) == (GradientVerdict.ROUNDING, None)
        assert found.rounding is not None
        assert found.rounding.float64_reference == "eager"
        assert found.rounding.float64_error is not None
        assert found.rounding.float64_error <= 1e-8
        assert "the trace rounds otherwise than eager training" in (found.remark or "")


def scaled_outputs(captured: Captured) -> Captured:
    """The same step, whose forward sums are a millionth too large: no rounding in float64."""
    add = torch.ops.aten.addmm.default
    code = dict(captured.code)
    for name, implementations in captured.code.items():
        root, *views = implementations["default"]
        if root.target is add:
            wrong = TorchCall(add, root.args, {"beta": 1 + 1e-6}, root.outs, root.unpack)
            code[name] = {"default": (wrong, *views)}
            return replace(captured, code=code)
    raise AssertionError("there is no addmm")


def test_a_trace_of_another_step_is_wrong_even_by_little() -> None:
    captured = capture(workload(lambda: Recurrent(1), 4, 5, 8))
    wrong = scaled_outputs(captured)
    found = validator.Validator(wrong, "cpu", seed=0).measure(program_order(wrong.graph), Timing(1))
    assert found.verdict is GradientVerdict.WRONG
    assert "differs from eager training" in (found.reason or "")


def test_a_plan_with_other_bits_than_the_trace_is_wrong() -> None:
    captured = capture(workload(lambda: Recurrent(1), 4, 5, 8))
    checker = validator.Validator(captured, "cpu", seed=0)
    wrong = validator.generate(scaled_outputs(captured), program_order(captured.graph))
    assert checker.check(wrong).verdict is GradientVerdict.WRONG


def speech(batched: bool, as_tensors: bool, reduction: str, forgiving: bool) -> Workload:
    """A CTC loss of two sequences of 12 steps and up to 4 targets; or of one."""
    torch.manual_seed(0)
    lengths: tuple[object, ...] = ((12, 9), (4, 2)) if batched else (12, 4)
    if as_tensors:
        lengths = tuple(torch.tensor(each) for each in lengths)
    elif not batched:
        lengths = ((12,), (4,))
    shapes = ((12, 2, 8), (2, 4)) if batched else ((12, 8), (4,))

    def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return F.ctc_loss(
            model(x).log_softmax(-1), y, *lengths, reduction=reduction, zero_infinity=forgiving
        ).sum()

    def batch() -> tuple[Tensor, Tensor]:
        return torch.randn(shapes[0]), torch.randint(1, 10, shapes[1])

    return Workload("speech", nn.Linear(8, 10), batch, loss)


@pytest.mark.parametrize("front", BOTH)
@pytest.mark.parametrize("batched", [True, False])
@pytest.mark.parametrize("as_tensors", [True, False])
@pytest.mark.parametrize(
    ("reduction", "forgiving"), [("mean", False), ("sum", True), ("none", True)]
)
def test_ctc_losses(
    front: str, batched: bool, as_tensors: bool, reduction: str, forgiving: bool
) -> None:
    captured = capture(speech(batched, as_tensors, reduction, forgiving), front=front)
    for plan in (program_order(captured.graph), recompute_everything(captured.graph)):
        found = validator.measure(captured, plan, device="cpu", repeats=1)
        assert (found.verdict, found.reason) == (GradientVerdict.EXACT, None)


def seeding(model: nn.Module, x: Tensor) -> Tensor:
    torch.manual_seed(7)
    return F.dropout(model(x), 0.5).square().sum()


def drawing(model: nn.Module, x: Tensor) -> Tensor:
    noise = torch.empty(4, 8).normal_(generator=torch.Generator().manual_seed(1))
    return (model(x) + noise).square().sum()


def storing(model: nn.Module, x: Tensor) -> Tensor:
    return torch.sparse.sum(model(x).to_sparse()).square()


def choosing(model: nn.Module, x: Tensor) -> Tensor:
    y = model(x)
    return y.masked_select(y > 0).square().sum()


@pytest.mark.parametrize("front", BOTH)
@pytest.mark.parametrize(
    ("step", "said"),
    [
        (seeding, r"seeds the random generator within the step .*; seed before the step"),
        (drawing, "a random generator of its own.*; draw without generator="),
        (storing, "makes a tensor of layout torch.sparse_coo.*; use dense tensors"),
        (choosing, "depends on the values of its tensors.*use torch.where and fixed shapes"),
    ],
)
def test_what_no_plan_can_repeat_is_refused(
    front: str, step: Callable[[nn.Module, Tensor], Tensor], said: str
) -> None:
    made = Workload("net", nn.Linear(8, 8), lambda: (torch.randn(4, 8),), step)
    with pytest.raises(CaptureError, match=said if front == "trace" else "net") as caught:
        capture(made, front=front)
    assert "\n" not in str(caught.value)


def test_tracing_leaves_pytorch_as_it_was() -> None:
    op, key = torch.ops.aten.lstm.input, torch._C.DispatchKey.CompositeImplicitAutograd
    kernels, validates = dict(op.py_kernels), Distribution._validate_args
    assert key in kernels
    capture(workload(lambda: Recurrent(1), 4, 5, 8))
    assert op.py_kernels == kernels
    assert Distribution._validate_args == validates
