"""Lower bounds, and schedules, from linear and mixed-integer programs with rows on demand.

Consecutive stages are merged into groups. What a schedule recomputes in a group, R, and has in
memory when the group begins, S, satisfies every row below, so the optimum over them is a lower
bound for the space. With groups of one stage the rows, (1b) and (1c) of Checkmate with its memory
constraints, describe the space exactly. There are too many memory rows to write down; they are
added where a solution violates them (:mod:`~rematbench.engines.stages.cuts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.lp.program import LinearProgram, SparseRows
from rematbench.engines.lp.solver import Idle, Solver, SolverRun
from rematbench.engines.plans.stages import FloatArray
from rematbench.engines.stages.cuts import Layout, close, violated
from rematbench.engines.stages.kernels import liveness
from rematbench.engines.stages.memory import ValueTables
from rematbench.engines.stages.paths import violated_paths
from rematbench.engines.stages.space import Schedule, Space

SCALE = 100.0
"""What the budget, and the cost without recomputation, are scaled to."""
TOLERANCE = 1e-6 * SCALE
EXACT = 2e-6
"""The same, for programs that leave nothing out: twice what HiGHS lets a solution violate a row."""
STALL = 3
"""Rounds without a better bound after which no more path rows are added; twice as many end it."""
NEGLIGIBLE = 1e-5
"""Values below this fraction of the budget take no space in a bound."""

Groups = Sequence[tuple[int, int]]


def single_stages(space: Space) -> Groups:
    """Every stage its own group: exact."""
    return [(s, s + 1) for s in range(len(space.stages))]


def merged_stages(space: Space, budget: int, columns: int) -> Groups:
    """Groups that keep the number of columns at about ``columns``.

    Stages whose ops read little are merged first: their memory rows say least.
    """
    exact = single_stages(space)
    values = ValueTables.of(space, budget / SCALE, negligible=budget * NEGLIGIBLE)
    if len(exact) * (len(space.ops) + len(values.size)) <= 2 * columns:
        return exact
    least, most = 0.0, SCALE * len(exact)
    for _ in range(20):
        middle = (least + most) / 2
        groups = _merged(values, len(exact), middle)
        if len(groups) * (len(space.ops) + len(values.size)) > 2 * columns:
            least = middle
        else:
            most = middle
    return _merged(values, len(exact), most)


def _merged(values: ValueTables, stages: int, limit: float) -> Groups:
    """Merge while what a group reads stays below ``limit``."""
    groups: list[tuple[int, int]] = []
    low, read = 0, np.zeros(len(values.size), dtype=bool)
    for s in range(stages):
        now = read.copy()
        now[values.uses.stretch(s, s + 1)] = True
        if s > low and values.size[now].sum() > limit:
            groups.append((low, s))
            now &= False
            now[values.uses.stretch(s, s + 1)] = True
            low = s
        read = now
    return [*groups, (low, stages)]


def make_layout(values: ValueTables, space: Space, groups: Groups) -> tuple[Layout, int]:
    """Columns only for what can serve the group or a later one, and their number."""
    low, high = np.array(groups, dtype=np.int64).T.copy()
    recompute = np.full((len(groups), len(space.ops)), -1, dtype=np.int64)
    keep = np.full((len(groups) + 1, len(values.size)), -1, dtype=np.int64)
    wanted = values.final.copy()
    for g in range(len(groups) - 1, -1, -1):
        wanted[values.uses.stretch(low[g], high[g])] = True
        close(values, wanted)
        ops = np.zeros(len(space.ops), dtype=bool)
        ops[values.writer[wanted]] = True
        recompute[g, ops & (space.stage < high[g] - 1)] = 0
        keep[g, wanted & (values.first < low[g])] = 0
    count = 0
    for table in (recompute, keep):
        there = table == 0
        table[there] = count + np.arange(there.sum())
        count += int(there.sum())
    return Layout(low, high, recompute, keep), count


def static_rows(program: LinearProgram, values: ValueTables, layout: Layout) -> None:
    """Add all rows but the memory rows."""
    low, high, recompute, keep = layout
    groups, writer = len(low), values.writer
    single = high - low == 1
    old = values.first[None, :] < low[:, None]  # computed before the group begins
    again = recompute[:, writer]

    used = np.zeros((groups, len(values.size)), dtype=bool)
    for group in range(groups):
        used[group, values.uses.stretch(low[group], high[group])] = True
    both = (keep[:-1] >= 0) & (again >= 0)
    # What a stage reads is in memory, or recomputed; in a group of one stage never both.
    for here, least, most in (
        (used & old & single[:, None], 1.0, 1.0),
        (used & old & ~single[:, None], 1.0, 2.0),
        (~used & single[:, None] & both, 0.0, 1.0),
    ):
        g, v = np.nonzero(here)
        program.rows(least, most, [keep[g, v], again[g, v]], [1.0, 1.0])

    g, v = np.nonzero((keep[1:] >= 0) & old)  # (1c)
    columns = [keep[g + 1, v], keep[g, v], again[g, v]]
    program.rows(-np.inf, 0.0, columns, [1.0, -1.0, -1.0])
    final = np.flatnonzero(values.final & old[-1])
    program.rows(1.0, np.inf, [keep[-2, final], again[-1, final]], [1.0, 1.0])

    reader = np.repeat(np.arange(recompute.shape[1]), np.diff(values.reads.start))
    g, e = np.nonzero((recompute[:, reader] >= 0) & old[:, values.reads.items])  # (1b)
    v = values.reads.items[e]
    columns = [recompute[g, reader[e]], keep[g, v], again[g, v]]
    program.rows(-np.inf, 0.0, columns, [1.0, -1.0, -1.0])


def _stalled(bounds: list[float], rounds: int) -> bool:
    """Has the bound hardly moved in the last rounds?"""
    return len(bounds) > rounds and bounds[-1] <= bounds[-1 - rounds] * (1 + TOLERANCE)


class Relaxation:
    """The program of one space, budget and grouping, inside HiGHS.

    Args:
        space: what the bound is for.
        budget: in bytes.
        groups: see :func:`single_stages` and :func:`merged_stages`.
        seed, threads: of HiGHS.
        negligible: share of the budget up to which a value takes no space; 0 where the program is
            to allow the space's schedules and no others.

    Attributes:
        bound: the best so far, in the graph's cost unit; infinite where there is no schedule.
        exact: has every group one stage?
        program: without memory rows.
        settled: does the last solution violate no row at all?
        size: rows, those on demand included, columns and non-zeros, as solved last.
        build_seconds: until the program without memory rows was handed to HiGHS.
    """

    def __init__(
        self,
        space: Space,
        budget: int,
        groups: Groups,
        seed: int = 0,
        threads: int = 1,
        negligible: float = NEGLIGIBLE,
    ) -> None:
        started = planning_seconds()
        self.space = space
        self.exact = all(high - low == 1 for low, high in groups)
        self.values = ValueTables.of(space, budget / SCALE, negligible=budget * negligible)
        self._tolerance = TOLERANCE if negligible else EXACT
        self.layout, self.columns = make_layout(self.values, space, groups)
        self._unit = (space.base_cost or 1.0) / SCALE
        self._scaled_cost = space.cost / self._unit
        self.program = LinearProgram(offset=space.base_cost / self._unit)
        cost = np.zeros(self.columns)
        g, i = np.nonzero(self.layout.recompute >= 0)
        cost[self.layout.recompute[g, i]] = self._scaled_cost[i]
        for each in cost.tolist():
            self.program.column(each, integral=True)
        static_rows(self.program, self.values, self.layout)
        self._solver = Solver(self.program, seed=seed, threads=threads)
        self._rows_before = self._solver.rows
        self._limit = SCALE
        self._memory_rows, self._memory_upper = np.empty(0, dtype=np.int64), np.empty(0)
        self.size = self.program.size
        self.settled = False
        self.bound = 0.0
        self.build_seconds = planning_seconds() - started

    def limit(self, share: float) -> None:
        """From now on only a share of the budget may be used.

        The next linear relaxation goes on from the solution of the last one; there is none when
        that did not stop in time.
        """
        self._memory_upper += share * SCALE - self._limit
        self._limit, self.bound = share * SCALE, 0.0
        if self._solver.left_behind:
            return
        self._solver.limit_rows(self._memory_rows, self._memory_upper)

    def linear(self, deadline: float, idle: Idle, paths: bool = False) -> Iterator[SolverRun]:
        """Solve the linear relaxation, adding rows until it violates none.

        Args:
            paths: add path rows as well as memory rows.
            deadline: by :func:`~rematbench.base.clock.planning_seconds`.
            idle: called again and again while HiGHS works in a thread of its own.

        Yields:
            What each round of rows came to, in the graph's cost unit.
        """
        if not self._solver.left_behind:
            self._rows_before = self._solver.rows
        yield from self._rounds(deadline, idle, paths)

    def drop_rows(self) -> None:
        """Forget the rows that came with the last path rows."""
        if not self._solver.left_behind:
            self._solver.drop_rows(self._rows_before)
            stay = self._memory_rows < self._rows_before
            self._memory_rows, self._memory_upper = (
                self._memory_rows[stay],
                self._memory_upper[stay],
            )

    def integral(
        self,
        deadline: float,
        idle: Idle,
        gap: float,
        best: Callable[[], Schedule[Space] | None] = lambda: None,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[SolverRun]:
        """Solve the mixed-integer program in the same way.

        Args:
            deadline, idle: as above.
            gap: relative gap at which to stop.
            best: a warm start.
            enough: asked now and then whether to stop.
        """
        if not self._solver.left_behind:
            self._solver.stop_when(gap, lambda bound: enough())
            self._solver.make_integral()
        yield from self._rounds(deadline, idle, best=best)

    def _rounds(
        self,
        deadline: float,
        idle: Idle,
        paths: bool = False,
        best: Callable[[], Schedule[Space] | None] = lambda: None,
    ) -> Iterator[SolverRun]:
        bounds: list[float] = []
        while not self._solver.left_behind:
            start = best()
            if start is not None:
                self._solver.start_from(self.encode(start))
            self.settled, self.size = False, self._solver.size
            outcome = self._solver.run(deadline, idle)
            if outcome is None:
                return
            outcome = replace(outcome, bound=max(0.0, outcome.bound * self._unit))
            self.bound = max(self.bound, outcome.bound)
            bounds.append(outcome.bound)
            yield outcome
            if outcome.x is None or planning_seconds() > deadline:
                return
            more = self._add_memory_rows(outcome.x)
            self.settled = not more
            if paths and not _stalled(bounds, STALL):
                cost = self._scaled_cost
                rows = violated_paths(self.values, self.layout, outcome.x, cost)
                more += self._solver.add_rows(rows)
            if not more or (paths and _stalled(bounds, 2 * STALL)):
                return

    def _add_memory_rows(self, x: FloatArray) -> int:
        """Those that ``x`` violates; how many."""
        first, rows = self._solver.rows, self.violated(x)
        count = self._solver.add_rows(rows)
        self._memory_rows = np.append(self._memory_rows, first + np.arange(count))
        self._memory_upper = np.append(self._memory_upper, rows.upper)
        return count

    def violated(self, x: FloatArray) -> SparseRows:
        """Memory rows that ``x`` violates."""
        return violated(self.values, self.layout, x, self._limit, self._tolerance)

    def encode(self, schedule: Schedule[Space]) -> FloatArray:
        """The columns' values for a schedule of the space."""
        low, high, recompute, keep = self.layout
        values = self.values
        tables = values.uses, values.reads, values.writes
        live = liveness(schedule.recomputed, values.first, values.final, *tables)
        x = np.zeros(self.columns + 1)  # the last one takes what has no column
        for g, stages in enumerate(zip(low, high, strict=True)):
            x[recompute[g]] = schedule.recomputed[slice(*stages)].any(axis=0)
            x[keep[g]] = live[stages[0]]
        return x[:-1]

    def decode(self, x: FloatArray) -> Schedule[Space] | None:
        """The schedule that an integral solution stands for; exact with groups of one stage."""
        chosen = np.append(x > 0.5, False)
        if self.exact:
            return self.space.explicit(chosen[self.layout.recompute])
        keep = np.ones(self.space.shape, dtype=bool)
        kept = chosen[self.layout.keep]
        for g, low in enumerate(self.layout.low.tolist()):
            keep[low] = False
            keep[low, self.values.writer[kept[g]]] = True
        return self.space.evaluate(keep)
