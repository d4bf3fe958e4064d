"""A wrong implementation of every name that a plan can choose is found, and a true one is not."""

from __future__ import annotations

import functools

import pytest
import torch
import torch.nn.functional as F
from spoiling import Change, judged, larger, missing_term, negative, plan_with, spoilt
from torch import Tensor, nn

from rematbench import validator
from rematbench.base.errors import InvalidPlan
from rematbench.graphs.kinds import Kind, kinds_of
from rematbench.graphs.simulate import simulate
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.validator import GradientVerdict, Validator

CONVOLUTION = ("channels_last", "chunk2", "im2col", "im2col_image", "fft")
NAMES = {
    *(f"conv:{implementation}" for implementation in (*CONVOLUTION, "winograd", "winograd_image")),
    *("input", "output", "output:side_bits", "shape", "replay"),
    *("intermediate:bits", "intermediate:offsets4", "intermediate:offsets8"),
    *("parts", "parts:winograd_image", "parts:copy", "parts:copy+inplace"),
    *("inplace", "inplace:first", "inplace:second", "statistics", "statistics+inplace"),
    *("encoded:csr", "encoded:bitmap", "lossy:fp16"),
}
"""Those of :mod:`rematbench.tracing.alternatives` that run on a CPU."""


class Every(nn.Module):
    """A small U-Net with every op that has another implementation."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.down, self.deep = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(2))
        self.joined = nn.Conv2d(16, 8, 3, padding=1)
        self.layer, self.out = nn.LayerNorm(16), nn.Linear(8 * 64, 10)

    def forward(self, x: Tensor) -> Tensor:
        skip = F.relu(self.norm(self.first(x)))
        y = F.relu6(self.down(F.max_pool2d(skip, 3, 2, 1)))
        z = F.leaky_relu(self.deep(y))
        y = F.interpolate(F.dropout(F.gelu(y + z), 0.2), scale_factor=2)
        y = self.layer(F.silu(self.joined(torch.cat([skip, y], 1))))
        return self.out(F.avg_pool2d(y, 2).flatten(1))


@functools.cache
def network() -> Captured:
    torch.manual_seed(0)
    batch = (torch.randn(4, 3, 16, 16), torch.randint(10, (4,)))
    loss = F.cross_entropy
    plain = capture(Workload("every", Every(), lambda: batch, lambda m, x, y: loss(m(x), y)))
    return with_alternatives(plain, density=validator.densities(plain, "cpu"))


@pytest.fixture(scope="module")
def checker() -> Validator:
    return Validator(network(), "cpu", 0)


def offered() -> dict[str, dict[str, str]]:
    """Per name, an op that can run it where the rest runs in program order.

    Beside it the gradient of a batch norm by its output, where the input is overwritten.
    """
    found: dict[str, dict[str, str]] = {}
    ops = [op.name for op in network().graph.ops]
    beside = {name: "output" for name in ops if name.startswith("native_batch_norm_backward")}
    for op in network().graph.ops:
        for implementation in op.implementations[1:]:
            for implementations in (
                {op.name: implementation.name},
                {op.name: implementation.name, **beside},
            ):
                if implementation.name not in found and runs(implementations):
                    found[implementation.name] = implementations
    return found


def runs(implementations: dict[str, str]) -> bool:
    try:
        simulate(network().graph, plan_with(network(), implementations))
    except InvalidPlan:
        return False
    return True


def test_every_name_is_offered() -> None:
    assert set(offered()) == NAMES
    assert {kind for name in NAMES for kind in kinds_of(name)} == set(Kind) - {Kind.DEFAULT}


@pytest.mark.parametrize("implementation", sorted(NAMES))
def test_a_true_one_passes_and_a_wrong_one_does_not(
    checker: Validator, implementation: str
) -> None:
    captured, implementations = network(), offered()[implementation]
    op = next(iter(implementations))
    inexact = any(captured.traits[chosen].tolerance for chosen in implementations.items())
    true = judged(checker, captured, implementations)
    rounded = (
        GradientVerdict.LOSSY
        if Kind.LOSSY in kinds_of(implementation)
        else GradientVerdict.ROUNDING
    )
    assert (true.verdict, true.reason) == (rounded if inexact else GradientVerdict.EXACT, None)
    changes: tuple[Change, ...] = (negative, missing_term, larger)
    for change in changes:
        wrong = judged(checker, spoilt(captured, op, implementation, change), implementations)
        assert wrong.verdict is GradientVerdict.WRONG, change.__name__
        where = f"{op} {implementation} alone: " if inexact else "differs from eager training"
        assert where in (wrong.reason or "")
