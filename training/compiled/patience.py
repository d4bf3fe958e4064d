"""Planning that stops when the next second cannot pay."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible
from rematbench.graphs.planning import Problem, Solution, Strategy
from rematbench.graphs.simulate import simulate

FIRST = 0.5
"""Seconds of the first attempt; each later one has twice those of the one before."""
GAP = 5e-3
"""Relative gap to the bound that is good enough to train with."""
IMPROVED = 1e-3
"""An attempt that improves the cost by less, relatively, is the last."""
WIDE, SHORT = 0.02, 2.0
"""Relative gap to the bound from which an attempt of less than ``SHORT`` seconds is never the last:
on busy cores a second may pass in which the search has hardly run."""


def patiently(strategy: Strategy, problem: Problem) -> Solution:
    """A strategy's plan after one attempt, or several, each on the best plan before.

    Attempts end at a gap of :data:`GAP`, where as much time as was spent (:data:`SHORT` at least
    if the gap is :data:`WIDE`) improved the cost by less than :data:`IMPROVED`, or with
    ``problem.time_limit``.

    Args:
        strategy: any; those that take warm starts gain the most.

    Raises:
        NotApplicable, Infeasible: as the strategy does; the latter only once all time is spent,
            or with a proof.
    """
    began, seconds = planning_seconds(), min(FIRST, problem.time_limit)
    best, cost = None, inf
    while True:
        before, failed = cost, None
        try:
            found = strategy.plan(replace(problem, time_limit=seconds))
        except Infeasible as error:
            failed = error
        else:
            best, cost = _better(problem, best, found, cost)
        left = problem.time_limit - (planning_seconds() - began)
        if best is not None and (left <= 0 or failed or _is_enough(best, cost, before, seconds)):
            return best
        if failed and (failed.proven or left <= 0):
            raise failed
        if best is not None and best.plan is not None:
            problem = replace(problem, warm_starts=(best.plan,))
        seconds = min(2 * seconds, left)


def _better(
    problem: Problem, best: Solution | None, found: Solution, cost: float
) -> tuple[Solution, float]:
    """The cheaper one of two solutions, and its cost."""
    if found.plan is None:
        return found, 0.0
    new = float(simulate(problem.graph, found.plan, problem.link).cost)
    return (best, cost) if best is not None and new >= cost else (found, new)


def _is_enough(best: Solution, cost: float, before: float, seconds: float) -> bool:
    """Are a solution of ``cost``, and ``before`` an attempt of some ``seconds``, the last?"""
    gap = inf if best.bound is None else cost - best.bound
    if best.plan is None or gap <= GAP * cost:
        return True
    return cost > before * (1 - IMPROVED) and (gap <= WIDE * cost or seconds >= SHORT)
