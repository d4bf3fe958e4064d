"""The fast variant: search, bounds and exact programs, with the best plan always at hand.

First F, then (9): schedules by local search, a bound by the linear relaxation, and mixed-integer
programs over ever smaller groups of stages until the gap closes or time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter

import numpy as np

from rematbench.graphs.ir import Graph
from rematbench.strategies.checkmate.relaxation import Groups, Relaxation, Solved, merged_stages
from rematbench.strategies.checkmate.search import give_back, repair, search
from rematbench.strategies.checkmate.space import Schedule, Space

COLUMNS = (3_000, 10_000, 35_000)
"""Most columns of the programs, from coarse to fine; one is enough where the second is exact."""
LINEAR_SHARE = 0.4
"""Of the time, for linear relaxations."""
PATHS_CLOSE = 0.2
"""Share of the gap that path rows must close to stay."""
FULL_SECONDS = 10.0
"""For (9), once F is done: this, or as long as F took."""
EXACT_TOLERANCE = 1e-6
"""Relative gap at which a cost counts as proven optimal."""


class Anytime:
    """A search for the cheapest schedule within a budget.

    Args:
        graph: a training graph.
        budget: in bytes.
        deadline: on the clock of ``perf_counter``.
        gap: relative gap that is good enough.
        threads: 1, or 2 to search while HiGHS works.
        seed: of the search and of HiGHS.
        report: told about each improvement.

    Attributes:
        best: the cheapest schedule within the budget so far, or None.
        leanest: the smallest peak seen, in bytes, or None.
        bounds: per space, a proven lower bound of the cost, in the graph's unit; infinite where
            the space has no schedule within the budget.
        linear_bounds: the same from linear relaxations alone.
        incumbents: (seconds, cost, bound) at each improvement of either.
        nodes: of all branch-and-bound trees.
        largest: the program with the most columns.
        build_seconds: time that building it took.
        interrupted: set it, and ``run`` raises KeyboardInterrupt at the next good moment.
    """

    def __init__(
        self,
        graph: Graph,
        budget: int,
        deadline: float,
        gap: float,
        threads: int,
        seed: int,
        report: Callable[[str], None],
    ) -> None:
        self._graph = graph
        self.budget, self.deadline, self.gap = budget, deadline, max(gap, EXACT_TOLERANCE)
        self.threads, self.seed, self.report = threads, seed, report
        self.started = perf_counter()
        self.best: Schedule | None = None
        self.leanest: int | None = None
        self.bounds: dict[str, float] = {}
        self.linear_bounds: dict[str, float] = {}
        self.incumbents: list[tuple[float, float | None, float]] = []
        self.nodes = 0
        self.largest: Relaxation | None = None
        self.build_seconds = 0.0
        self.interrupted = False
        self._searching: Iterator[Schedule] = iter(())
        self._space = self._home = Space.full(graph)

    def run(self) -> None:
        """First F; then (9), for the bound, and for the plans that only it has."""
        full = Space.full(self._graph)
        if self._graph.loss_index is None:
            self.improve(full, self.deadline)
            return
        reduced = Space.reduced(self._graph)
        is_small = len(full.ops) ** 2 <= COLUMNS[-1]
        now = perf_counter()
        self.improve(reduced, now + (0.75 if is_small else 1.0) * (self.deadline - now))
        now = perf_counter()
        if self.best is None:
            self.improve(full, self.deadline)
        elif is_small or self._closed(reduced):
            self.improve(full, min(self.deadline, now + max(FULL_SECONDS, now - self.started)))

    @property
    def proven_infeasible(self) -> bool:
        """Is it certain that (9) has no plan within the budget?"""
        return self.bounds.get("9", 0.0) == np.inf

    def seconds_to_gap(self, gap: float) -> float | None:
        """When the relative gap was first at most ``gap``."""
        for seconds, cost, bound in self.incumbents:
            if cost is not None and cost - bound <= gap * cost:
                return seconds
        return None

    def improve(self, space: Space, deadline: float) -> None:
        """Look for schedules and bounds in a space until the gap to its bound is closed."""
        self._space = space
        begun = perf_counter()
        self.bounds.setdefault(space.name, space.base_cost)
        random = np.random.default_rng(self.seed)
        self._searching = search(space, self.budget, random, deadline)
        for _ in range(2):  # the first repair, and what can be given back
            self._search_on()
        programs = self._linear(space, deadline)
        if self.threads == 1:
            self._search_until(space, begun + 0.3 * (deadline - begun))
        self._integral(space, programs, deadline)
        if self.best is not None:
            self._search_until(space, deadline)

    def _search_until(self, space: Space, deadline: float) -> None:
        while perf_counter() < deadline and not self._closed(space) and self._search_on():
            pass

    def _closed(self, space: Space) -> bool:
        bound = self.bounds[space.name]
        if self.best is None:
            return bound == np.inf
        return self.best.trace.cost - bound <= self.gap * self.best.trace.cost

    def _search_on(self) -> bool:
        """One step of local search.

        Raises:
            KeyboardInterrupt: somebody interrupted.
        """
        if self.interrupted:
            raise KeyboardInterrupt
        found = next(self._searching, None)
        if found is not None:
            self._offer(found)
        return found is not None

    def _idle(self) -> bool:
        if self.threads > 1 or self.interrupted:
            return self._search_on()
        return False

    def _build(self, space: Space, groups: Groups) -> Relaxation:
        started = perf_counter()
        relaxation = Relaxation(space, self.budget, groups, self.seed)
        if self.largest is None or relaxation.columns > self.largest.columns:
            self.largest, self.build_seconds = relaxation, perf_counter() - started
        return relaxation

    def _linear(self, space: Space, deadline: float) -> list[Relaxation]:
        """Lower bounds from linear relaxations, from coarse groups to fine ones."""
        begun, programs = perf_counter(), []
        for groups in self._groupings(space):
            now = perf_counter()
            if programs and (
                self._closed(space) or now > begun + LINEAR_SHARE * (deadline - begun)
            ):
                break
            program = self._build(space, groups)
            for solved in program.linear(now + LINEAR_SHARE * (deadline - now), self._idle):
                self._learn(space, program, solved)
            self._paths(space, program, now + LINEAR_SHARE * (deadline - now))
            programs.append(program)
        self.linear_bounds[space.name] = self.bounds[space.name]
        return programs

    def _paths(self, space: Space, program: Relaxation, deadline: float) -> None:
        """Path rows, which stay only where they help: they slow the solver down."""
        before = program.bound
        for solved in program.linear(deadline, self._idle, paths=True):
            self._learn(space, program, solved)
        if self.best is not None and before < np.inf:
            gap = self.best.trace.cost - before
            if program.bound - before < PATHS_CLOSE * gap:
                program.drop_rows()

    def _integral(self, space: Space, programs: list[Relaxation], deadline: float) -> None:
        """Better bounds and schedules from mixed-integer programs."""
        for number, program in enumerate(programs):
            now = perf_counter()
            if self._closed(space) or now > deadline:
                break
            rounds = program.integral(
                now + (deadline - now) / (len(programs) - number),
                self._idle,
                self.gap / 2,
                best=partial(self._start, space),
                enough=partial(self._closed, space),
            )
            for solved in rounds:
                self._learn(space, program, solved)
                if solved.x is not None:
                    self._polish(space, program.decode(solved.x), deadline)
                if self._closed(space):
                    break

    def _groupings(self, space: Space) -> list[Groups]:
        """Groups to solve with, from coarse to fine."""
        found = [merged_stages(space, self.budget, columns) for columns in COLUMNS]
        return found[1:2] if len(found[1]) == len(space.stages) else found

    def _start(self, space: Space) -> Schedule | None:
        return None if self.best is None else space.adopt(self.best, self._home)

    def _polish(self, space: Space, found: Schedule | None, deadline: float) -> None:
        """Make a schedule out of a solution that may break the budget where groups hide it."""
        if found is None:
            return
        random = np.random.default_rng(self.seed)
        if found.trace.peak_bytes > self.budget:
            found = repair(space, space.evaluate(found.keep), self.budget, random, deadline)
        if found.trace.peak_bytes <= self.budget:
            self._offer(found)
            found = give_back(space, found, self.budget, random, deadline)
        self._offer(found)

    def _offer(self, found: Schedule) -> None:
        peak, cost = found.trace.peak_bytes, found.trace.cost
        self.leanest = peak if self.leanest is None else min(peak, self.leanest)
        if peak > self.budget or (self.best is not None and cost >= self.best.trace.cost):
            return
        self.best, self._home = found, self._space
        self._record()

    def _learn(self, space: Space, relaxation: Relaxation, solved: Solved) -> None:
        self.nodes += solved.nodes
        known = self.bounds[space.name]
        self.bounds[space.name] = max(solved.bound, known)
        if solved.bound > known * (1 + EXACT_TOLERANCE):
            self._record()

    def _record(self) -> None:
        cost = None if self.best is None else self.best.trace.cost
        bound = max((b for b in self.bounds.values() if b < np.inf), default=0.0)
        self.incumbents.append((perf_counter() - self.started, cost, bound))
        if cost:
            self.report(f"cost {cost:.6g}, gap {max(0.0, 1 - bound / cost):.2%}")
