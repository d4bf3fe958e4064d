"""MONeT: gaps, overheads and ablations at the issue's budgets.

``python -m benchmarks.monet [MODELS]`` writes runs/benchmarks/monet.json, within 15 minutes. Costs
are modelled (a V100's roofline), so that the figures depend on the machine only where time decides.
"""

from __future__ import annotations

import bisect
import itertools
import sys
from collections.abc import Iterator
from time import process_time
from typing import Any

import torch

from benchmarks.figures import Figure, publish
from rematbench import costmodel
from rematbench.graphs.errors import Infeasible
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import Trace, simulate
from rematbench.strategies.base import Problem, Solution, Strategy
from rematbench.strategies.checkmate.ilp import CheckmateIlp
from rematbench.strategies.monet.planner import Monet
from rematbench.strategies.monet.ways import VARIANTS
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

SECONDS, GAP = 60, 0.02
"""Of the gaps: time limit, and the gap at which to stop."""
SHORT = 8
"""Time limit of each plan of the ablation, and of Table 1."""
# Model, options (the paper's batches), budgets as fractions. VGG-16's floor is 0.38.
UNET = {"resolution": "416x608", "channels": 3, "dropout": 0.0, "batch_norm": True}
THIRDS = (0.33, 0.5, 0.7)
MODELS: list[tuple[str, dict[str, Any], tuple[float, ...]]] = [
    ("resnet50", {"batch_size": 184}, THIRDS),
    ("googlenet", {"batch_size": 320}, THIRDS),
    ("mobilenet_v2", {"batch_size": 256}, THIRDS),
    ("unet", {"batch_size": 11, "upsampling": True, **UNET}, THIRDS),
    ("vgg16", {"batch_size": 176}, (0.4, 0.5, 0.6, 0.7)),
]
ABLATION = 0.5
ABLATED = ("vgg16", "resnet50", "mobilenet_v2")
"""Models of the ablation."""
TABLE_1 = 0.1
"""Overhead at which Table 1 compares memory."""
PERCENTS = range(15, 96, 5)
"""Of memory, tried for Table 1 by bisection."""


def costed(plain: Captured, variant: str) -> Graph:
    """The model with the implementations of a variant."""
    captured = with_alternatives(plain, VARIANTS[variant])
    return costmodel.apply("roofline", captured.graph, captured)


def cost_of(graph: Graph, solution: Solution) -> float:
    """Of its plan, as simulated."""
    assert solution.plan is not None
    return simulate(graph, solution.plan).cost


def gaps(name: str, graph: Graph, fractions: tuple[float, ...]) -> Iterator[Figure]:
    """Certified gap, overhead and time at each budget, upwards, with the plans of smaller ones."""
    base = simulate(graph, program_order(graph))
    known: list[Plan] = []
    costs = []
    for fraction in fractions:
        title = f"{name} at {fraction:g}"
        budget = int(fraction * base.peak_bytes)
        try:
            problem = Problem(graph, budget, time_limit=SECONDS, warm_starts=tuple(known))
            busy = process_time()
            found = Monet(gap=GAP).plan(problem)
        except Infeasible:
            yield Figure(f"{title}: plans found", 0, 1, "plans", at_least=True)
            continue
        cost = cost_of(graph, found)
        costs.append(cost)
        assert found.bound is not None
        assert found.plan is not None
        known.append(found.plan)
        yield Figure(f"{title}: gap", 100 * (1 - found.bound / cost), 5, "%")
        yield Figure(f"{title}: overhead", 100 * (cost / base.cost - 1), None, "%")
        yield Figure(f"{title}: past the time limit", max(0, found.seconds - SECONDS), 2, "s")
        yield Figure(f"{title}: planning, CPU", process_time() - busy, SECONDS, "CPU s")
    rises = sum(later > earlier for earlier, later in itertools.pairwise(costs))
    yield Figure(f"{name}: budgets where the cost rises", rises, 0, "budgets")


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
            found = Monet(variant).plan(problem)
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


def memory_at_overhead(name: str, plain: Captured) -> Iterator[Figure]:
    """Smallest memory found at 10 % overhead, beside checkmate_ilp's (Table 1).

    The overhead falls as memory grows, so that bisection finds where it becomes small enough.
    """
    full, bare = costed(plain, "full"), costmodel.apply("roofline", plain.graph, plain)
    for title, strategy, graph in (
        ("monet", Monet(gap=0.02), full),
        ("checkmate_ilp", CheckmateIlp(gap=0.02), bare),
    ):
        base = simulate(graph, program_order(graph))

        def within(
            percent: int,
            strategy: Strategy = strategy,
            graph: Graph = graph,
            base: Trace = base,
        ) -> bool:
            problem = Problem(graph, base.peak_bytes * percent // 100, time_limit=SHORT)
            try:
                return cost_of(graph, strategy.plan(problem)) <= (1 + TABLE_1) * base.cost
            except Infeasible:
                return False

        place = bisect.bisect_left(PERCENTS, True, key=within)
        fraction = PERCENTS[place] / 100 if place < len(PERCENTS) else 1.0
        yield Figure(
            f"{name}, 10 % overhead: memory of {title}", fraction, None, "of checkpoint-all"
        )


def main(chosen: list[str]) -> None:
    """Plan every model, or those chosen."""
    Monet().warm_up()
    figures: list[Figure] = []
    for name, options, fractions in MODELS:
        if chosen and name not in chosen:
            continue
        torch.manual_seed(0)
        plain = capture(make_model(name, **options))
        figures += gaps(name, costed(plain, "full"), fractions)
        if name in ABLATED:
            figures += ablation(name, plain)
        figures += memory_at_overhead(name, plain)
    publish("monet", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
