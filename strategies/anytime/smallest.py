"""The smallest budget that has a plan."""

from __future__ import annotations

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.lp.solver import SOLVER
from rematbench.engines.stages.local_search import search
from rematbench.engines.stages.relaxation import Relaxation, merged_stages
from rematbench.engines.stages.space import Schedule, Space, check
from rematbench.strategies.base import Problem, Solution

COLUMNS = 10_000
STEPS = 16


def smallest_peak(problem: Problem) -> Solution:
    """The plan of the smallest peak that local search finds, in F and then in (9).

    Returns:
        A solution whose ``details`` hold ``peak_bound_bytes``: no plan of (9) has a lower peak,
        by the graph's floor and by linear relaxations without a solution.

    Raises:
        NotApplicable: an op overwrites what it reads.
    """
    started = planning_seconds()
    deadline = started + problem.time_limit
    graph = problem.graph
    floor = graph.floor_bytes()
    check(graph, floor)
    random = np.random.default_rng(problem.seed)
    full = Space.full(graph)
    best: Schedule[Space] = full.everything()
    for space in (full,) if graph.loss_index is None else (Space.reduced(graph), full):
        best = _leanest(space, best, floor, random, started + 0.7 * problem.time_limit)
        problem.report(f"peak {best.peak}")
    bound = _peak_bound(full, floor, best.peak, deadline)
    return Solution(
        best.plan,
        objective=float(best.peak),
        variant="smallest peak",
        solver=SOLVER,
        details={"peak_bound_bytes": bound, "proven": bound == best.peak},
    )


def _leanest(
    space: Space, best: Schedule[Space], low: int, random: np.random.Generator, deadline: float
) -> Schedule[Space]:
    """Bisect between what surely fails and the best peak."""
    for _ in range(STEPS):
        high = best.peak
        if low >= high or planning_seconds() > deadline:
            break
        budget = (low + high) // 2
        found = next(search(space.everything(), budget, random, deadline))
        if found.peak < high:
            best = found
        if found.peak > budget:
            low = budget + 1
    return best


def _peak_bound(full: Space, low: int, high: int, deadline: float) -> int:
    """The least budget whose linear relaxation has a solution."""
    for _ in range(STEPS):
        if low >= high or planning_seconds() > deadline:
            break
        budget = (low + high) // 2
        relaxation = Relaxation(full, budget, merged_stages(full, budget, COLUMNS))
        bounds = [solved.bound for solved in relaxation.linear(deadline, lambda: False)]
        if bounds and bounds[-1] == np.inf:
            low = budget + 1
        elif planning_seconds() < deadline:
            high = budget
    return low
