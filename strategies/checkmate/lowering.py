"""From a Pyomo model to HiGHS in one go: compile once, pass once, solve as often as needed.

The model is compiled to arrays by Pyomo's ``LinearStandardFormCompiler`` and reaches HiGHS in a
single ``passModel``. Models should come scaled, so that their large numbers are about 100.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Thread
from time import perf_counter
from typing import Any, Literal

import highspy
import numpy as np
from numpy.typing import NDArray
from pyomo.core import ConcreteModel, Constraint, Var
from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

from rematbench.graphs.errors import RematbenchError

FloatArray = NDArray[np.float64]
Status = Literal["optimal", "infeasible", "time_limit"]
Incumbent = tuple[float, float, float | None]
"""(seconds, cost, bound)."""

SOLVER = (
    f"highs {highspy.HIGHS_VERSION_MAJOR}.{highspy.HIGHS_VERSION_MINOR}"
    f".{highspy.HIGHS_VERSION_PATCH}"
)

PATIENCE = 1.0
"""Seconds beyond its time limit after which HiGHS is left behind."""

_STATUS: dict[Any, Status] = {
    highspy.HighsModelStatus.kOptimal: "optimal",
    highspy.HighsModelStatus.kInfeasible: "infeasible",
    highspy.HighsModelStatus.kUnboundedOrInfeasible: "infeasible",  # costs are never negative
    highspy.HighsModelStatus.kTimeLimit: "time_limit",
    highspy.HighsModelStatus.kInterrupt: "time_limit",
}


@dataclass(frozen=True)
class Outcome:
    """What HiGHS made of a model, in the model's own units.

    Attributes:
        status: ``optimal`` means within the gap asked for.
        values: per column, or None without a feasible point.
        objective: of these values, or None.
        bound: a proven lower bound of the objective, or None.
        nodes: of the branch-and-bound tree; 0 for a linear program.
        seconds: of the solve, without compilation.
        incumbents: each better solution as it was found.
    """

    status: Status
    values: FloatArray | None
    objective: float | None
    bound: float | None
    nodes: int
    seconds: float
    incumbents: list[Incumbent] = field(default_factory=list)


class Lowered:
    """A Pyomo model as arrays, ready for HiGHS.

    Args:
        model: linear, with one objective, to be minimized; fixed variables become constants.

    Attributes:
        columns, rows, nonzeros: size of the matrix.
        build_seconds: time that compilation took.
    """

    def __init__(self, model: ConcreteModel) -> None:
        started = perf_counter()
        self._form = LinearStandardFormCompiler().write(model, mixed_form=True)
        self._lp = _highs_lp(self._form)
        self._relaxation: highspy.Highs | None = None
        self.rows, self.columns = self._form.A.shape
        self.nonzeros = int(self._form.A.nnz)
        self.build_seconds = perf_counter() - started

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and non-zeros after presolve, for a row's ``extra``."""
        return presolved_size(self._lp)

    def raise_columns(self, part: Var, by: float) -> None:
        """Add ``by`` to the upper bounds of an indexed variable."""
        mine = [variable.parent_component() is part for variable in self._form.columns]
        chosen = np.flatnonzero(mine).astype(np.int32)
        upper = np.array(self._lp.col_upper_)
        upper[chosen] += by
        self._lp.col_upper_ = upper
        if self._relaxation is not None:
            lower = np.array(self._lp.col_lower_)[chosen]
            self._relaxation.changeColsBounds(len(chosen), chosen, lower, upper[chosen])

    def raise_rows(self, part: Constraint, by: float) -> None:
        """Add ``by`` to the upper bounds of an indexed constraint."""
        mine = [row.constraint.parent_component() is part for row in self._form.rows]
        chosen = np.flatnonzero(mine).astype(np.int32)
        upper = np.array(self._lp.row_upper_)
        upper[chosen] += by
        self._lp.row_upper_ = upper
        if self._relaxation is not None:
            lower = np.array(self._lp.row_lower_)
            for row in chosen.tolist():
                self._relaxation.changeRowBounds(row, lower[row], upper[row])

    def relax(
        self, *, time_limit: float = float("inf"), threads: int = 1, seed: int = 0
    ) -> Outcome:
        """Solve the linear relaxation; a second call starts from the basis of the first.

        The solution is written into the model's variables.
        """
        if self._relaxation is None:
            self._relaxation = new_solver(threads, seed)
            self._relaxation.passModel(self._lp)
            everything = np.arange(self.columns, dtype=np.int32)
            kinds = np.full(self.columns, int(highspy.HighsVarType.kContinuous), dtype=np.uint8)
            self._relaxation.changeColsIntegrality(self.columns, everything, kinds)
        return self._run(self._relaxation, time_limit, [])

    def solve(
        self,
        *,
        time_limit: float = float("inf"),
        threads: int = 1,
        mip_gap: float = 1e-4,
        seed: int = 0,
    ) -> Outcome:
        """Solve the model; the solution is written into the model's variables.

        Args:
            time_limit: in seconds.
            threads: of HiGHS.
            mip_gap: relative gap at which to stop.
            seed: of HiGHS.
        """
        highs = new_solver(threads, seed)
        highs.setOptionValue("mip_rel_gap", mip_gap)
        incumbents: list[Incumbent] = []
        highs.cbMipImprovingSolution.subscribe(lambda event: _record(event, incumbents))
        highs.passModel(self._lp)
        return self._run(highs, time_limit, incumbents)

    def _run(self, highs: highspy.Highs, time_limit: float, incumbents: list[Incumbent]) -> Outcome:
        before = highs.getRunTime()  # HiGHS adds up the time of all runs
        highs.setOptionValue("time_limit", before + max(0.0, time_limit))
        highs.run()
        outcome = _outcome(highs, highs.getRunTime() - before, incumbents)
        if outcome.values is not None:
            for variable, value in zip(self._form.columns, outcome.values.tolist(), strict=True):
                variable.set_value(value, skip_validation=True)
        return outcome


