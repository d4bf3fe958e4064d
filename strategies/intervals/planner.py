"""Schedules and bounds for graphs that are too large, or too wide, for programs of all stages.

First a bound: what the budget costs from the fullest moments on (:mod:`moments`). What that
keeps in memory makes the first schedule; then annealing, local search, until the gap closes or
time is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from rematbench.graphs.errors import Infeasible
from rematbench.graphs.ir import IntArray
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import simulate
from rematbench.graphs.synthetic import unit_chain
from rematbench.strategies.base import Problem, Solution
from rematbench.strategies.intervals.blocks import Blocks
from rematbench.strategies.intervals.edits import resume
from rematbench.strategies.intervals.memory import peak, profile, watch
from rematbench.strategies.intervals.moments import (
    Window,
    best_windows,
    crowded_moments,
    window,
)
from rematbench.strategies.intervals.moves import Scratch, repair, scratch
from rematbench.strategies.intervals.net import (
    Net,
    State,
    follow,
    plan_of,
    recomputations,
    start,
)
from rematbench.strategies.intervals.search import anneal, sweep
from rematbench.strategies.intervals.segments import segmentations
from rematbench.strategies.intervals.soft import soften
from rematbench.strategies.scheduling.anytime import Progress
from rematbench.strategies.scheduling.solver import SOLVER
from rematbench.strategies.stages import BoolArray

TRIVIAL = "trivial: every op once"
ROOMS = (1.0, 0.99, 0.98, 0.96, 0.93, 0.89, 0.84, 0.78, 0.7, 0.6)
"""Shares of the budget for which the program of one moment is asked what to keep: it does not
know what recomputing needs near that moment."""
MOMENTS, FEW = 12, 4
"""Moments between which windows are looked at; fewer in large graphs."""
LARGE, HUGE = 2_000, 20_000
"""Ops from which fewer moments are looked at, and what to keep is a matter of blocks; ops from
which there is no program of the whole graph."""
SLICE = 0.1
"""Seconds of search between looks at the clock."""
SAMPLES, MANY = 48, 256
"""Ops that a repair looks at per drop, in local search and for a first schedule."""
DROPS, SWEPT, LEVELS = 64, 2_000, 50
"""Drops, and recomputations to give back, between looks at the clock; steps of greedy drops."""
HALVINGS = 3
"""Shares that are tried between one that fits and one that does not."""
PATIENCE = 0.2
"""Share of the time limit that one repair may take."""
RESTART = 0.12
"""Share of the time limit that the first annealing takes; each next one is half as long again."""


def warm_up() -> None:
    """Compile the kernels."""
    graph = unit_chain(8)
    search = IntervalSearch(Problem(graph, 4, time_limit=1.0), 4, perf_counter(), 0.0)
    search.deadline = inf
    empty = start(search.net, search.resident)
    for _ in search.first(empty):
        pass
    search.window = window(search.net, search.resident, 6, 8, len(search.net.cost), inf)
    search._keeps(1.0, mend=True)
    search._greedy(empty)
    for steps in (search._soft(0.0), search._hard(0.0)):
        for _ in steps:
            pass


class IntervalSearch:
    """A search for the cheapest schedule within a budget, at any size.

    Args:
        problem: any graph whose ops overwrite nothing; warm starts are taken.
        budget: in bytes.
        started: on the clock of ``perf_counter``.
        gap: relative gap that is good enough.

    Attributes:
        progress: the incumbent's plan, the bound, and when what was found.
        bound_by: how the bound was found.
        window: of the best moment, or None.
        by_blocks: do blocks say what to keep, or a program of the whole graph?
    """

    def __init__(self, problem: Problem, budget: int, started: float, gap: float) -> None:
        self.problem, self.graph, self.budget = problem, problem.graph, budget
        self.deadline = started + problem.time_limit
        self.progress = Progress(started, gap, problem.report)
        self.net = Net.of(self.graph)
        self.resident = self.graph.resident_bytes
        self.least = float(self.net.cost.sum())
        self.progress.bound = self.least
        self.bound_by = TRIVIAL
        self.window: Window | None = None
        self._notes: Scratch = scratch(len(self.net.cost), problem.seed)
        self._none: IntArray = np.zeros(1, dtype=np.int64)
        self.by_blocks = len(self.net.cost) > LARGE
        self._closed = False
        self._cost = inf
        self._rows: IntArray | None = None

    def room(self, moment: int) -> int:
        """Bytes that an op leaves for what earlier ones have written, what it reads included."""
        fixed = self.net.written[moment] + self.net.workspace[moment]
        return self.budget - self.resident - int(fixed)

    def run(self, polish: bool = True) -> None:
        """Bound, first schedules, annealing.

        Args:
            polish: go on after the first schedules.
        """
        self._known()
        empty = start(self.net, self.resident)
        levels = np.asarray(profile(empty))
        self.prove(levels)
        if self.progress.bound == inf:
            return
        for _ in self.first(empty):
            if self._over():
                return
        for _ in self.anneal() if polish else ():
            if self._over():
                return

    def solution(self, variant: str) -> Solution:
        """The best plan.

        Raises:
            Infeasible: there is none.
        """
        progress = self.progress
        if progress.plan is None:
            proven = progress.bound == inf
            raise Infeasible(
                f"no plan within {self.budget} bytes "
                + (
                    "exists"
                    if proven
                    else f"was found in {self.problem.time_limit:g} s; give more time or budget"
                ),
                smallest_peak_found=progress.leanest,
                proven=proven,
            )
        ways = {len(op.implementations) for op in self.graph.ops}
        return Solution(
            progress.plan,
            min(progress.bound, progress.cost),
            "any" if ways == {1} else "9",
            variant=variant,
            solver=SOLVER,
            seconds=perf_counter() - progress.started,
            details=self.details(),
        )

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        return {**self.progress.details(), "bound_by": self.bound_by}

    def _over(self) -> bool:
        self.progress.rest()
        return perf_counter() > self.deadline or self.progress.closed()

    def _known(self) -> None:
        """Take the plans that there are already."""
        for plan in self.problem.warm_starts:
            state = start(self.net, self.resident)
            follow(self.net, state, recomputations(self.graph, plan))
            self.see(state)

    def prove(self, levels: IntArray) -> None:
        """A bound: from the fullest moment on, then by windows."""
        count, net = len(self.net.cost), self.net
        fullest = int(np.argmax(levels))
        if self.by_blocks:
            self.prove_by_blocks(fullest)
        if count > HUGE:
            return
        self.window = window(
            net, self.resident, self.budget, fullest, count, self.deadline, self.problem.seed
        )
        self.proven(self.window.cost, "one moment: its memory's price in recomputation")
        if self.progress.bound == inf:
            return
        now = perf_counter()
        until = now + min(0.1 * max(0.0, self.deadline - now), 60.0)
        many = FEW if count > LARGE else MOMENTS
        moments = crowded_moments(levels, self.budget, many)
        total, found = best_windows(
            net, self.resident, self.budget, moments, until, self.problem.seed
        )
        self.proven(total, f"windows of the timeline: {len(found)}")
        if found and found[0].cost > self.window.cost and not self.by_blocks:
            self.window = found[0]

    def prove_by_blocks(self, fullest: int) -> None:
        """A bound: those of the blocks before a moment, added up."""
        self.window = Window(fullest, len(self.net.cost), 0.0, None)
        kinds, count = len(self.blocks.kinds), len(self.blocks.kind_of)
        bound = self.blocks.bound(self.room(fullest))
        self.proven(bound, f"blocks' bounds added up: {count} blocks of {kinds} kinds")

    def proven(self, cost: float, how: str) -> None:
        """So much recomputation is unavoidable."""
        bound = float(self.least + cost)
        if bound > self.progress.bound:
            self.progress.raise_bound(bound)
            self.bound_by = how

    def first(self, empty: State) -> Iterator[None]:
        """Schedules that keep what the bound's program keeps; else of annealing, or greedy drops.

        The program does not know what recomputing needs near its moment: it is asked for less
        than the budget until its schedule fits, and then for a little more again.
        """
        if len(self.net.cost) <= LARGE:
            yield from self._soft(min(1.0, 0.05 * self.problem.time_limit))
        if self.graph.loss_index is None and len(self.net.cost) <= LARGE:
            return  # without a loss there is no one moment that all must pass: anneal
        for closed in (False, True) if self.by_blocks else (False,):
            self._closed = closed
            yield from self._shares()
            if self._rows is not None:
                break
        yield from self._cut(empty)
        if self._rows is None and self.window is not None:
            self._keeps(ROOMS[2], mend=True)
            yield
        if self._rows is None:
            self._greedy(empty)
            yield

    def _shares(self) -> Iterator[None]:
        """The largest share of the budget for which what the program keeps fits."""
        fits, fails = 0.0, 1.0
        for share in ROOMS if self.window is not None else ():
            if self._keeps(share):
                fits = share
                break
            fails = share
            yield
        for _ in range(HALVINGS if fits else 0):
            share = (fits + fails) / 2
            if self._keeps(share):
                fits = share
            else:
                fails = share
            yield
        if fits and fails > fits:
            self._keeps(fails, mend=True)
            yield

    def _cut(self, empty: State) -> Iterator[None]:
        """Schedules of segments; the leanest is repaired where none fits."""
        moment = int(np.argmax(profile(empty)))
        leanest: State | None = None
        for kept in segmentations(self.net, moment):
            state = start(self.net, self.resident)
            if not resume(self.net, state, moment, kept):
                continue
            self.progress.see(int(peak(state)))
            if peak(state) <= self.budget:
                self.see(state)
                self._sweep(state)
            if leanest is None or peak(state) < peak(leanest):
                leanest = state
            yield
        if self._rows is None and leanest is not None:
            self._mend(leanest)
            yield

    def _keeps(self, share: float, mend: bool = False) -> bool:
        """Does a schedule by the program, with a share of the budget, fit?"""
        state = self._kept(share)
        if state is None:
            return False
        self.progress.see(int(peak(state)))
        if peak(state) <= self.budget:
            self.see(state)
            self._sweep(state)
            return True
        return mend and self._mend(state)

    @cached_property
    def blocks(self) -> Blocks:
        """Before the best moment."""
        assert self.window is not None
        return Blocks.of(self.net, self.window.first)

    def _kept(self, share: float) -> State | None:
        """A schedule that keeps at the best moment what a share of the budget has room for."""
        assert self.window is not None
        kept = self.keeping(self.window.first, share)
        if kept is None:
            return None
        state = start(self.net, self.resident)
        done = resume(self.net, state, self.window.first, kept)
        return state if done else None

    def keeping(self, moment: int, share: float) -> BoolArray | None:
        """What to keep at a moment, per value; None if nothing fits.

        Large graphs are planned by blocks, whose programs are small.
        """
        if self.by_blocks:
            return self.blocks.keeping(share * self.room(moment), self._closed)
        found = window(
            self.net,
            self.resident,
            self.resident + share * (self.budget - self.resident),
            moment,
            len(self.net.cost),
            self.deadline,
            self.problem.seed,
        )
        return None if found.kept is None else found.kept >= 0.5

    def _mend(self, state: State) -> bool:
        """Repair, give back, and see what comes of it."""
        limit = self._cost if self._cost < inf else 8 * self.least + 1
        if not self._repair(state, self.budget, limit, self._none):
            return False
        self.see(state)
        self._sweep(state)
        return True

    def _repair(self, state: State, level: int, limit: float, crowd: IntArray) -> bool:
        """Drop until ``level`` holds; False where it cannot be, or time is up."""
        arrays, goes_on = (self.net, state, self._notes), True
        until = min(self.deadline, perf_counter() + PATIENCE * self.problem.time_limit)
        while peak(state) > level and goes_on and perf_counter() < until:
            self.progress.rest()
            self._notes.counts[1] = 0
            goes_on = repair(*arrays, level, limit, MANY, 0.0, 0.0, crowd, DROPS)
        self.progress.see(int(peak(state)))
        return bool(peak(state) <= level)

    def _sweep(self, state: State) -> None:
        """Give back what there is room for."""
        for begin in range(len(self.net.cost), int(state.counts[2]), SWEPT):
            if perf_counter() > self.deadline:
                break
            sweep(self.net, state, self._notes, self.budget, begin, begin + SWEPT)
        self.see(state)

    def _greedy(self, state: State) -> None:
        """Drop what costs least per byte and crowded stage, level by level."""
        highest = int(peak(state))
        step = max(1, (highest - self.budget) // LEVELS)
        while peak(state) > self.budget:
            crowd = np.concatenate([[0], np.cumsum(profile(state) > self.budget)])
            level = max(self.budget, int(peak(state)) - step)
            if not self._repair(state, level, 8 * self.least + 1, crowd):
                return
        self.see(state)
        self._sweep(state)

    def see(self, state: State) -> None:
        """A schedule: is it the best?"""
        highest = int(peak(state))
        self.progress.see(highest)
        if highest > self.budget or state.cost[0] >= self._cost * (1 - 1e-12):
            return
        self._offer(plan_of(self.graph, state))

    def _offer(self, plan: Plan) -> None:
        trace = simulate(self.graph, plan)
        self.progress.see(trace.peak_bytes)
        if trace.peak_bytes <= self.budget and self.progress.offer(trace.cost, plan):
            self._cost = trace.cost
            self._rows = recomputations(self.graph, plan)

    def _seen(self, rows: IntArray) -> None:
        """The best schedule of a kernel, as rows."""
        state = start(self.net, self.resident)
        follow(self.net, state, rows)
        self.see(state)

    def anneal(self) -> Iterator[None]:
        """Annealing, again and again and longer each time; beside local search in large graphs."""
        seconds, number = max(1.0, RESTART * self.problem.time_limit), 0
        while True:
            hard = self._rows is not None and (len(self.net.cost) > LARGE or number % 2 == 1)
            if self._rows is None and number == 2 and self.graph.loss_index is None:
                self._greedy(start(self.net, self.resident))
            yield from (self._hard if hard else self._soft)(seconds)
            seconds, number = seconds * 1.5, number + 1

    def _begin(self) -> State:
        state = start(self.net, self.resident)
        if self._rows is not None:
            follow(self.net, state, self._rows)
        return state

    def _hard(self, seconds: float) -> Iterator[None]:
        """Local search within the budget from the best schedule, cooling."""
        state = self._begin()
        best = np.empty((len(state.op), 2), dtype=np.int64)
        if not state.counts[1]:
            yield
            return
        typical = (state.cost[0] - self.least) / state.counts[1]
        began, steps = perf_counter(), 1
        share = 0.0
        while share < 1:
            now = perf_counter()
            heat = typical * (1 - share)
            cost, rows, _ = anneal(
                self.net, state, self._notes, self.budget, steps, heat, SAMPLES, best
            )
            if cost < self._cost * (1 - 1e-12):
                self._seen(best[:rows])
            steps = _paced(steps, perf_counter() - now)
            yield
            share = (perf_counter() - began) / max(seconds, 1e-9)

    def _soft(self, seconds: float) -> Iterator[None]:
        """Annealing that may break the budget at a price, which follows how often it does."""
        state = start(self.net, self.resident)
        watch(state, self.budget)
        best = np.empty((len(state.op), 2), dtype=np.int64)
        excess = float(state.excess[0]) or 1.0
        price = 0.2 * self.least / excess
        typical = 4 * float(np.median(self.net.cost)) or self.least / len(self.net.cost)
        began, steps = perf_counter(), 100
        share = 0.0
        while share < 1:
            now = perf_counter()
            heat = typical * 0.001**share
            arrays = self.net, state, self._notes
            _, rows, held = soften(*arrays, self.budget, steps, heat, price, best, self._cost)
            if rows >= 0:
                self._seen(best[:rows])
            price *= 1.1 if held < 0.2 * steps else 1 / 1.1 if held > 0.6 * steps else 1.0
            steps = _paced(steps, (perf_counter() - now) * 10)
            yield
            share = (perf_counter() - began) / max(seconds, 1e-9)


def _paced(steps: int, seconds: float) -> int:
    """How many steps take about a slice of time."""
    return max(1, min(2 * steps, int(steps * SLICE / max(seconds, 1e-6))))
