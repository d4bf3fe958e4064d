"""Recomputation with as much more room, at each moment, as the link can make.

What the link has carried out until an op runs first, and can still carry in after it, is room that
recomputation need not make. The search on intervals finds the cheapest schedule with a share of
that room, and the host takes what the schedule needs beyond the budget. The largest share for which
compute waits for no copy is sought by halving: values leave and come back whole, so that it is less
than all.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import RematbenchError
from rematbench.engines.bridges.search import BridgeSearch
from rematbench.engines.bridges.windows import carried
from rematbench.engines.candidates import cost_of_once
from rematbench.engines.intervals.memory import peak
from rematbench.engines.intervals.moments import MomentWindow
from rematbench.engines.intervals.net import IntervalState, Net, follow
from rematbench.engines.intervals.planner import IntervalSearch
from rematbench.engines.plans.stages import FloatArray, needed, recomputations
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import simulate

FIRST, STEP, MOST = 0.8, 0.15, 1.25
"""The first share of the room, by how much it grows while that works, and the largest one."""
EVEN = (0.4, 0.7, 1.0, 1.3)
"""Shares of the most room, as there is around the loss, that are given at all moments alike."""
CLOSE = 0.02
"""Shares that are nearer than this are not told apart."""
STALL = 0.02
"""Waiting, as a share of what is recomputed, up to which a share of the room works."""
STARTS = 3
"""Schedules that the next one is made from."""
DRAWS, CHOOSING = 24, 0.25
"""Choices of gaps that are tried for a schedule, until one waits for nothing; more in so much of
the time that the schedule had."""


class RoomSearch(IntervalSearch):
    """A search that begins from schedules for more room, or for less, and proves little."""

    def take_warm_starts(self) -> None:
        """Each repaired where it needs too much; else given back what there is room for."""
        for plan in self.problem.warm_starts:
            state = self.empty()
            follow(self.net, state, recomputations(self.graph, plan))
            if peak(state) > self.budget:
                self.mend(state)
            else:
                self.see(state)
                self.sweep(state)

    def prove(self, levels: IntArray) -> None:
        """From the fullest moment on: a bound of these schedules is no bound of plans."""
        fullest, count = int(np.argmax(levels)), len(self.net.cost)
        if self.by_blocks:
            self.window = MomentWindow(fullest, count, 0.0, None)
            return
        self.window = self._solved(fullest, count, self.deadline)
        self.proven(self.window.cost, "one moment: its memory's price in recomputation")

    def first(self, empty: IntervalState) -> Iterator[None]:
        """As ever, unless that takes long and there is a schedule."""
        return iter(()) if self.found and self.by_blocks else super().first(empty)

    def anneal(self) -> Iterator[None]:
        """From the schedule that there is, first."""
        if self.problem.warm_starts and self.found:
            yield from self.hard((self.deadline - planning_seconds()) / 2)
        yield from super().anneal()


@dataclass
class Rooms:
    """Schedules with shares of the link's room, handed to a search for copies.

    Args:
        search: takes them; its problem has a budget and a link both ways.
        time: a makespan; the room is what the link carries in it.
        gap: relative gap at which a schedule is good enough.

    Attributes:
        known: plans without copies, from which others are made.
        worked: the largest share of the room that works.
    """

    search: BridgeSearch
    time: float
    gap: float
    known: tuple[Plan, ...] = ()
    worked: float = 0.0

    def __post_init__(self) -> None:
        graph = self.search.problem.graph
        self._net = Net.of(graph)
        # Until a schedule is known: as if all that is computed again were so in the backward pass.
        cost = self._net.cost
        rest = np.cumsum(cost[::-1])[::-1]
        loss = graph.loss_index
        backward = float(rest[np.searchsorted(needed(graph), loss or 0)])
        slack = max(0.0, self.time - float(cost.sum()))
        self._later: FloatArray = slack * np.minimum(1.0, rest / max(backward, 1e-300))

    def at(self, share: float, seconds: float) -> bool:
        """Does a share of the room work, with the best schedule that is found for it?

        Args:
            seconds: to find it.
        """
        plan = self.scheduled(self._room(share), seconds)
        if plan is None:
            return False
        self.known = (plan, *self.known)[:STARTS]
        works = self._works(plan, planning_seconds() + CHOOSING * seconds)
        if works:
            self.worked = max(self.worked, share)
            self._later = again_after(self.search.problem.graph, plan)
        return works

    def halved(self, seconds: float, deadline: float) -> Iterator[None]:
        """Larger shares while they work, smaller ones where they do not.

        Args:
            seconds: for the schedule of a share.
            deadline: by :func:`~rematbench.base.clock.planning_seconds`.
        """
        high, share = inf, self.worked + STEP if self.worked else FIRST
        while share - self.worked > CLOSE and planning_seconds() < deadline:
            if self.at(share, min(seconds, deadline - planning_seconds())):
                share = min(share + STEP, MOST) if high == inf else (share + high) / 2
            else:
                high = share
                share = (self.worked + high) / 2
            yield

    def even(self, seconds: float) -> Iterator[None]:
        """More room at all moments alike, for where no plan is known: what comes of it may fit.

        Args:
            seconds: for each schedule.
        """
        for share in EVEN:
            room = self._room(share)
            plan = self.scheduled(np.full_like(room, room.max()), seconds)
            if plan is not None:
                self.search.take(plan, DRAWS)
            yield

    def scheduled(self, room: IntArray, seconds: float) -> Plan | None:
        """The cheapest schedule that is found with some room per op; None: there is none."""
        problem = self.search.problem
        assert problem.budget is not None
        most = int(room.max())
        asked = replace(
            problem,
            time_limit=seconds,
            budget=problem.budget + most,
            warm_starts=self.known,
            report=lambda words: None,
            hand_over=lambda solution: None,
        )
        now, budget = planning_seconds(), problem.budget + most
        inner = RoomSearch(asked, budget, now, self.gap, taken=most - room)
        try:
            inner.run()
        except RematbenchError:
            return None
        return inner.progress.plan

    def _room(self, share: float) -> IntArray:
        whole = carried(self.search.problem, self._net, self.time, self._later)
        found: IntArray = (share * whole).astype(np.int64)
        return found

    def _works(self, plan: Plan, deadline: float) -> bool:
        """Does compute wait for hardly anything, with one of some choices of gaps?

        Or is it slower than the best plan even so? Then more room is wanted, too.
        """
        graph = self.search.problem.graph
        cost = simulate(graph, plan).cost
        good = cost + STALL * (cost - cost_of_once(graph))
        found = self.search.take(plan, DRAWS, good, deadline)
        return found <= good or cost >= self.search.progress.cost


def again_after(graph: Graph, plan: Plan) -> FloatArray:
    """Per needed op, what a plan computes again when the op has begun to run first."""
    codes = plan.codes(graph)
    computes = codes[codes >= 0]
    ops, cost = graph.tables.op_of[computes], graph.tables.cost[computes]
    first = np.unique(ops, return_index=True)[1]
    once = np.zeros(len(ops), dtype=np.bool_)
    once[first] = True
    again = np.where(once, 0.0, cost)
    found: FloatArray = (again.sum() - np.cumsum(again))[first]
    return found