def _highs_lp(form: Any) -> highspy.HighsLp:
    lp = highspy.HighsLp()
    lp.num_row_, lp.num_col_ = form.A.shape
    lp.offset_ = float(form.c_offset[0])
    lp.col_cost_ = form.c.toarray()[0]
    bounds = np.array([variable.bounds for variable in form.columns], dtype=float)
    lp.col_lower_ = np.where(np.isnan(bounds[:, 0]), -highspy.kHighsInf, bounds[:, 0])
    lp.col_upper_ = np.where(np.isnan(bounds[:, 1]), highspy.kHighsInf, bounds[:, 1])
    side = np.array([row.bound_type for row in form.rows])  # -1: >=, 0: ==, 1: <=
    lp.row_lower_ = np.where(side <= 0, form.rhs, -highspy.kHighsInf)
    lp.row_upper_ = np.where(side >= 0, form.rhs, highspy.kHighsInf)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = form.A.shape
    lp.a_matrix_.start_ = form.A.indptr
    lp.a_matrix_.index_ = form.A.indices
    lp.a_matrix_.value_ = form.A.data
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[variable.is_integer()] for variable in form.columns]
    return lp


_running: list[Thread] = []


def run_beside(highs: highspy.Highs, deadline: float, idle: Callable[[], bool]) -> bool:
    """Run HiGHS in a thread of its own; False where it did not stop in time.

    Then it is left behind, to end by itself; nobody may touch it.

    Args:
        deadline: on the clock of ``perf_counter``.
        idle: called again and again meanwhile; False when it has nothing to do.
    """
    left = max(0.0, deadline - perf_counter())
    highs.setOptionValue("time_limit", highs.getRunTime() + left)
    thread = Thread(target=highs.run)
    _running.append(thread)
    thread.start()
    while thread.is_alive() and perf_counter() < deadline + PATIENCE:
        if not idle():
            thread.join(0.02)
    return not thread.is_alive()


def presolved_size(lp: highspy.HighsLp) -> dict[str, int]:
    """Rows, columns and non-zeros that HiGHS's presolve leaves (or those given, after 2 s)."""
    highs = new_solver(1, 0)
    highs.setOptionValue("time_limit", 2.0)
    highs.passModel(lp)
    done = highs.presolve() == highspy.HighsStatus.kOk
    left = highs.getPresolvedLp() if done else lp
    sizes = left.num_row_, left.num_col_, len(left.a_matrix_.value_)
    return dict(zip(("rows", "columns", "nonzeros"), sizes, strict=True))


def new_solver(threads: int, seed: int) -> highspy.Highs:
    """HiGHS, silent."""
    _running[:] = [thread for thread in _running if thread.is_alive()]
    if not _running:  # all share one scheduler, which has the threads that it began with
        highspy.Highs.resetGlobalScheduler(True)
    highs = highspy.Highs()
    highs.silent()
    highs.setOptionValue("threads", threads)
    highs.setOptionValue("random_seed", seed)
    return highs


def _record(event: highspy.HighsCallbackEvent, incumbents: list[Incumbent]) -> None:
    out = event.data_out
    incumbents.append((out.running_time, out.objective_function_value, _finite(out.mip_dual_bound)))


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def _outcome(highs: highspy.Highs, seconds: float, incumbents: list[Incumbent]) -> Outcome:
    found = highs.getModelStatus()
    if found not in _STATUS:
        raise RematbenchError(
            f"HiGHS stopped with {highs.modelStatusToString(found)!r}; try another seed or budget"
        )
    status, info = _STATUS[found], highs.getInfo()
    is_mip = highspy.HighsVarType.kInteger in highs.getLp().integrality_
    feasible = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    feasible &= is_mip or status == "optimal"  # the simplex method may stop on its way
    objective = info.objective_function_value if feasible else None
    if is_mip:
        bound = None if status == "infeasible" else _finite(info.mip_dual_bound)
    else:
        bound = objective
    return Outcome(
        status,
        np.array(highs.getSolution().col_value) if feasible else None,
        objective,
        bound,
        int(info.mip_node_count) if is_mip else 0,
        seconds,
        incumbents,
    )
