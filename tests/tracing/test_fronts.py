"""Both front ends, the plain trace and TorchDynamo, make the same graph."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from rematbench.graphs.errors import CaptureError, ConfigError
from rematbench.graphs.plan import program_order
from rematbench.tracing import Captured, Workload, capture
from rematbench.validator import measure
from rematbench.zoo import make_model

# A chain, batch norms, skips; dropout, attention and a tied weight.
MODELS = {
    "vgg11": {"resolution": 32},
    "mobilenet_v2": {"resolution": 32},
    "unet": {"resolution": 32},
    "transformer_lm": {"layers": 2},
}


def facts(captured: Captured) -> tuple[object, ...]:
    code = {name: [str(c.target) for c in ways["default"]] for name, ways in captured.code.items()}
    where = [(r.kind, r.target) for r in captured.residents]
    return captured.graph, code, sorted(where, key=repr), captured.gradients, captured.updates


@pytest.mark.parametrize("name", MODELS)
def test_the_same_graph(name: str) -> None:
    workload = make_model(name, batch_size=2, **MODELS[name])
    plain, read = (capture(workload, front=front) for front in ("trace", "dynamo"))
    assert facts(read) == facts(plain)


class Masked(nn.Module):
    """Python that looks at data, to skip a mask of ones, unless a compiler reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(8, 8), nn.Dropout(0.5)
        self.register_buffer("scale", torch.full((8,), 2.0), persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and mask.all():
            return self.drop(self.layer(x)) * self.scale
        return self.drop(self.layer(x)) * self.scale * mask


def masked() -> Workload:
    def batch() -> tuple[Tensor, Tensor]:
        return torch.ones(4, 8), torch.ones(4, 8)

    return Workload("masked", Masked(), batch, lambda m, x, mask: m(x, mask).square().mean())


def test_dynamo_takes_what_the_plain_trace_cannot() -> None:
    with pytest.raises(CaptureError, match=r"depends on the values of its tensors"):
        capture(masked(), front="trace")
    captured = capture(masked())
    found = {(r.kind, r.target) for r in captured.residents}
    assert {("parameter", "layer.weight"), ("buffer", "scale"), ("input", 1)} <= found
    result = measure(captured, program_order(captured.graph), device="cpu", repeats=1)
    assert result.gradient_bitwise


def broken(module: nn.Module, x: Tensor) -> Tensor:
    loss: Tensor = module(x).square().mean()
    if loss > 1:
        return loss
    return 2 * loss


def test_a_graph_break_names_its_line() -> None:
    workload = Workload("broken", nn.Linear(4, 4), lambda: (torch.ones(2, 4),), broken)
    line = broken.__code__.co_firstlineno + 2
    for front in ("auto", "trace", "dynamo"):
        with pytest.raises(CaptureError, match=rf"{Path(__file__).name}:{line} in broken") as told:
            capture(workload, front=front)
        assert "\n" not in str(told.value)


def test_unknown() -> None:
    with pytest.raises(ConfigError, match="auto, trace, dynamo"):
        capture(masked(), front="magic")
