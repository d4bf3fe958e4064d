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
from rematbench.graphs.errors import CaptureError
from rematbench.graphs.plan import program_order
from rematbench.tracing.captured import Captured, TorchCall
from rematbench.tracing.trace import FRONTS, capture
from rematbench.tracing.workload import Workload
from rematbench.validator import Verdict

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
        assert (found.verdict, found.reason) == (Verdict.EXACT, None)


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
    assert (found.verdict, found.reason) == (Verdict.EXACT, None)


@pytest.mark.parametrize("layers", [1, 2])
def test_an_lstm_is_eager_trainings_but_for_rounding(layers: int) -> None:
    """Eager training runs oneDNN's, which cannot be traced."""
    captured = capture(workload(lambda: Recurrent(layers), 4, 5, 8))
    for plan in (program_order(captured.graph), recompute_everything(captured.graph)):
        found = validator.measure(captured, plan, device="cpu", repeats=1)
        assert (found.verdict, found.reason) == (Verdict.ROUNDING, None)
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
    found = validator.Validator(wrong, "cpu", seed=0).measure(program_order(wrong.graph), repeats=1)
    assert found.verdict is Verdict.WRONG
    assert "differs from eager training" in (found.reason or "")


def test_a_plan_with_other_bits_than_the_trace_is_wrong() -> None:
    captured = capture(workload(lambda: Recurrent(1), 4, 5, 8))
    checker = validator.Validator(captured, "cpu", seed=0)
    wrong = validator.generate(scaled_outputs(captured), program_order(captured.graph))
    assert checker.check(wrong).verdict is Verdict.WRONG


def test_other_effects_and_unknown_sizes_are_refused() -> None:
    aligned = Workload(
        "speech",
        nn.Linear(8, 10),
        lambda: (torch.randn(12, 2, 8), torch.randint(1, 10, (2, 4))),
        lambda model, x, y: F.ctc_loss(model(x).log_softmax(-1), y, (12, 12), (4, 4)),
    )
    with pytest.raises(CaptureError, match="train with another loss"):
        capture(aligned, front="trace")


def test_tracing_leaves_pytorch_as_it_was() -> None:
    op, key = torch.ops.aten.lstm.input, torch._C.DispatchKey.CompositeImplicitAutograd
    kernels, validates = dict(op.py_kernels), Distribution._validate_args
    assert key in kernels
    capture(workload(lambda: Recurrent(1), 4, 5, 8))
    assert op.py_kernels == kernels
    assert Distribution._validate_args == validates
