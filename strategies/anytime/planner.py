"""anytime: our own search, on schedules by stages and on intervals, with bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Literal

from rematbench.base.clock import planning_seconds
from rematbench.engines.intervals import planner as intervals
from rematbench.engines.intervals.planner import TRIVIAL
from rematbench.engines.lp.solver import SOLVER
from rematbench.engines.stages.search import EXACT_TOLERANCE, StageSearch, is_solvable
from rematbench.engines.stages.space import Space, check
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.smallest import smallest_peak
from rematbench.strategies.base import (
    BoundOf,
    Problem,
    Solution,
    Traits,
    available_threads,
    check_choice,
    check_share,
    cost_of_once,
    without_plan,
)
from rematbench.strategies.registry import quick_planners

LARGE, WIDE = 1_000, 120
"""Needed ops from which schedules are searched by intervals; the same without a backward pass,
where stages are as many as ops."""


@dataclass(frozen=True)
class Anytime:
    """Our own search for the cheapest plan within a budget, with a proven bound.

    From the first second on it has a plan, and improves it and a lower bound until they meet or
    time is up: docs/papers/anytime.md explains how.

    Attributes:
        gap: relative gap (cost - bound) / cost at which to stop.
        minimise: None for the cost; ``peak`` for the smallest budget that has a plan (the budget
            plays no role then).
        threads: 1, or 2 to search while the solver works; None: 2 where the job has as many.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    gap: float = 1e-4
    minimise: Literal["peak"] | None = None
    threads: int | None = None

    def __post_init__(self) -> None:
        check_choice("minimise", self.minimise, (None, "peak"))
        check_choice("threads", self.threads, (None, 1, 2))
        check_share("gap", self.gap)

    def warm_up(self) -> None:
        """Compile the kernels, however long that takes."""
        for part in self.warm_ups():
            part()

    def warm_ups(self) -> tuple[Callable[[], None], ...]:
        """The kernels of either search, to be compiled side by side."""
        return partial(intervals.warm_up, quick_planners()), self._warm_up_stages

    def _warm_up_stages(self) -> None:
        beside = replace(self, threads=2)  # with one, search has a share of the time for itself
        beside._by_stages(Problem(unit_chain(6), None, 3600.0), 4, planning_seconds())

    def plan(self, problem: Problem) -> Solution:
        """The plan, and a bound of the space that ``bound_of`` names.

        Raises:
            NotApplicable: an op overwrites what it reads.
            Infeasible: (9) has none.
            Stopped: none was found in time.
        """
        if self.minimise == "peak":
            return smallest_peak(problem)
        started = planning_seconds()
        problem = replace(problem, starts=quick_planners())
        order = program_order(problem.graph)
        trace = simulate(problem.graph, order)
        if problem.budget is None or trace.peak_bytes <= problem.budget:
            least = cost_of_once(problem.graph)
            return Solution(order, least, "any")
        check(problem.graph, problem.budget)
        if is_large(problem.graph, problem.budget):
            return self._by_intervals(problem, problem.budget, started)
        return self._by_stages(problem, problem.budget, started)

    def _by_intervals(self, problem: Problem, budget: int, started: float) -> Solution:
        search = intervals.IntervalSearch(problem, budget, started, self.gap)
        with search.progress.interruptible():
            search.run()
        return search.solution(None)

    def _by_stages(self, problem: Problem, budget: int, started: float) -> Solution:
        threads = self.threads or min(2, available_threads())
        search = StageSearch(problem, budget, started, self.gap, threads)
        with search.progress.interruptible():
            search.run()
        if search.progress.plan is None:
            proven = "Checkmate's problem (9)" if search.proven_infeasible else None
            advice = ", or ask for strategy.minimise=peak"
            raise without_plan(problem, proven, search.progress.leanest, advice, ("9",))
        bound, bound_of = _named_bound(search, problem.graph)
        return Solution(
            search.progress.plan,
            bound,
            bound_of,
            solver=SOLVER,
            details={**search.details(), "bound_by": _how(bound, search, problem.graph)},
        )


def _how(bound: float, search: StageSearch, graph: Graph) -> str:
    """How a bound of the fast search was found."""
    if bound <= cost_of_once(graph) * (1 + EXACT_TOLERANCE):
        return TRIVIAL
    from_moments = bound <= search.every * (1 + EXACT_TOLERANCE)
    return search.bound_by if from_moments else "programs over groups of stages"


def is_large(graph: Graph, budget: int) -> bool:
    """Are programs over all stages out of reach?"""
    count = int(graph.needed_ops().sum())
    if graph.loss_index is not None or count <= WIDE:
        return count > LARGE
    return not is_solvable(Space.late(graph, budget))


def _named_bound(search: StageSearch, graph: Graph) -> tuple[float, BoundOf]:
    """The bound to print, and what it bounds.

    That of F is as good as that of (9) only for plans in F; where both are as high, or that of (9)
    is within the gap, too, it says more. So does that of every plan, the only one for a plan that
    is no schedule.
    """
    least, reduced = cost_of_once(graph), search.bounds.get("F", 0.0)
    if search.best is None or search.is_outside:
        return max(least, search.every if search.has_one_way else 0.0), "any"
    full = max(least, search.every, search.bounds.get("9", 0.0))
    says_more = full >= reduced * (1 - EXACT_TOLERANCE) or search.progress.closed(full)
    if not says_more and search.best.cost >= reduced:
        return reduced, "F"
    of_every_plan = full <= least or (search.has_one_way and full <= search.every)
    return full, "any" if of_every_plan else "9"
