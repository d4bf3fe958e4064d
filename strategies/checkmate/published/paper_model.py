"""Problem (9), compiled once from Pyomo to arrays, and solved as often as needed.

Pyomo's ``LinearStandardFormCompiler`` gives the coordinate triples of a program for HiGHS.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf, isfinite
from typing import Any

import numpy as np
import pyomo.environ as pyo
from pyomo.common.gc_manager import PauseGC
from pyomo.repn.plugins.standard_form import LinearStandardFormCompiler

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, RematbenchError, Stopped
from rematbench.engines.lp.program import LinearProgram
from rematbench.engines.lp.solver import SOLVER, Solver, SolverRun, presolved
from rematbench.engines.plans.stages import FloatArray, plan_from_stages
from rematbench.engines.stages.space import check
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import BoundOf, Problem, Solution, fitted
from rematbench.strategies.checkmate.published.paper import MOST_OPS, SCALE, Nodes, problem_9


def lowered(form: Any) -> LinearProgram:
    """What Pyomo's compiler made of a model, as a program."""
    program = LinearProgram(offset=float(form.c_offset[0]))
    for cost, variable in zip(form.c.toarray()[0].tolist(), form.columns, strict=True):
        lower, upper = variable.bounds
        lower, upper = -inf if lower is None else lower, inf if upper is None else upper
        program.column(cost, variable.is_integer(), lower, upper)
    side = np.array([row.bound_type for row in form.rows])  # -1: >=, 0: ==, 1: <=
    lower, upper = np.where(side <= 0, form.rhs, -inf), np.where(side >= 0, form.rhs, inf)
    matrix = form.A.tocoo()
    program.triples(lower, upper, matrix.row, matrix.col, matrix.data)
    return program


class PaperModel:
    """Problem (9) for one graph and budget.

    Attributes:
        graph, nodes: the graph, and as (9) sees it.
        program: for HiGHS.

    Raises:
        NotApplicable: the graph is too large, or has ops that overwrite what they read.
        Infeasible: the budget is below the graph's floor.
    """

    def __init__(
        self, graph: Graph, budget: int, partitioned: bool = True, most: int = MOST_OPS
    ) -> None:
        started = planning_seconds()
        check(graph, budget)
        self.graph, self._partitioned = graph, partitioned
        self._budget: float = budget
        self._memory_unit = SCALE / budget
        self.nodes = Nodes.of(graph, most)
        with PauseGC():  # it would go through all expressions again and again, and find nothing
            self._model = problem_9(self.nodes, budget, partitioned)
            self._form = LinearStandardFormCompiler().write(self._model, mixed_form=True)
            self.program = lowered(self._form)
        self._relaxation: Solver | None = None
        self._build_seconds = planning_seconds() - started

    @property
    def size(self) -> dict[str, Any]:
        """Rows, columns and non-zeros after presolve, and build time, for a row's ``extra``."""
        return {**presolved(self.program)[1], "build_seconds": self._build_seconds}

    def change_budget(self, budget: float) -> None:
        """Solve for another budget, in bytes, from now on; the next relaxation starts warm."""
        by, model = self._memory_unit * (budget - self._budget), self._model
        owners = [variable.parent_component() for variable in self._form.columns]
        columns = np.flatnonzero([owner is model.U for owner in owners])
        owners = [row.constraint.parent_component() for row in self._form.rows]
        rows = np.flatnonzero([owner is model.workspace for owner in owners])
        limits = self.program.raise_columns(columns, by), self.program.raise_rows(rows, by)
        if self._relaxation is not None:
            self._relaxation.limit_columns(columns, limits[0])
            self._relaxation.limit_rows(rows, limits[1])
        self._budget = budget

    def relax(self, *, time_limit: float = inf, threads: int = 1, seed: int = 0) -> SolverRun:
        """Solve the linear relaxation, with costs in the graph's unit.

        Raises:
            Infeasible: HiGHS proved that (9) has no solution.
            Stopped: it did not finish in time.
        """
        if self._relaxation is None:
            self._relaxation = Solver(self.program, seed=seed, threads=threads)
        return self._run(self._relaxation, time_limit)

    def solve(
        self, *, time_limit: float = inf, threads: int = 1, mip_gap: float = 1e-4, seed: int = 0
    ) -> SolverRun:
        """Solve the model, up to a relative gap, with costs in the graph's unit.

        Raises:
            Infeasible: HiGHS proved that (9) has no solution.
            Stopped: it found none in time.
        """
        solver = Solver(self.program, integral=True, seed=seed, threads=threads)
        solver.stop_when(mip_gap)
        return self._run(solver, time_limit)

    def _run(self, solver: Solver, time_limit: float) -> SolverRun:
        outcome = solver.run(planning_seconds() + time_limit, lambda: False)
        if outcome is None:
            raise Stopped(self._too_slow(time_limit))
        if outcome.status == "infeasible":
            reason = f"Checkmate's problem (9) has no solution within {self._budget:.0f} bytes"
            raise Infeasible(reason, proven=self.nodes.exact)
        if outcome.status == "failed":
            raise RematbenchError("HiGHS failed on problem (9); try another seed or budget")
        if outcome.x is None or outcome.objective is None:
            raise Stopped(self._too_slow(outcome.seconds))
        for variable, value in zip(self._form.columns, outcome.x.tolist(), strict=True):
            variable.set_value(value, skip_validation=True)
        unit = (sum(self.nodes.cost) or 1.0) / SCALE
        return replace(
            outcome,
            objective=outcome.objective * unit,
            bound=outcome.bound * unit,
            incumbents=[(s, c * unit, b and b * unit) for s, c, b in outcome.incumbents],
        )

    def _too_slow(self, seconds: float) -> str:
        size = self.program.size
        return (
            f"HiGHS found no solution of (9) as printed, {size['rows']:,} rows and "
            f"{size['columns']:,} columns, in {seconds:.0f} s; give more time_limit, or use anytime"
        )

    def matrices(self) -> tuple[FloatArray, FloatArray]:
        """R and S of the last solve, shape (n, n), fractional after a relaxed one."""
        return self._matrix(self._model.R), self._matrix(self._model.S)

    def _matrix(self, variable: pyo.Var) -> FloatArray:
        matrix = np.zeros((len(self.nodes), len(self.nodes)))
        for (t, i), entry in variable.items():
            matrix[t - 1, i - 1] = entry.value or 0.0
        return matrix

    def plan(self) -> Plan:
        """The plan of the last integral solve (Algorithm 1)."""
        computed = self.matrices()[0] > 0.5
        if not self._partitioned and self.nodes.outputs == {len(self.nodes)}:
            flat = computed.reshape(-1)  # a view
            last = np.flatnonzero(computed[:, -1])[-1]
            flat[(last + 1) * len(self.nodes) :] = False
        return plan_from_stages(self.graph, computed)


