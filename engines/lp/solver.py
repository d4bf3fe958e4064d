"""HiGHS with one program, in a thread beside the search, within a time limit."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from threading import Thread
from typing import Any, Literal

import highspy
import numpy as np

from rematbench.base.clock import (
    BACKGROUND,
    LATE,
    LATE_SHARE,
    available_threads,
    planning_seconds,
)
from rematbench.engines.lp.program import LinearProgram, SparseRows
from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import IntArray

Status = Literal["optimal", "infeasible", "time_limit", "failed"]
Incumbent = tuple[float, float, float | None]
"""(seconds, cost, bound)."""
Idle = Callable[[], bool]
"""Does a little work; False where there is none to do."""

SOLVER = (
    f"highs {highspy.HIGHS_VERSION_MAJOR}.{highspy.HIGHS_VERSION_MINOR}"
    f".{highspy.HIGHS_VERSION_PATCH}"
)
PATIENCE = 0.8
"""HiGHS is left behind after this share of what its planner may overrun."""
BUSY = 4.0
"""HiGHS goes by the wall clock, which beside other work runs ahead of a planner's, by so much at
most. A linear program goes on where it stopped; a mixed-integer one is told when to stop."""
MOMENT = 0.01
"""Seconds with which nothing more can be done."""

_STATUS: dict[Any, Status] = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kUnboundedOrInfeasible: "infeasible",  # costs are never negative
    highspy.HighsModelStatus.kTimeLimit: "time_limit",
    highspy.HighsModelStatus.kInterrupt: "time_limit",
    highspy.HighsModelStatus.kNotset: "time_limit",  # stopped before it began, in presolve, say
}
_running: list[Thread] = []


@dataclass(frozen=True)
class SolverRun:
    """What one run of HiGHS made of a program, in the program's unit.

    Attributes:
        status: ``optimal`` means within the gap asked for.
        x: per column, the best solution, or None.
        objective: of x, or None.
        bound: a proven lower bound of the objective; infinite where there is no solution, minus
            infinity where nothing is proven.
        nodes: of the branch-and-bound tree; 0 for a linear program.
        seconds: of the run.
        incumbents: each better solution as it was found.
    """

    status: Status
    x: FloatArray | None
    objective: float | None
    bound: float
    nodes: int
    seconds: float
    incumbents: list[Incumbent] = field(default_factory=list)


class Solver:
    """HiGHS, silent, with one program.

    Args:
        program: what to solve.
        integral: as a mixed-integer program; otherwise its linear relaxation.
        seed, threads: of HiGHS.

    Attributes:
        left_behind: it did not stop in time once, and nobody may touch it any more.
    """

    def __init__(
        self, program: LinearProgram, integral: bool = False, seed: int = 0, threads: int = 1
    ) -> None:
        self.left_behind = False
        self._is_integral = integral
        self._began, self._deadline = 0.0, inf
        self._enough: Callable[[float], bool] = lambda bound: False
        self._incumbents: list[Incumbent] = []
        self._best: FloatArray | None = None
        self._highs = _silent(threads, seed)
        self._highs.cbMipImprovingSolution.subscribe(self._record)
        self._highs.cbMipInterrupt.subscribe(self._check)
        self._offset, self._rows = program.offset, program.matrix
        program.pass_to(self._highs, integral, self._rows)
        self._cost, self._least, self._most = program.columns

    def stop_when(self, gap: float, enough: Callable[[float], bool] = lambda bound: False) -> None:
        """Stop branching at a relative gap, or when ``enough`` says so.

        Args:
            gap: (objective - bound) / objective.
            enough: called now and then, in the solver's thread, with the bound.
        """
        self._enough = enough
        self._highs.setOptionValue("mip_rel_gap", gap)

    def _check(self, event: highspy.HighsCallbackEvent) -> None:
        if planning_seconds() >= self._deadline or self._enough(event.data_out.mip_dual_bound):
            event.interrupt()

    def _record(self, event: highspy.HighsCallbackEvent) -> None:
        out, bound = event.data_out, float(event.data_out.mip_dual_bound)
        proven = bound if isfinite(bound) else None
        seconds = planning_seconds() - self._began
        self._incumbents.append((seconds, out.objective_function_value, proven))
        self._best = np.array(out.mip_solution, dtype=np.float64)

    def run(self, deadline: float, idle: Idle | None = None) -> SolverRun | None:
        """What it comes to; a second run goes on from the first.

        If it does not stop in time it is left behind, to end by itself; the outcome is what it had
        found by then, or None.

        Args:
            deadline: by :func:`~rematbench.base.clock.planning_seconds`.
            idle: called again and again while HiGHS works in a thread of its own; without it
                HiGHS works in this one.
        """
        self._began, self._deadline = planning_seconds(), deadline
        seconds = max(0.0, deadline - self._began)
        latest = deadline + PATIENCE * (LATE + LATE_SHARE * seconds)
        if idle is None:
            self._go_on()
            return self._outcome()
        thread = Thread(target=self._go_on, name=BACKGROUND)
        _running.append(thread)
        thread.start()
        while thread.is_alive() and planning_seconds() < latest:
            if not idle():
                thread.join(0.02)
        self.left_behind = thread.is_alive()
        return self._found_so_far() if self.left_behind else self._outcome()

    def _go_on(self) -> None:
        """Run until the program is solved, or the deadline by the planner's clock."""
        highs, slack = self._highs, BUSY if available_threads() == 1 else 1.0
        while True:
            left = max(0.0, self._deadline - planning_seconds())
            before = highs.getRunTime()  # HiGHS adds up the time of all runs
            highs.setOptionValue("time_limit", before + left * (slack if self._is_integral else 1))
            highs.run()
            is_late = highs.getModelStatus() == highspy.HighsModelStatus.kTimeLimit
            if self._is_integral or not is_late or self._deadline - planning_seconds() < MOMENT:
                return

    def _found_so_far(self) -> SolverRun | None:
        if self._best is None:
            return None
        incumbents, self._incumbents = self._incumbents, []
        seconds, objective, bound = incumbents[-1]
        bound = -inf if bound is None else bound
        return SolverRun("time_limit", self._best, objective, bound, 0, seconds, incumbents)

    def proven(self) -> float:
        """A bound of the linear program that holds whatever HiGHS's tolerances are.

        Rows' multipliers prove a bound by weak duality, however they were found: each column goes
        where its reduced cost sends it. The objective itself may be above the least one by 1e-7
        per column, which adds up. (Neumaier and Shcherbina, "Safe bounds in linear and
        mixed-integer linear programming", section 2; rounding remains, of about 1e-16 per term.)

        Returns:
            Minus infinity without multipliers, or where they prove nothing.
        """
        solution, rows = self._highs.getSolution(), self._rows
        if not solution.dual_valid:
            return -inf
        multiplier = np.array(solution.row_dual, dtype=np.float64)
        multiplier[(multiplier > 0) & np.isinf(rows.lower)] = 0.0
        multiplier[(multiplier < 0) & np.isinf(rows.upper)] = 0.0
        priced = rows.value * np.repeat(multiplier, np.diff(rows.start))
        reduced = self._cost - np.bincount(rows.column, priced, len(self._cost))
        return (
            self._offset
            + _at_ends(multiplier, rows.lower, rows.upper)
            + _at_ends(reduced, self._least, self._most)
        )

    def make_integral(self) -> None:
        """From now on every column takes whole numbers only."""
        count, self._is_integral = self._highs.getNumCol(), True
        kinds = np.full(count, int(highspy.HighsVarType.kInteger), dtype=np.uint8)
        self._highs.changeColsIntegrality(count, np.arange(count, dtype=np.int32), kinds)

    def start_from(self, x: FloatArray) -> None:
        """A warm start."""
        solution = highspy.HighsSolution()
        solution.col_value = x.tolist()
        self._highs.setSolution(solution)

    @property
    def rows(self) -> int:
        """Their number."""
        return int(self._highs.getNumRow())

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and non-zeros, added rows included."""
        highs = self._highs
        return {
            "rows": int(highs.getNumRow()),
            "columns": int(highs.getNumCol()),
            "nonzeros": int(highs.getNumNz()),
        }

    def add_rows(self, rows: SparseRows) -> int:
        """Append rows; how many."""
        count, entries = len(rows.upper), len(rows.column)
        start, column = rows.start[:-1].astype(np.int32), rows.column.astype(np.int32)
        self._highs.addRows(count, rows.lower, rows.upper, entries, start, column, rows.value)
        self._rows = self._rows.followed_by(rows)
        return count

    def drop_rows(self, first: int) -> None:
        """Delete the rows from number ``first`` on."""
        numbers = np.arange(first, self.rows, dtype=np.int32)
        self._highs.deleteRows(len(numbers), numbers)
        self._rows = self._rows.until(first)

    def limit_rows(self, numbers: IntArray, upper: FloatArray) -> None:
        """Change the upper limits of rows that have no lower one."""
        for row, limit in zip(numbers.tolist(), upper.tolist(), strict=True):
            self._highs.changeRowBounds(row, -highspy.kHighsInf, limit)
        self._rows.upper[numbers] = upper

    def limit_columns(self, numbers: IntArray, upper: FloatArray) -> None:
        """Change the upper limits of columns that are at least 0."""
        columns = numbers.astype(np.int32)
        self._highs.changeColsBounds(len(columns), columns, np.zeros(len(columns)), upper)
        self._least[numbers], self._most[numbers] = 0.0, upper

    def _outcome(self) -> SolverRun:
        highs, is_mip = self._highs, self._is_integral
        status, info = _STATUS.get(highs.getModelStatus(), "failed"), highs.getInfo()
        feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        feasible &= is_mip or status == "optimal"  # the simplex method may stop on its way
        objective = info.objective_function_value if feasible else None
        if status == "infeasible":
            bound = inf
        else:
            bound = float(info.mip_dual_bound) if is_mip else self.proven()
            bound = bound if isfinite(bound) else -inf
        incumbents, self._incumbents, self._best = self._incumbents, [], None
        return SolverRun(
            status,
            np.array(highs.getSolution().col_value) if feasible else None,
            objective,
            bound,
            max(0, int(info.mip_node_count)) if is_mip else 0,
            planning_seconds() - self._began,
            incumbents,
        )


def _at_ends(factor: FloatArray, lower: FloatArray, upper: FloatArray) -> float:
    """The sum of factors times the lower limits where they are above 0, else times the upper."""
    ends = np.where(factor > 0, lower, upper)
    used = factor != 0
    return float(np.dot(factor[used], ends[used]))


def presolved(program: LinearProgram, seconds: float = 2.0) -> tuple[Status, dict[str, int]]:
    """Rows, columns and non-zeros that HiGHS's presolve leaves of the mixed-integer program.

    Where it does not end in time, those of the program; zeros where there is no solution.
    """
    highs = _silent(1, 0)
    highs.setOptionValue("time_limit", seconds)
    program.pass_to(highs, integral=True)
    ended = highs.presolve() == highspy.HighsStatus.kOk
    if highs.getModelPresolveStatus() == highspy.HighsPresolveStatus.kInfeasible:
        return "infeasible", dict.fromkeys(program.size, 0)
    if not ended:
        return "time_limit", program.size
    left = highs.getPresolvedLp()
    sizes = left.num_row_, left.num_col_, len(left.a_matrix_.value_)
    return "optimal", dict(zip(program.size, sizes, strict=True))


def _silent(threads: int, seed: int) -> highspy.Highs:
    _running[:] = [thread for thread in _running if thread.is_alive()]
    if not _running:  # all share one scheduler, which has the threads that it began with
        highspy.Highs.resetGlobalScheduler(True)
    with suppress(OSError):  # there is no console
        _take_banner()
    highs = highspy.Highs()
    highs.silent()
    highs.setOptionValue("threads", threads)
    highs.setOptionValue("random_seed", seed % 2**31)  # what HiGHS takes
    return highs


@functools.cache
def _take_banner() -> None:
    """HiGHS 1.16 prints one with a process's first object, before that can be told not to."""
    console = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        highspy.Highs()
    finally:
        os.dup2(console, 1)
        os.close(console)
