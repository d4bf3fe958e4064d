"""hybrid: our own search for the least makespan where values may wait on the host."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.engines.anytime import Progress
from rematbench.engines.bridges.bound import makespan_bound, overwrites
from rematbench.engines.bridges.rooms import FIRST, Rooms
from rematbench.engines.bridges.search import BridgeSearch
from rematbench.engines.bridges.windows import window_bound
from rematbench.engines.lp.solver import SOLVER
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution, Traits, check_share, without_plan
from rematbench.strategies.registry import make, quick_planners

LARGE = 500
"""Ops above which recomputation with the link's room comes first, with most of the time."""
ALONE, ROOMS = 0.2, 0.9
"""Of the time: for recomputation alone at the budget in smaller graphs; when recomputation with the
link's room ends."""
WIDE, WIDER, EACH = 0.5, 0.25, 0.1
"""Of the time, at most, for a share of that room: in large graphs the first and each other one; in
smaller ones."""
END = 0.95
"""Of the time, when it ends."""
PROOF = 0.1
"""Of the time, at most, for the bound by linear programs."""
OFFLOADING = ("offload_all", "offload_hidden", "offload_dots")
"""Rules that offload, whose plans the search begins from, too."""
PLANNERS = (("auto_perf", 0.05), ("pofo", 0.1), ("poet", 0.05))
"""Planners that do so within a budget, and the most of the time that each may take."""


@dataclass(frozen=True)
class Hybrid:
    """Keep, recompute or offload, in one plan, with a bound.

    It begins from checkpoint-all, from practice's rules, from other planners with a host and from
    recomputation alone, at the budget in graphs that are not large and with the link's room in all,
    and is never worse than these plans. Each of them has a share of the time: with all of it, on a
    large graph, one may be better (docs/papers/hybrid.md).

    Attributes:
        gap: relative gap (cost - bound) / cost at which to stop.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True, offloads=True)
    gap: float = 1e-4

    def __post_init__(self) -> None:
        check_share("gap", self.gap)

    def warm_up(self) -> None:
        """Compile the kernels, however long that takes."""
        graph = unit_chain(8)
        for name in ("anytime", "pofo"):
            make(name).warm_up()
        problem = Problem(graph, 7, link=Link(1.0, 1.0))
        search = BridgeSearch(problem, Progress(planning_seconds(), 0.0, lambda words: None))
        search.take(program_order(graph))
        for _ in range(8):
            search.step()
        window_bound(problem, makespan_bound(graph, 7, problem.link), inf)

    def plan(self, problem: Problem) -> Solution:
        """The best plan, and a bound of every plan in program order with that link.

        Raises:
            Infeasible: the budget is below the floor.
            Stopped: none was found within the budget.
        """
        started = planning_seconds()
        graph, order = problem.graph, program_order(problem.graph)
        bound = makespan_bound(graph, problem.budget, problem.link)
        if problem.holds(simulate(graph, order).peak_bytes):
            return Solution(order, bound, "any")
        floor, why = graph.floor()
        if problem.budget is not None and problem.budget < floor:
            reason = f"{why} alone must have {floor} bytes, {graph.resident_bytes} of them "
            raise Infeasible(f"{reason}residents; the budget is {problem.budget}", proven=True)
        progress = Progress(started, self.gap, problem.report, hand_over=problem.hand_over)
        progress.bound = bound
        search = BridgeSearch(problem, progress)
        alone: list[float] = []
        with progress.interruptible():
            for _ in self._moves(search, order, started, alone):
                spent = planning_seconds() - started
                if progress.closed() or spent > END * problem.time_limit or progress.interrupted:
                    break
        if progress.plan is None:
            raise without_plan(problem, None, progress.leanest)
        least = min(alone, default=inf)
        facts = {"plans_tried": search.tried, "recompute_only_cost": least if least < inf else None}
        details: dict[str, Any] = {**progress.details(), **facts}
        bound = min(progress.bound, progress.cost)
        return Solution(progress.plan, bound, "any", details=details, solver=SOLVER)

    def _moves(
        self, search: BridgeSearch, order: Plan, started: float, alone: list[float]
    ) -> Iterator[None]:
        """The search's steps: first plans, recomputation alone, both, moves."""
        problem = search.problem
        can_copy = problem.link.both and not overwrites(problem.graph)
        for first in _firsts(problem, order) if can_copy else ():
            search.take(first)
            yield
        least, limit = search.progress.bound, PROOF * problem.time_limit
        proven = window_bound(problem, least, planning_seconds() + limit)
        search.progress.raise_bound(proven)
        yield
        rooms = Rooms(search, proven, self.gap) if can_copy else None
        yield from self._recomputed(search, rooms, started, alone)
        while can_copy:
            search.step()
            yield

    def _recomputed(
        self, search: BridgeSearch, rooms: Rooms | None, started: float, alone: list[float]
    ) -> Iterator[None]:
        """Recomputation alone, and with the link's room where there is a link."""
        problem, limit = search.problem, search.problem.time_limit
        large = len(problem.graph.ops) > LARGE
        if rooms is not None and large:
            rooms.at(FIRST, WIDE * limit)
            yield
        elif search.progress.cost > makespan_bound(problem.graph, problem.budget, Link()):
            known = _alone(problem, started, END if rooms is None else ALONE)
            alone.append(search.offer(known))
            if rooms is not None and known is not None:
                search.take(known)
                rooms.known = (known,)
            yield
        if rooms is None:
            return
        for _ in rooms.even(EACH * limit) if search.progress.plan is None else ():
            yield
        each = WIDER if large else EACH
        yield from rooms.halved(each * limit, started + ROOMS * limit)


def _alone(problem: Problem, started: float, share: float) -> Plan | None:
    """Recomputation alone, in a share of the time, as far as that is left."""
    left = END * problem.time_limit - (planning_seconds() - started)
    seconds = max(0.0, min(share * problem.time_limit, left))
    return _start(make("anytime"), replace(problem, time_limit=seconds))


def _firsts(problem: Problem, order: Plan) -> Iterator[Plan]:
    """Checkpoint-all, and the plans of rules and of planners that need little time."""
    yield order
    anything = replace(problem, budget=None)
    rules = [(make(name), anything, 1 / 40) for name in OFFLOADING]
    quick = [(each, problem, 1 / 40) for each in quick_planners()]
    others = [(make(name), problem, share) for name, share in PLANNERS]
    for strategy, asked, share in (*rules, *quick, *others):
        plan = _start(strategy, replace(asked, time_limit=share * problem.time_limit))
        if plan is not None:
            yield plan


def _start(strategy: Any, problem: Problem) -> Plan | None:
    """A strategy's plan, or None where it has none."""
    quiet = replace(problem, report=lambda words: None, hand_over=lambda solution: None)
    try:
        found: Plan | None = strategy.plan(quiet).plan
    except (Infeasible, NotApplicable):
        return None
    return found