class PaperRelaxation:
    """The linear relaxation of (9) as printed, as :class:`~.fractional.Relaxed`.

    Args:
        most: refuse graphs with more ops.
        threads, seed: of HiGHS.
    """

    bound_of: BoundOf = "9"

    def __init__(self, graph: Graph, budget: int, most: int, threads: int, seed: int) -> None:
        self._paper = PaperModel(graph, budget, most=most)
        self._budget, self._threads, self._seed = budget, threads, seed

    @property
    def size(self) -> dict[str, Any]:
        """As :attr:`PaperModel.size`."""
        return self._paper.size

    def relax(self, share: float, deadline: float) -> float:
        """As :meth:`~.fractional.Relaxed.relax`."""
        self._paper.change_budget(share * self._budget)
        left = deadline - planning_seconds()
        outcome = self._paper.relax(time_limit=left, threads=self._threads, seed=self._seed)
        return outcome.bound

    def matrices(self) -> tuple[FloatArray, FloatArray]:
        """As :meth:`PaperModel.matrices`."""
        return self._paper.matrices()


def solve_paper(
    problem: Problem,
    *,
    partitioned: bool = True,
    threads: int = 1,
    mip_gap: float = 1e-4,
    most: int = MOST_OPS,
) -> Solution:
    """The cheapest plan in the space of (9).

    Args:
        partitioned: see :func:`problem_9`; the other form is only solved for tiny graphs.
        threads: of HiGHS.
        mip_gap: relative gap at which to stop.
        most: refuse graphs with more ops.

    Raises:
        NotApplicable: the graph is too large, or has ops that overwrite what they read.
        Infeasible: HiGHS proved that there is no plan.
        Stopped: it found none in time.
    """
    started = planning_seconds()
    variant = "9" if partitioned else "unpartitioned"
    if problem.budget is None:
        plan = program_order(problem.graph)
        cost = simulate(problem.graph, plan).cost
        return Solution(plan, cost, "9", cost, variant)
    paper = PaperModel(problem.graph, problem.budget, partitioned, most)
    left = problem.time_limit - (planning_seconds() - started)
    outcome = paper.solve(time_limit=left, threads=threads, mip_gap=mip_gap, seed=problem.seed)
    return fitted(
        problem,
        paper.plan(),
        bound=outcome.bound if isfinite(outcome.bound) else None,
        bound_of="9",
        objective=outcome.objective,
        variant=variant,
        solver=SOLVER,
        details={
            **paper.size,
            "nodes": outcome.nodes,
            "incumbents": outcome.incumbents,
            "solver_status": outcome.status,
        },
    )


def solve_with_gap(
    problem: Problem, *, partitioned: bool = True, threads: int = 1, most: int = MOST_OPS
) -> Solution:
    """The cheapest plan in the space of (9), and how far below it a form's relaxation lies.

    Args:
        partitioned: of which form; the plan is that of the partitioned one in both cases, see
            :func:`integrality_gap`.
        threads: of HiGHS.
        most: refuse graphs with more ops.

    Returns:
        With ``integrality_gap`` among its details, where there is a budget.

    Raises:
        NotApplicable, Infeasible, Stopped: as :func:`solve_paper`.
    """
    started = planning_seconds()
    best = solve_paper(problem, threads=threads, mip_gap=0.0, most=most)
    assert best.plan is not None
    if problem.budget is None:
        return best
    cost = simulate(problem.graph, best.plan).cost
    left = max(0.0, problem.time_limit - (planning_seconds() - started))
    gap = integrality_gap(problem.graph, problem.budget, partitioned, left, optimum=cost)
    return replace(
        best,
        variant=best.variant if partitioned else "unpartitioned",
        details={**best.details, "integrality_gap": gap},
    )


def integrality_gap(
    graph: Graph,
    budget: int,
    partitioned: bool = True,
    time_limit: float = float("inf"),
    optimum: float | None = None,
) -> float:
    """Cost of the best plan over that of the linear relaxation (Checkmate, appendix A).

    The best plan is that of the partitioned form in both cases: solving the other one takes hours
    for 17 ops, and where the paper did, it found the same cost.

    Args:
        optimum: the best plan's cost, where it is known.

    Raises:
        NotApplicable: the graph is too large.
        Infeasible: there is no plan.
        Stopped: HiGHS found none in time.
    """
    if optimum is None:
        optimum = PaperModel(graph, budget).solve(time_limit=time_limit, mip_gap=0.0).objective
    relaxed = PaperModel(graph, budget, partitioned).relax(time_limit=time_limit)
    assert optimum is not None
    assert relaxed.objective is not None
    return optimum / relaxed.objective
