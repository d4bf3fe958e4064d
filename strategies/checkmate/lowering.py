"""From a Pyomo model to HiGHS in one go: compile once, pass once, solve as often as needed.

The model is compiled to arrays by Pyomo's ``LinearStandardFormCompiler``, and these are the
coordinate triples of a program. Models should come scaled, so that their large numbers are about
100.
"""

from __future__ import annotations

from math import inf
from time import perf_counter
from typing import Any

import numpy as np
from pyomo.core import ConcreteModel, Constraint, Var
from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

from rematbench.strategies.scheduling.program import LinearProgram
from rematbench.strategies.scheduling.solver import Outcome, Solver, presolved


class Lowered:
    """A Pyomo model as a program for HiGHS.

    Args:
        model: linear, with one objective, to be minimized; fixed variables become constants.

    Attributes:
        program: for HiGHS.
        build_seconds: time that compilation took.
    """

    def __init__(self, model: ConcreteModel) -> None:
        started = perf_counter()
        self._form = LinearStandardFormCompiler().write(model, mixed_form=True)
        self.program = _program(self._form)
        self._relaxation: Solver | None = None
        self.build_seconds = perf_counter() - started

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and non-zeros after presolve, for a row's ``extra``."""
        return presolved(self.program)[1]

    def raise_columns(self, part: Var, by: float) -> None:
        """Add ``by`` to the upper bounds of an indexed variable."""
        mine = [variable.parent_component() is part for variable in self._form.columns]
        chosen = np.flatnonzero(mine)
        upper = self.program.raise_columns(chosen, by)
        if self._relaxation is not None:
            self._relaxation.limit_columns(chosen, upper)

    def raise_rows(self, part: Constraint, by: float) -> None:
        """Add ``by`` to the upper bounds of an indexed constraint."""
        mine = [row.constraint.parent_component() is part for row in self._form.rows]
        chosen = np.flatnonzero(mine)
        upper = self.program.raise_rows(chosen, by)
        if self._relaxation is not None:
            self._relaxation.limit_rows(chosen, upper)

    def relax(self, *, time_limit: float = inf, threads: int = 1, seed: int = 0) -> Outcome:
        """Solve the linear relaxation; a second call starts from the basis of the first.

        The solution is written into the model's variables.
        """
        if self._relaxation is None:
            self._relaxation = Solver(self.program, seed=seed, threads=threads)
        return self._run(self._relaxation, time_limit)

    def solve(
        self, *, time_limit: float = inf, threads: int = 1, mip_gap: float = 1e-4, seed: int = 0
    ) -> Outcome:
        """Solve the model; the solution is written into the model's variables.

        Args:
            time_limit: in seconds.
            threads: of HiGHS.
            mip_gap: relative gap at which to stop.
            seed: of HiGHS.
        """
        solver = Solver(self.program, integral=True, seed=seed, threads=threads)
        solver.stop_when(mip_gap)
        return self._run(solver, time_limit)

    def _run(self, solver: Solver, time_limit: float) -> Outcome:
        outcome = solver.run(perf_counter() + time_limit)
        assert outcome is not None  # it ran in this thread
        if outcome.x is not None:
            for variable, value in zip(self._form.columns, outcome.x.tolist(), strict=True):
                variable.set_value(value, skip_validation=True)
        return outcome


def _program(form: Any) -> LinearProgram:
    program = LinearProgram(offset=float(form.c_offset[0]))
    for cost, variable in zip(form.c.toarray()[0].tolist(), form.columns, strict=True):
        lower, upper = variable.bounds
        program.column(
            cost,
            variable.is_integer(),
            lower=-inf if lower is None else lower,
            upper=inf if upper is None else upper,
        )
    side = np.array([row.bound_type for row in form.rows])  # -1: >=, 0: ==, 1: <=
    matrix = form.A.tocoo()
    program.triples(
        np.where(side <= 0, form.rhs, -inf),
        np.where(side >= 0, form.rhs, inf),
        matrix.row,
        matrix.col,
        matrix.data,
    )
    return program
