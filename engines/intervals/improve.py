"""The best schedule so far, and what makes a better one of it: repairs, annealing, local search."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import RematbenchError
from rematbench.engines.anytime import Progress
from rematbench.engines.intervals.memory import END, EXCESS, REPEATS, peak, profile, watch
from rematbench.engines.intervals.moves import EDITS, Dropping, Scratch, repair, scratch
from rematbench.engines.intervals.net import (
    IntervalState,
    Net,
    follow,
    plan_of,
    start,
)
from rematbench.engines.intervals.search import anneal, sweep
from rematbench.engines.intervals.soft import Softening, soften
from rematbench.engines.plans.stages import recomputations
from rematbench.graphs.ir import IntArray
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate

LARGE = 2_000
"""Ops from which fewer moments are looked at, and what to keep is a matter of blocks."""
SLICE = 0.1
"""Seconds of search between looks at the clock."""
SAMPLES, MANY = 48, 256
"""Ops that a repair looks at per drop, in local search and for a first schedule."""
DROPS, SWEPT, LEVELS = 64, 2_000, 50
"""Drops, and recomputations to give back, between looks at the clock; steps of greedy drops."""
PATIENCE = 0.2
"""Share of the time limit that one repair may take."""
RESTART = 0.12
"""Share of the time limit that the first annealing takes; each next one is half as long again."""


class Improver:
    """A schedule within a budget, at any size, and how to make a better one.

    Args:
        problem: any graph whose ops overwrite nothing; warm starts are taken.
        budget: in bytes.
        started: by :func:`~rematbench.base.clock.planning_seconds`.
        gap: relative gap that is good enough.
        most: computes of an op that a schedule may have; 0 for any number.
        taken: bytes of the budget, per stage, that a schedule cannot have.

    Attributes:
        progress: the incumbent's plan, the bound, and when what was found.
        net: the graph.
        resident: bytes that are always there.
        least: the cost of every op once.
    """

    def __init__(
        self,
        problem: Problem,
        budget: int,
        started: float,
        gap: float,
        most: int = 0,
        taken: IntArray | None = None,
    ) -> None:
        self.problem, self.graph, self.budget = problem, problem.graph, budget
        self.deadline = started + problem.time_limit
        self.progress = Progress(started, gap, problem.report, hand_over=problem.hand_over)
        self.net = Net.of(self.graph, most)
        self.resident = self.graph.resident_bytes
        self.taken = np.zeros(len(self.net.cost), dtype=np.int64) if taken is None else taken
        self.least = float(self.net.cost.sum())
        self._notes: Scratch = scratch(len(self.net.cost), problem.seed)
        self._none: IntArray = np.zeros(1, dtype=np.int64)
        self._cost = inf
        self._rows: IntArray | None = None
        self._leanest: IntervalState | None = None

    def empty(self) -> IntervalState:
        """Every op once."""
        return start(self.net, self.resident + self.taken)

    @property
    def found(self) -> bool:
        """Is there a schedule?"""
        return self._rows is not None

    def take_warm_starts(self) -> None:
        """Take the plans that there are already."""
        for plan in self.problem.warm_starts:
            self._take(plan)

    def _take(self, plan: Plan) -> IntervalState:
        """See a plan, as a schedule and as it is: it may be leaner than every schedule."""
        state = self.empty()
        follow(self.net, state, recomputations(self.graph, plan))
        self.see(state)
        if not self.net.most:
            self._offer(plan)
        return state

    def take_known(self) -> Iterator[None]:
        """Take what quick strategies know, as it is or repaired."""
        for strategy in self.problem.starts:
            seconds = PATIENCE * (self.deadline - planning_seconds())
            try:
                plan = strategy.plan(Problem(self.graph, self.budget, max(0.0, seconds))).plan
            except RematbenchError:
                continue
            assert plan is not None
            state = self._take(plan)
            if peak(state) > self.budget:
                self.mend(state)
            else:
                self.sweep(state)
            yield

    def mend(self, state: IntervalState) -> bool:
        """Repair, give back, and see what comes of it."""
        limit = self._cost if self._cost < inf else 8 * self.least + 1
        if not self._repair(state, self.budget, limit, self._none):
            return False
        self.see(state)
        self.sweep(state)
        return True

    def _repair(self, state: IntervalState, level: int, limit: float, crowd: IntArray) -> bool:
        """Drop until ``level`` holds; False where it cannot be, or time is up."""
        rules, goes_on = Dropping(level, MANY, 0.0, 0.0, crowd), True
        until = min(self.deadline, planning_seconds() + PATIENCE * self.problem.time_limit)
        while peak(state) > level and goes_on and planning_seconds() < until:
            self.progress.rest()
            self._notes.counts[EDITS] = 0
            goes_on = repair(self.net, state, self._notes, rules, limit, DROPS)
        self.progress.see(int(peak(state)))
        return bool(peak(state) <= level)

    def sweep(self, state: IntervalState) -> None:
        """Give back what there is room for."""
        for begin in range(len(self.net.cost), int(state.counts[END]), SWEPT):
            if planning_seconds() > self.deadline:
                break
            sweep(self.net, state, self._notes, self.budget, begin, begin + SWEPT)
        self.see(state)

    def drop_greedily(self, state: IntervalState) -> None:
        """Drop what costs least per byte and crowded stage, level by level."""
        highest = int(peak(state))
        step = max(1, (highest - self.budget) // LEVELS)
        while peak(state) > self.budget:
            crowd = np.concatenate([[0], np.cumsum(profile(state) > self.budget)])
            level = max(self.budget, int(peak(state)) - step)
            if not self._repair(state, level, 8 * self.least + 1, crowd):
                return
        self.see(state)
        self.sweep(state)

    def see(self, state: IntervalState) -> None:
        """A schedule: is it the best?"""
        highest = int(peak(state))
        self.progress.see(highest)
        if highest > self.budget or state.cost[0] >= self._cost * (1 - 1e-12):
            return
        plan = plan_of(self.graph, state)
        if self._offer(plan):
            self._rows = recomputations(self.graph, plan)

    def _offer(self, plan: Plan) -> bool:
        trace = simulate(self.graph, plan)
        self.progress.see(trace.peak_bytes)
        fits = trace.peak_bytes <= self.budget
        if not fits or not self.progress.offer(trace.cost, plan):
            return False
        self._cost = trace.cost
        return True

    def _seen(self, rows: IntArray) -> None:
        """The best schedule of a kernel, as rows."""
        state = self.empty()
        follow(self.net, state, rows)
        self.see(state)

    def anneal(self) -> Iterator[None]:
        """Annealing, again and again and longer each time; beside local search in large graphs."""
        seconds, number = max(1.0, RESTART * self.problem.time_limit), 0
        only_this = bool(self.net.most) or self.graph.loss_index is None
        pays = True  # in large graphs mostly not
        while True:
            hard = self._rows is not None and (number % 2 == 1 or not pays)
            hard = hard and not self.net.most  # few of its moves are left
            if self._rows is None and number == 2 and only_this:
                self.drop_greedily(self.empty())
            before = self._cost
            seconds = min(seconds, max(0.0, self.deadline - planning_seconds()))  # cooled by then
            if hard:
                yield from self.hard(seconds)
            else:
                yield from self.soft(seconds, self._leanest)
                pays = len(self.net.cost) <= LARGE or self._cost < before
            seconds, number = seconds * 1.5, number + 1

    def _begin(self) -> IntervalState:
        state = self.empty()
        if self._rows is not None:
            follow(self.net, state, self._rows)
        return state

    def hard(self, seconds: float) -> Iterator[None]:
        """Local search within the budget from the best schedule, cooling."""
        state = self._begin()
        best = np.empty((len(state.op), 2), dtype=np.int64)
        if not state.counts[REPEATS]:
            yield
            return
        typical = (state.cost[0] - self.least) / state.counts[REPEATS]
        began, steps = planning_seconds(), 1
        share = 0.0
        while share < 1:
            now = planning_seconds()
            heat = typical * (1 - share)
            cost, rows, _ = anneal(
                self.net, state, self._notes, self.budget, steps, heat, SAMPLES, best
            )
            if cost < self._cost * (1 - 1e-12):
                self._seen(best[:rows])
            steps = _paced(steps, planning_seconds() - now)
            yield
            share = (planning_seconds() - began) / max(seconds, 1e-9)

    def soft(self, seconds: float, state: IntervalState | None = None) -> Iterator[None]:
        """Annealing that may break the budget at a price, which follows how often it does.

        Args:
            seconds: to spend.
            state: to begin with; None is every op once.
        """
        if state is None:
            state = self.empty()
        else:
            state = IntervalState._make(each.copy() for each in state)
        watch(state, self.budget)
        best = np.empty((len(state.op), 2), dtype=np.int64)
        excess = float(state.counts[EXCESS]) or 1.0
        price = 0.2 * self.least / excess
        typical = 4 * float(np.median(self.net.cost)) or self.least / len(self.net.cost)
        began, steps = planning_seconds(), 100
        share = 0.0
        while share < 1:
            now = planning_seconds()
            heat = typical * 0.001**share
            rules = Softening(self.budget, steps, heat, price)
            _, rows, held = soften(self.net, state, self._notes, rules, best, self._cost)
            if rows >= 0:
                self._seen(best[:rows])
            price *= 1.1 if held < 0.2 * steps else 1 / 1.1 if held > 0.6 * steps else 1.0
            steps = _paced(steps, (planning_seconds() - now) * 10)
            yield
            share = (planning_seconds() - began) / max(seconds, 1e-9)


def _paced(steps: int, seconds: float) -> int:
    """How many steps take about a slice of time."""
    return max(1, min(2 * steps, int(steps * SLICE / max(seconds, 1e-6))))
