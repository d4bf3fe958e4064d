"""MONeT: gaps, overheads and ablations, at the budgets of its figures and at tight ones.

``python -m benchmarks.monet [MODELS]`` writes runs/benchmarks/monet.json, within 40 minutes. Costs
are modelled (a V100's roofline), so that the figures depend on the machine only where time decides.
"""

from __future__ import annotations

import bisect
import itertools
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time
from typing import Any

import torch

from benchmarks.figures import Figure, publish
from rematbench import costmodel
from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible
from rematbench.engines.joint.implementations import VARIANTS
from rematbench.graphs.ir import Graph
from rematbench.graphs.kinds import Kind
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.anytime_joint.planner import AnytimeJoint
from rematbench.strategies.base import Problem, Solution, Strategy
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

SECONDS, GAP = 60, 0.02
"""Of the gaps: time limit, and the gap at which to stop."""
SHORT = 8
"""Time limit of each plan of the ablation, and of Table 1."""
PUBLISHED = {"resolution": "416x608", "channels": 3, "dropout": 0.0, "batch_norm": True}
"""MONeT's U-Net."""
THIRDS, TIGHT = (0.33, 0.5, 0.7), (0.33, 0.5)


@dataclass(frozen=True)
class Case:
    """A model and its budgets.

    Attributes:
        options: of the model.
        fractions: budgets, as parts of checkpoint-all's peak.
        most: gap at most, in %.
        stop: relative gap at which to stop.
        title: in the figures; else the model's name.
        table: is it in the paper's Table 1?
        parts: is it planned without implementations by parts, too?
    """

    model: str
    options: dict[str, Any]
    fractions: tuple[float, ...] = THIRDS
    most: float = 5
    stop: float = GAP
    title: str = ""
    table: bool = True
    parts: bool = False

    @property
    def name(self) -> str:
        """In the figures."""
        return self.title or self.model


def dense(model: str, parts: bool = False) -> Case:
    """A network outside of the paper, which is to come within 2 %."""
    return Case(model, {"batch_size": 64}, TIGHT, 2, 0.005, table=False, parts=parts)


# Those of the paper with its batches. VGG-16's floor is 0.38.
CASES = (
    Case("resnet50", {"batch_size": 184}),
    Case("googlenet", {"batch_size": 320}),
    Case("mobilenet_v2", {"batch_size": 256}),
    Case("unet", {"batch_size": 11, "upsampling": True, **PUBLISHED}),
    Case("vgg16", {"batch_size": 176}, (0.4, 0.5, 0.6, 0.7)),
    dense("densenet121", parts=True),
    dense("densenet161"),
    dense("densenet169"),
    dense("inception_v3"),
    Case("unet", {"batch_size": 8}, stop=0.005, title="plain unet", table=False, parts=True),
)
ABLATION = 0.5
ABLATED = ("vgg16", "resnet50", "mobilenet_v2")
"""Models of the ablation."""
TABLE_1 = 0.1
"""Overhead at which Table 1 compares memory."""
PERCENTS = range(15, 96, 5)
"""Of memory, tried for Table 1 by bisection."""


def costed(plain: Captured, variant: str, without: Kind | None = None) -> Graph:
    """The model with the implementations of a variant, but for those of a kind."""
    captured = with_alternatives(plain, VARIANTS[variant] - {without})
    return costmodel.apply("roofline", captured.graph, captured)


def cost_of(graph: Graph, solution: Solution) -> float:
    """Of its plan, as simulated."""
    assert solution.plan is not None
    return simulate(graph, solution.plan).cost


def gaps(case: Case, graph: Graph) -> Iterator[Figure]:
    """Certified gap, overhead and time at each budget, upwards, with the plans of smaller ones."""
    name = case.name
    base = simulate(graph, program_order(graph))
    known: list[Plan] = []
    costs = []
    for fraction in case.fractions:
        title = f"{name} at {fraction:g}"
        budget = int(fraction * base.peak_bytes)
        try:
            problem = Problem(graph, budget, time_limit=SECONDS, warm_starts=tuple(known))
            busy, began = process_time(), planning_seconds()
            found = AnytimeJoint(gap=case.stop).plan(problem)
        except Infeasible:
            yield Figure(f"{title}: plans found", 0, 1, "plans", at_least=True)
            continue
        seconds = planning_seconds() - began
        cost = cost_of(graph, found)
        costs.append(cost)
        assert found.bound is not None
        assert found.plan is not None
        known.append(found.plan)
        yield Figure(f"{title}: gap", 100 * (1 - found.bound / cost), case.most, "%")
        yield Figure(f"{title}: overhead", 100 * (cost / base.cost - 1), None, "%")
        yield Figure(f"{title}: past the time limit", max(0, seconds - SECONDS), 2, "s")
        yield Figure(f"{title}: planning, CPU", process_time() - busy, SECONDS, "CPU s")
    rises = sum(later > earlier for earlier, later in itertools.pairwise(costs))
    yield Figure(f"{name}: budgets where the cost rises", rises, 0, "budgets")


