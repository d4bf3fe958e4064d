"""anytime_joint: more implementations never make a plan dearer."""

from __future__ import annotations

from functools import cache
from math import inf

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench import costmodel
from rematbench.base.errors import Infeasible
from rematbench.engines.joint.implementations import VARIANTS
from rematbench.engines.joint.narrower import narrowed
from rematbench.graphs.ir import Graph
from rematbench.graphs.kinds import Kind
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime_joint.planner import AnytimeJoint
from rematbench.strategies.base import Problem
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload

LOOSE = 0.3
"""Gap at which to stop: so large that the search stops at whatever it comes upon first."""


class Skips(nn.Module):
    """A small U-Net, with concatenations."""

    def __init__(self, depth: int, norm: bool) -> None:
        super().__init__()

        def block(before: int) -> nn.Module:
            between = nn.BatchNorm2d(8) if norm else nn.Identity()
            return nn.Sequential(nn.Conv2d(before, 8, 3, padding=1), between, nn.ReLU())

        self.first, self.head = block(3), nn.Conv2d(8, 1, 1)
        self.down = nn.ModuleList(block(8) for _ in range(depth))
        self.up = nn.ModuleList(block(16) for _ in range(depth))

    def forward(self, x: Tensor) -> Tensor:
        x, kept = self.first(x), []
        for part in self.down:
            kept.append(x)
            x = part(F.max_pool2d(x, 2))
        for part in self.up:
            x = part(torch.cat([kept.pop(), F.interpolate(x, scale_factor=2)], 1))
        found: Tensor = self.head(F.dropout(x, 0.1))
        return found


NETS = {"plain": (2, False), "normalised": (2, True), "shallow": (1, False)}


@cache
def captured(net: str) -> Captured:
    torch.manual_seed(0)
    made = Workload(
        net,
        Skips(*NETS[net]),
        lambda: (torch.randn(2, 3, 32, 32),),
        lambda module, x: module(x).square().mean(),
    )
    return capture(made)


@cache
def graph_of(net: str, variant: str, parts: bool = True) -> Graph:
    kinds = VARIANTS[variant] - (set() if parts else {Kind.PARTS})
    found = with_alternatives(captured(net), kinds)
    return costmodel.apply("roofline", found.graph, found)


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("parts", [False, True])
def test_fewer_kinds_are_as_if_the_others_had_never_been_there(
    net: str, variant: str, parts: bool
) -> None:
    kinds = VARIANTS[variant] - (set() if parts else {Kind.PARTS})
    assert narrowed(graph_of(net, "full"), kinds) == graph_of(net, variant, parts)


@pytest.mark.parametrize(
    ("net", "fraction"),
    [
        ("plain", 0.65),
        ("normalised", 0.5),
        ("normalised", 0.52),
        ("normalised", 0.65),
        ("shallow", 0.75),
    ],
)
def test_more_implementations_never_give_a_dearer_plan(net: str, fraction: float) -> None:
    """Not even where each search stops early; time enough for a machine that is slow."""
    AnytimeJoint().warm_up()
    full = graph_of(net, "full")
    budget = int(fraction * simulate(full, program_order(full)).peak_bytes)
    cost: dict[tuple[str, bool], float] = {}
    for variant in ("noop", "output", "full"):
        for parts in (False, True):
            graph = graph_of(net, variant, parts)
            try:
                found = AnytimeJoint(variant, gap=LOOSE).plan(Problem(graph, budget, time_limit=40))
            except Infeasible:
                cost[variant, parts] = inf
                continue
            assert found.plan is not None
            trace = simulate(graph, found.plan)
            assert trace.peak_bytes <= budget
            cost[variant, parts] = trace.cost
    contained = {"noop": {"noop"}, "output": {"noop", "output"}, "full": {"noop", "output", "full"}}
    for (wide, wide_parts), most in cost.items():
        for (narrow, narrow_parts), least in cost.items():
            if narrow in contained[wide] and narrow_parts <= wide_parts:
                assert most <= least * (1 + 1e-9), (wide, wide_parts, narrow, narrow_parts)
