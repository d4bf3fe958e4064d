"""Lower bounds, and schedules, from linear and mixed-integer programs with rows on demand.

Consecutive stages are merged into groups. What a schedule recomputes in a group, R, and has in
memory when the group begins, S, satisfies every row below, so the optimum over them is a lower
bound for the space. With groups of one stage the rows, (1b) and (1c) of Checkmate with its memory
constraints, describe the space exactly. There are too many memory rows to write down; they are
added where a solution violates them (:mod:`~rematbench.strategies.checkmate.cuts`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from time import perf_counter

import highspy
import numpy as np

from rematbench.strategies.checkmate.cuts import Cuts, violated
from rematbench.strategies.checkmate.lowering import new_solver, presolved_size, run_beside
from rematbench.strategies.checkmate.memory import Memory
from rematbench.strategies.checkmate.paths import violated_paths
from rematbench.strategies.checkmate.rows import make_layout, static_rows, value_liveness
from rematbench.strategies.checkmate.space import FloatArray, Schedule, Space

SCALE = 100.0
"""What the budget, and the cost without recomputation, are scaled to."""
TOLERANCE = 1e-6 * SCALE
STALL = 3
"""Rounds without a better bound after which no more path rows are added; twice as many end it."""
NEGLIGIBLE = 1e-5
"""Values below this fraction of the budget take no space in a bound."""

Groups = Sequence[tuple[int, int]]
Idle = Callable[[], bool]
"""Does a little work; False where there is none to do."""


def single_stages(space: Space) -> Groups:
    """Every stage its own group: exact."""
    return [(s, s + 1) for s in range(len(space.stages))]


def merged_stages(space: Space, budget: int, columns: int) -> Groups:
    """Groups that keep the number of columns at about ``columns``.

    Stages whose ops read little are merged first: their memory rows say least.
    """
    exact = single_stages(space)
    memory = Memory.of(space, budget / SCALE, negligible=budget * NEGLIGIBLE)
    if len(exact) * (len(space.ops) + len(memory.size)) <= 2 * columns:
        return exact
    least, most = 0.0, SCALE * len(exact)
    for _ in range(20):
        middle = (least + most) / 2
        groups = _merged(memory, len(exact), middle)
        if len(groups) * (len(space.ops) + len(memory.size)) > 2 * columns:
            least = middle
        else:
            most = middle
    return _merged(memory, len(exact), most)


def _merged(memory: Memory, stages: int, limit: float) -> Groups:
    """Merge while what a group reads stays below ``limit``."""
    groups: list[tuple[int, int]] = []
    low, read = 0, np.zeros(len(memory.size), dtype=bool)
    for s in range(stages):
        now = read.copy()
        now[memory.uses[memory.use_at[s] : memory.use_at[s + 1]]] = True
        if s > low and memory.size[now].sum() > limit:
            groups.append((low, s))
            now &= False
            now[memory.uses[memory.use_at[s] : memory.use_at[s + 1]]] = True
            low = s
        read = now
    return [*groups, (low, stages)]


@dataclass(frozen=True)
class Solved:
    """What one run of HiGHS made of a relaxation.

    Attributes:
        bound: a proven lower bound of the cost, in the graph's unit; infinite where the rows
            have no solution.
        x: per column, the best solution, or None.
        nodes: of the branch-and-bound tree.
    """

    bound: float
    x: FloatArray | None
    nodes: int = 0


def _stalled(bounds: list[float], rounds: int) -> bool:
    """Has the bound hardly moved in the last rounds?"""
    return len(bounds) > rounds and bounds[-1] <= bounds[-1 - rounds] * (1 + TOLERANCE)


class Relaxation:
    """The program of one space, budget and grouping, inside HiGHS.

    Args:
        space: what the bound is for.
        budget: in bytes.
        groups: see :func:`single_stages` and :func:`merged_stages`.
        seed: of HiGHS.

    Attributes:
        bound: the best so far, in the graph's cost unit.
        exact: has every group one stage?
    """

    def __init__(self, space: Space, budget: int, groups: Groups, seed: int = 0) -> None:
        self.space = space
        self.exact = all(high - low == 1 for low, high in groups)
        self.memory = Memory.of(space, budget / SCALE, negligible=budget * NEGLIGIBLE)
        self.layout, self.columns = make_layout(self.memory, space, groups)
        self._unit = (space.base_cost or 1.0) / SCALE
        self._scaled_cost = space.cost / self._unit
        self._highs = new_solver(1, seed)
        self._highs.passModel(self._program())
        self._is_integral = self._left_behind = False
        self._rows_before = 0
        self.bound = 0.0

    def size(self) -> dict[str, int]:
        """Rows, columns and non-zeros after presolve, as a mixed-integer program without cuts."""
        lp = self._program()
        lp.integrality_ = [highspy.HighsVarType.kInteger] * self.columns
        return presolved_size(lp)

    def _program(self) -> highspy.HighsLp:
        cost = np.zeros(self.columns)
        g, i = np.nonzero(self.layout.recompute >= 0)
        cost[self.layout.recompute[g, i]] = self._scaled_cost[i]
        rows = static_rows(self.memory, self.layout)
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self.columns, len(rows.upper)
        lp.col_cost_, lp.offset_ = cost, self.space.base_cost / self._unit
        lp.col_lower_, lp.col_upper_ = np.zeros(self.columns), np.ones(self.columns)
        lp.row_lower_, lp.row_upper_ = rows.lower, rows.upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = lp.num_row_, lp.num_col_
        lp.a_matrix_.start_, lp.a_matrix_.index_ = rows.start, rows.column
        lp.a_matrix_.value_ = rows.value
        return lp

    def linear(self, deadline: float, idle: Idle, paths: bool = False) -> Iterator[Solved]:
        """Solve the linear relaxation, adding rows until it violates none.

        Args:
            paths: add path rows as well as memory rows.
            deadline: on the clock of ``perf_counter``.
            idle: called again and again while HiGHS works in a thread of its own.

        Yields:
            What each round of rows came to.
        """
        if not self._left_behind:
            self._rows_before = self._highs.getNumRow()
        yield from self._rounds(deadline, idle, paths)

    def drop_rows(self) -> None:
        """Forget the rows that came with the last path rows."""
        if not self._left_behind:
            every = np.arange(self._rows_before, self._highs.getNumRow(), dtype=np.int32)
            self._highs.deleteRows(len(every), every)

    def integral(
        self,
        deadline: float,
        idle: Idle,
        gap: float,
        best: Callable[[], Schedule | None] = lambda: None,
        enough: Callable[[], bool] = lambda: False,
    ) -> Iterator[Solved]:
        """Solve the mixed-integer program in the same way.

        Args:
            deadline, idle: as above.
            gap: relative gap at which to stop.
            best: a schedule to start from.
            enough: asked now and then whether to stop.
        """

        if self._left_behind:
            return

        def check(event: highspy.HighsCallbackEvent) -> None:
            if enough():
                event.interrupt()

        self._highs.cbMipInterrupt.subscribe(check)
        every = np.arange(self.columns, dtype=np.int32)
        kinds = np.full(self.columns, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
        self._highs.changeColsIntegrality(self.columns, every, kinds)
        self._highs.setOptionValue("mip_rel_gap", gap)
        self._is_integral = True
        yield from self._rounds(deadline, idle, best=best)

    def _rounds(
        self,
        deadline: float,
        idle: Idle,
        paths: bool = False,
        best: Callable[[], Schedule | None] = lambda: None,
    ) -> Iterator[Solved]:
        bounds: list[float] = []
        while not self._left_behind:
            start = best()
            if start is not None:
                solution = highspy.HighsSolution()
                solution.col_value = self.encode(start).tolist()
                self._highs.setSolution(solution)
            # Nobody may touch a model while HiGHS still works on it.
            self._left_behind = not run_beside(self._highs, deadline, idle)
            if self._left_behind:
                return
            solved = self._solved()
            self.bound = max(self.bound, solved.bound)
            bounds.append(solved.bound)
            yield solved
            if solved.x is None or perf_counter() > deadline:
                return
            more = self._add(self.violated(solved.x))
            if paths and not _stalled(bounds, STALL):
                more += self._add(
                    violated_paths(self.memory, self.layout, solved.x, self._scaled_cost)
                )
            if not more or (paths and _stalled(bounds, 2 * STALL)):
                return

    def _solved(self) -> Solved:
        highs, status = self._highs, self._highs.getModelStatus()
        info = highs.getInfo()
        nodes = int(info.mip_node_count) if self._is_integral else 0
        if status in (
            highspy.HighsModelStatus.kInfeasible,
            highspy.HighsModelStatus.kUnboundedOrInfeasible,  # costs are never negative
        ):
            return Solved(np.inf, None, nodes)
        done = status == highspy.HighsModelStatus.kOptimal
        bound = info.mip_dual_bound if self._is_integral else info.objective_function_value
        if not (done or self._is_integral) or not np.isfinite(bound):
            bound = 0.0  # the simplex method, stopped on its way, proves nothing
        there = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        x = np.array(highs.getSolution().col_value) if there else None
        return Solved(float(bound) * self._unit, x if done or self._is_integral else None, nodes)

    def violated(self, x: FloatArray) -> Cuts:
        return violated(self.memory, self.layout, x, SCALE, TOLERANCE)

    def _add(self, cuts: Cuts) -> int:
        """Add rows, and say how many."""
        count = len(cuts.upper)
        self._highs.addRows(
            count,
            np.full(count, -highspy.kHighsInf),
            cuts.upper,
            len(cuts.column),
            cuts.start[:-1].astype(np.int32),
            cuts.column.astype(np.int32),
            cuts.value,
        )
        return count

    def encode(self, schedule: Schedule) -> FloatArray:
        """The columns' values for a schedule of the space."""
        low, high, recompute, keep = self.layout
        live = value_liveness(self.memory, schedule.recomputed)
        x = np.zeros(self.columns + 1)  # the last one takes what has no column
        for g, stages in enumerate(zip(low, high, strict=True)):
            x[recompute[g]] = schedule.recomputed[slice(*stages)].any(axis=0)
            x[keep[g]] = live[stages[0]]
        return x[:-1]

    def decode(self, x: FloatArray) -> Schedule | None:
        """The schedule that an integral solution stands for; exact with groups of one stage."""
        chosen = np.append(x > 0.5, False)
        if self.exact:
            return self.space.explicit(chosen[self.layout.recompute])
        keep = np.ones(self.space.shape, dtype=bool)
        kept = chosen[self.layout.keep]
        for g, low in enumerate(self.layout.low.tolist()):
            keep[low] = False
            keep[low, self.memory.writer[kept[g]]] = True
        return self.space.evaluate(keep)