def by_parts(case: Case, plain: Captured) -> Iterator[Figure]:
    """Cost with implementations by parts, relative to the cost without: 0 if that has no plan."""
    graphs = costed(plain, "full"), costed(plain, "full", without=Kind.PARTS)
    base = simulate(graphs[1], program_order(graphs[1]))
    for fraction in TIGHT:
        problems = [
            Problem(graph, int(fraction * base.peak_bytes), time_limit=SECONDS) for graph in graphs
        ]
        with_parts, without = (_cost_found(problem, case.stop) for problem in problems)
        title = f"{case.name} at {fraction:g}: cost with ops by parts / without"
        yield Figure(title, with_parts / without, 1, "ratio")


def _cost_found(problem: Problem, gap: float) -> float:
    """Of the plan; infinite without one."""
    try:
        return cost_of(problem.graph, AnytimeJoint(gap=gap).plan(problem))
    except Infeasible:
        return math.inf


def ablation(name: str, plain: Captured) -> Iterator[Figure]:
    """Absolute cost of each variant, relative to ``noop`` (Figure 4).

    Each variant knows the plans of those that it contains.
    """
    plans: dict[str, Plan] = {}
    cost: dict[str, float] = {}
    base = simulate(costed(plain, "full"), program_order(costed(plain, "full")))
    for variant in sorted(VARIANTS, key=["noop", "conv", "output", "intermediate", "full"].index):
        graph = costed(plain, variant)
        inside = tuple(plans.values()) if variant == "full" else tuple(plans.values())[:1]
        problem = Problem(
            graph, int(ABLATION * base.peak_bytes), time_limit=SHORT, warm_starts=inside
        )
        try:
            found = AnytimeJoint(variant).plan(problem)
        except Infeasible:
            continue
        assert found.plan is not None
        plans[variant], cost[variant] = found.plan, cost_of(graph, found)
        title = f"{name} at {ABLATION:g}: {variant} / noop"
        if "noop" in cost:
            yield Figure(title, cost[variant] / cost["noop"], 1, "ratio")
    rest = min((cost[variant] for variant in cost if variant != "full"), default=None)
    if rest is not None and "full" in cost:
        title = f"{name} at {ABLATION:g}: full / the best of the others"
        yield Figure(title, cost["full"] / rest, 1, "ratio")


def memory_at_overhead(strategy: Strategy, graph: Graph) -> float:
    """Smallest memory found at 10 % overhead (Table 1), as a part of checkpoint-all's.

    The overhead falls as memory grows, so that bisection finds where it becomes small enough.
    """
    base = simulate(graph, program_order(graph))

    def within(percent: int) -> bool:
        problem = Problem(graph, base.peak_bytes * percent // 100, time_limit=SHORT)
        try:
            return cost_of(graph, strategy.plan(problem)) <= (1 + TABLE_1) * base.cost
        except Infeasible:
            return False

    place = bisect.bisect_left(PERCENTS, True, key=within)
    return PERCENTS[place] / 100 if place < len(PERCENTS) else 1.0


def table_1(name: str, plain: Captured) -> Iterator[Figure]:
    """Both planners' memory at 10 % overhead."""
    full, bare = costed(plain, "full"), costmodel.apply("roofline", plain.graph, plain)
    title = f"{name}, 10 % overhead: memory of"
    found = memory_at_overhead(AnytimeJoint(gap=GAP), full)
    yield Figure(f"{title} anytime_joint", found, None, "of checkpoint-all")
    found = memory_at_overhead(Anytime(gap=GAP), bare)
    yield Figure(f"{title} anytime", found, None, "of checkpoint-all")


def main(chosen: list[str]) -> None:
    """Plan every model, or those chosen."""
    AnytimeJoint().warm_up()
    figures: list[Figure] = []
    for case in CASES:
        if chosen and case.model not in chosen:
            continue
        torch.manual_seed(0)
        plain = capture(make_model(case.model, **case.options))
        figures += gaps(case, costed(plain, "full"))
        if case.parts:
            figures += by_parts(case, plain)
        if case.model in ABLATED:
            figures += ablation(case.model, plain)
        if case.table:
            figures += table_1(case.model, plain)
    publish("monet", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
