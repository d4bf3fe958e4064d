"""Why there are three searches for schedules: what each finds alone in the same CPU seconds.

Over stages (:mod:`~rematbench.engines.stages`) beside intervals, on graphs of the benchmarks
``checkmate`` and ``proven``; and MONeT's problem by the joint search beside intervals, on graphs of
``monet``. One that were never better would be one too many. ``python -m benchmarks.engines`` writes
``runs/benchmarks/engines.json``; each search has one thread, and all of a problem have the same
budget and seed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import inf

import numpy as np
import torch

from benchmarks.before import TIE
from benchmarks.checkmate import PAPERS, REAL, SWEPT
from benchmarks.figures import Figure, publish
from benchmarks.graphs import in_flops, layers
from benchmarks.monet import CASES, costed
from rematbench.base.clock import planning_seconds
from rematbench.engines.intervals.planner import IntervalSearch
from rematbench.engines.joint.implementations import VARIANTS, AllowedImplementations
from rematbench.engines.joint.large import LargeRun
from rematbench.engines.joint.run import PlanningRun
from rematbench.engines.stages.local_search import search
from rematbench.engines.stages.space import Space
from rematbench.graphs.builders.layered import random_layered
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.anytime_joint.planner import AnytimeJoint
from rematbench.strategies.registry import quick_planners
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

LIMIT = 4.0
"""CPU seconds of each search."""
JOINT = ("resnet50", "googlenet", "mobilenet_v2", "vgg16")
"""Networks of MONeT's problem, each at half its memory."""
Search = Callable[[Problem, int], float]
"""A search within a budget; the cost of its best plan, infinite without one."""


def problems() -> Iterator[tuple[str, Graph, tuple[float, ...]]]:
    """Graphs of one implementation per op, and shares of checkpoint-all's peak."""
    for name, options, targets in PAPERS:
        graph = layers(name, **{"batch_size": 32, **options})
        fractions = sorted(target.fraction for target in targets)
        yield f"{name}, layers", graph, tuple({fractions[0], fractions[-1]})
    for name, options, target in REAL:
        if name in SWEPT:
            yield f"{name}, ops", in_flops(name, **options), (target.fraction,)
    yield "random layered graph of 500 ops", random_layered(500), (0.8,)


def joint_problems() -> Iterator[tuple[str, Graph, tuple[float, ...]]]:
    """Graphs whose ops have a choice of implementations."""
    for case in CASES:
        if case.model in JOINT:
            torch.manual_seed(0)
            plain = capture(make_model(case.model, **case.options))
            yield f"{case.model}, implementations", costed(plain, "full"), (0.5,)


def by_stages(problem: Problem, budget: int) -> float:
    """Local search over F, or over (9) without a backward pass."""
    graph, best = problem.graph, inf
    space = Space.late(graph, budget) if graph.loss_index is None else Space.reduced(graph)
    until, random = planning_seconds() + problem.time_limit, np.random.default_rng(problem.seed)
    for found in search(space.everything(), budget, random, until):
        if found.peak <= budget:
            best = min(best, found.cost)
    return best


def by_intervals(problem: Problem, budget: int) -> float:
    """As a graph that is too large for programs of stages is planned."""
    found = IntervalSearch(problem, budget, planning_seconds(), 0.0)
    found.run()
    return found.progress.cost


class OnlyIntervals(LargeRun):
    """The intervals of MONeT's problem, and no matrices after them."""

    def _search(self) -> None:
        self._by_intervals()


def joint_with(kind: type[PlanningRun]) -> Search:
    """MONeT's problem by one kind of run."""

    def run(problem: Problem, budget: int) -> float:
        implementations = AllowedImplementations.of(problem.graph, VARIANTS["full"], budget)
        found = kind(problem, implementations, True, 0.0, planning_seconds())
        found.run()
        return found.progress.cost

    return run


def compared(
    name: str, graph: Graph, shares: tuple[float, ...], ours: Search, theirs: Search
) -> Iterator[tuple[str, float]]:
    """Cost by intervals over that of the other search, at some budgets; infinite without a plan."""
    peak, starts = simulate(graph, program_order(graph)).peak_bytes, quick_planners()
    for share in shares:
        budget = int(share * peak)
        problem = Problem(graph, budget, time_limit=LIMIT, starts=starts)
        mine, other = ours(problem, budget), theirs(problem, budget)
        if min(mine, other) < inf:
            print(f"{name} at {share:g}: {mine:.6g} by intervals, {other:.6g}", flush=True)
            yield f"{name} at {share:g}", mine / other


def figures_of(other: str, found: list[tuple[str, float]]) -> Iterator[Figure]:
    """How often either is better, and each problem where both have a plan."""
    ratios = [ratio for _, ratio in found]
    for what, count in (
        ("a plan by intervals only", ratios.count(0.0)),
        ("no plan by intervals", ratios.count(inf)),
        ("cheaper by intervals", sum(0 < ratio < 1 - TIE for ratio in ratios)),
        ("dearer by intervals", sum(1 + TIE < ratio < inf for ratio in ratios)),
        ("equal, within 0.1 %", sum(abs(ratio - 1) <= TIE for ratio in ratios)),
    ):
        yield Figure(f"intervals beside {other}: {what}", count, None, "plans")
    for name, ratio in found:
        if 0 < ratio < inf:
            yield Figure(f"{name}: cost by intervals / by {other}", ratio, None, "x")


def main() -> None:
    """Measure, print, write."""
    os.environ["OMP_NUM_THREADS"] = "1"  # seconds are the processor's
    Anytime().warm_up()
    AnytimeJoint().warm_up()
    stages, joint = list[tuple[str, float]](), list[tuple[str, float]]()
    for problem in problems():
        stages += compared(*problem, by_intervals, by_stages)
    for problem in joint_problems():
        joint += compared(*problem, joint_with(OnlyIntervals), joint_with(PlanningRun))
    publish("engines", [*figures_of("stages", stages), *figures_of("the joint search", joint)])


if __name__ == "__main__":
    main()
