"""Schedules and bounds for graphs that are too large, or too wide, for programs of all stages.

First a bound: what the budget costs from the fullest moments on (:mod:`moments`). What that
keeps in memory makes the first schedule; then annealing, local search, until the gap closes or
time is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property, partial
from math import inf
from typing import Any

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.candidates import without_plan
from rematbench.engines.intervals.blocks import Blocks
from rematbench.engines.intervals.edits import resume
from rematbench.engines.intervals.improve import LARGE, RESTART, Improver
from rematbench.engines.intervals.memory import peak, profile
from rematbench.engines.intervals.moments import (
    MomentWindow,
    best_chain,
    crowded_moments,
    window,
)
from rematbench.engines.intervals.net import (
    IntervalState,
)
from rematbench.engines.intervals.segments import segmentations
from rematbench.engines.lp.solver import SOLVER
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import IntArray
from rematbench.graphs.planning import Problem, Solution, Strategy, SupportsWarmUp

TRIVIAL = "trivial: every op once"
ROOMS = (1.0, 0.99, 0.98, 0.96, 0.93, 0.89, 0.84, 0.78, 0.7, 0.6)
"""Shares of the budget for which the program of one moment is asked what to keep: it does not
know what recomputing needs near that moment."""
MOMENTS, FEW = 12, 4
"""Moments between which windows are looked at; fewer in large graphs."""
HUGE = 20_000
"""Ops from which there is no program of the whole graph."""
HALVINGS = 3
"""Shares that are tried between one that fits and one that does not."""


def warm_up(starts: tuple[Strategy, ...] = ()) -> None:
    """Compile the kernels, those of the strategies that a search may begin from included.

    These come last: on a new machine other processes are compiling them meanwhile.
    """
    graph = unit_chain(8)
    search = IntervalSearch(Problem(graph, 4, time_limit=1.0), 4, planning_seconds(), 0.0)
    search.deadline = inf
    empty = search.empty()
    for _ in search.first(empty):
        pass
    search.window = window(search.net, search.resident, 6, 8, len(search.net.cost), inf)
    search._keeps(1.0, mend=True)
    search.drop_greedily(empty)
    for steps in (search.soft(0.0), search.hard(0.0)):
        for _ in steps:
            pass
    for strategy in starts:
        if isinstance(strategy, SupportsWarmUp):
            strategy.warm_up()


class IntervalSearch(Improver):
    """A search for the cheapest schedule within a budget, at any size.

    Args:
        problem: any graph whose ops overwrite nothing; warm starts are taken.
        budget: in bytes.
        started: by :func:`~rematbench.base.clock.planning_seconds`.
        gap: relative gap that is good enough.
        taken: as of :class:`Improver`.

    Attributes:
        bound_by: how the bound was found.
        window: of the best moment, or None.
        by_blocks: do blocks say what to keep, or a program of the whole graph?
    """

    def __init__(
        self,
        problem: Problem,
        budget: int,
        started: float,
        gap: float,
        taken: IntArray | None = None,
    ) -> None:
        super().__init__(problem, budget, started, gap, taken=taken)
        self.progress.bound = self.least
        self.bound_by = TRIVIAL
        self.window: MomentWindow | None = None
        self.by_blocks = len(self.net.cost) > LARGE
        self._closed = False

    def free_bytes(self, moment: int) -> int:
        """Bytes that an op leaves for what earlier ones have written, what it reads included."""
        fixed = self.net.written[moment] + self.net.workspace[moment]
        return self.budget - self.resident - int(fixed + self.taken[moment])

    def run(self, polish: bool = True) -> None:
        """Bound, first schedules, annealing.

        Args:
            polish: go on after the first schedules.
        """
        self.take_warm_starts()
        empty = self.empty()
        levels = np.asarray(profile(empty))
        self.prove(levels)
        if self.progress.bound == inf:
            return
        for _ in self.first(empty):
            if self.is_over():
                return
        for _ in self.anneal() if polish else ():
            if self.is_over():
                return

    def solution(self, variant: str | None) -> Solution:
        """The best plan.

        Raises:
            Infeasible: it is proven that there is none.
            Stopped: none was found in time.
        """
        progress = self.progress
        if progress.plan is None:
            proven = f"graph {self.graph.name!r}" if progress.bound == inf else None
            raise without_plan(self.problem, proven, progress.leanest)
        ways = {len(op.implementations) for op in self.graph.ops}
        return Solution(
            progress.plan,
            min(progress.bound, progress.cost),
            "any" if ways == {1} else "9",
            variant=variant,
            solver=SOLVER,
            details=self.details(),
        )

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        return {**self.progress.details(), "bound_by": self.bound_by}

    def is_over(self) -> bool:
        """Is its time up, or the gap closed?

        Raises:
            KeyboardInterrupt: somebody interrupted.
        """
        self.progress.rest()
        return planning_seconds() > self.deadline or self.progress.closed()

    def prove(self, levels: IntArray) -> None:
        """A bound: from the fullest moment on, then by windows."""
        count = len(self.net.cost)
        fullest = int(np.argmax(levels))
        if self.by_blocks:
            self.prove_by_blocks(fullest)
        if count > HUGE:
            return
        self.window = self._solved(fullest, count, self.deadline)
        self.proven(self.window.cost, "one moment: its memory's price in recomputation")
        if self.progress.bound == inf:
            return
        now = planning_seconds()
        until = now + min(0.1 * max(0.0, self.deadline - now), 60.0)
        many = FEW if count > LARGE else MOMENTS
        moments = crowded_moments(levels, self.budget, many)
        total, found = best_chain([*moments, count], partial(self._solved, deadline=until), until)
        self.proven(total, f"windows of the timeline: {len(found)}")
        if found and found[0].cost > self.window.cost and not self.by_blocks:
            self.window = found[0]

    def _solved(self, first: int, last: int, deadline: float, share: float = 1.0) -> MomentWindow:
        """A window, with a share of the bytes that are not resident."""
        free_bytes = self.budget - int(self.taken[first]) - self.resident
        budget = self.resident + share * free_bytes
        seed = self.problem.seed
        return window(self.net, self.resident, budget, first, last, deadline, seed)

    def prove_by_blocks(self, fullest: int) -> None:
        """A bound: those of the blocks before a moment, added up."""
        self.window = MomentWindow(fullest, len(self.net.cost), 0.0, None)
        kinds, count = len(self.blocks.kinds), len(self.blocks.kind_of)
        bound = self.blocks.bound(self.free_bytes(fullest))
        self.proven(bound, f"blocks' bounds added up: {count} blocks of {kinds} kinds")

    def proven(self, cost: float, how: str) -> None:
        """So much recomputation is unavoidable."""
        bound = float(self.least + cost)
        if bound > self.progress.bound:
            self.progress.raise_bound(bound)
            self.bound_by = how

    def first(self, empty: IntervalState) -> Iterator[None]:
        """Schedules that keep what the bound's program keeps; else of annealing, or greedy drops.

        The program does not know what recomputing needs near its moment: it is asked for less
        than the budget until its schedule fits, and then for a little more again.
        """
        if len(self.net.cost) <= LARGE:
            yield from self.soft(min(1.0, 0.05 * self.problem.time_limit))
        if self.graph.loss_index is None and len(self.net.cost) <= LARGE:
            return  # without a loss there is no one moment that all must pass: anneal
        if not self.by_blocks:
            yield from self._shares()
        yield from self._shares_of_blocks()
        yield from self._cut(empty)
        if not self.found:
            yield from self.take_known()
        if not self.found:
            yield from self.soft(RESTART * self.problem.time_limit, self._leanest)
        if not self.found and self.window is not None:
            self._keeps(ROOMS[2], mend=True)
            yield
        if not self.found:
            self.drop_greedily(empty)
            yield

    def _shares_of_blocks(self) -> Iterator[None]:
        """The same by blocks, which takes no time; closed ones where open ones do not fit."""
        by_blocks, self.by_blocks = self.by_blocks, True
        for self._closed in (False, True):
            if self._closed and self.found:
                break
            yield from self._shares()
        self.by_blocks = by_blocks

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

    def _cut(self, empty: IntervalState) -> Iterator[None]:
        """Schedules of segments; the leanest is annealed where none fits."""
        moment, leanest = int(np.argmax(profile(empty))), empty
        for kept in segmentations(self.net, moment):
            state = self.empty()
            if not resume(self.net, state, moment, kept):
                continue
            self.progress.see(int(peak(state)))
            if peak(state) <= self.budget:
                self.see(state)
                self.sweep(state)
            if peak(state) < peak(leanest):
                leanest = state
            yield
        if not self.found and leanest is not empty:
            self._leanest = leanest
            yield from self.soft(RESTART * self.problem.time_limit, leanest)

    def _keeps(self, share: float, mend: bool = False) -> bool:
        """Does a schedule by the program, with a share of the budget, fit?"""
        state = self._kept(share)
        if state is None:
            return False
        self.progress.see(int(peak(state)))
        if peak(state) <= self.budget:
            self.see(state)
            self.sweep(state)
            return True
        return mend and self.mend(state)

    @cached_property
    def blocks(self) -> Blocks:
        """Before the best moment."""
        assert self.window is not None
        return Blocks.of(self.net, self.window.first)

    def _kept(self, share: float) -> IntervalState | None:
        """A schedule that keeps at the best moment what a share of the budget has room for."""
        assert self.window is not None
        moment = self.window.first
        if self.by_blocks:  # whose programs are small
            kept = self.blocks.keeping(share * self.free_bytes(moment), self._closed)
        else:
            shares = self._solved(moment, len(self.net.cost), self.deadline, share).kept
            kept = None if shares is None else shares >= 0.5
        state = self.empty()
        return state if kept is not None and resume(self.net, state, moment, kept) else None
