"""monet: the published integer program, solved by HiGHS (Shah et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, get_args

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, NotApplicable, Stopped
from rematbench.engines.joint.implementations import VARIANTS, AllowedImplementations
from rematbench.engines.lp.solver import SOLVER, Solver
from rematbench.engines.stages.space import check
from rematbench.graphs.ir import Phase
from rematbench.graphs.kinds import Kind
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import (
    Problem,
    Solution,
    Traits,
    available_threads,
    cheapest_within,
    check_choice,
    check_share,
)
from rematbench.strategies.monet.published.decode import decoded
from rematbench.strategies.monet.published.program import Locals, Published

# Budgets that the program is given, over the real one: it knows neither all ops nor all values.
_FACTORS = (1.0, 0.95, 0.9, 0.85, 0.8, 0.7)


@dataclass(frozen=True)
class Monet:
    """MONeT's integer program as published: schedule and implementations in one solve.

    Its solution says what is stored before each backward op and how backward ops are computed. The
    plan that does so is simulated; where it needs more than the program counted, the program is
    solved for less. The search for the same problem that is ours is ``anytime_joint``.

    Attributes:
        operators: MONeT; False: MONeT-NoOp, without a choice of implementations.
        locals: appendix B's bound of local memory, ``loose`` or ``tight``.
        gap: relative gap at which HiGHS stops.
        presolve: only put the size that HiGHS's presolve leaves into the row (Table 7); the program
            is not solved.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    operators: bool = True
    locals: Locals = "loose"
    gap: float = 0.005
    presolve: bool = False

    def __post_init__(self) -> None:
        check_choice("locals", self.locals, get_args(Locals))
        check_share("gap", self.gap)

    @property
    def kinds(self) -> frozenset[Kind]:
        """What it chooses from (:class:`~rematbench.strategies.base.ChoosesImplementations`)."""
        return VARIANTS["full" if self.operators else "noop"]

    @property
    def wants_density(self) -> bool:
        """MONeT is lossless and dense."""
        return False

    def plan(self, problem: Problem) -> Solution:
        """The plan; ``objective`` is the program's, and ``extra`` has its size.

        Raises:
            NotApplicable: a graph without a loss, or whose ops overwrite by default.
            Infeasible: the program has no solution.
            Stopped: HiGHS found none in time, or was not asked to; says how large the program is.
        """
        graph, budget = problem.graph, problem.budget
        loss = graph.loss_index
        if loss is None or any(op.phase is Phase.FORWARD for op in graph.ops[loss:]):
            raise NotApplicable("MONeT plans training steps: a loss, and only backward after it")
        check(graph, budget)
        started = planning_seconds()
        order = program_order(graph)
        fits = budget is None or simulate(graph, order).peak_bytes <= budget
        if budget is None or (fits and not self.presolve):
            return Solution(order)
        run = _ProgramRun(self, problem, budget, started)
        try:
            factor, plan, _, curve = cheapest_within(problem, run.candidates())
        except Infeasible as error:
            raise run.without_plan(error) from None
        details = {**run.facts, "program_budget_bytes": int(factor * budget), "curve": curve}
        return Solution(
            plan,
            objective=run.objective[factor],
            solver=SOLVER,
            details=details,
        )


class _ProgramRun:
    """The program for one budget after another, until a plan fits.

    Attributes:
        facts: the size of the program for the whole budget, for a row's ``extra``.
        objective: of the solutions, by factor of the budget, in the graph's cost unit.
    """

    def __init__(self, options: Monet, problem: Problem, budget: int, started: float) -> None:
        self.options, self.problem, self.budget = options, problem, budget
        self.implementations = AllowedImplementations.of(problem.graph, options.kinds, budget)
        self.deadline = started + problem.time_limit
        self.facts: dict[str, Any] = {"operators": options.operators, "locals": options.locals}
        self.objective: dict[float, float] = {}
        self.status = "time_limit"

    def candidates(self) -> Iterator[tuple[float, Plan]]:
        """(factor of the budget, plan) for each solution."""
        for factor in _FACTORS:
            x = self._solve(factor)
            if x is None:
                return
            plan = decoded(*x, self.implementations, self.budget)
            yield factor, plan
            if simulate(self.problem.graph, plan).peak_bytes <= self.budget:
                return

    def _solve(self, factor: float) -> tuple[Published, Any] | None:
        options, problem = self.options, self.problem
        free_bytes = int(factor * self.budget)
        published = Published(problem.graph, free_bytes, options.operators, options.locals)
        if factor == 1.0:
            self.facts |= published.facts
        if options.presolve:
            self.facts |= published.presolved(max(0.0, self.deadline - planning_seconds()))
            self.status = "presolved"
            return None
        threads = available_threads()
        solver = Solver(published.program, integral=True, seed=problem.seed, threads=threads)
        solver.stop_when(options.gap)
        outcome = solver.run(self.deadline, lambda: False)
        if outcome is None or outcome.x is None or outcome.objective is None:
            self.status = "infeasible" if outcome and outcome.bound == inf else "time_limit"
            return None
        self.objective[factor] = published.cost_of(outcome.objective)
        return published, outcome.x

    def without_plan(self, error: Infeasible) -> Infeasible:
        """What is said where no plan fits."""
        size = "MONeT's program"
        if "published_rows" in self.facts:
            rows, columns = self.facts["published_rows"], self.facts["published_columns"]
            size += f", {rows:,} rows and {columns:,} columns,"
        else:
            size += ", which was not even written down in time,"
        if self.status == "infeasible":
            return Infeasible(
                f"{size} has no solution for {self.budget} bytes, or for those at which its plans "
                "fit; anytime_joint searches without it",
                smallest_peak_found=error.smallest_peak_found,
                details=self.facts,
            )
        if self.status == "presolved":
            return Stopped(
                f"{size} was presolved, not solved: strategy.presolve=true asks for its size alone",
                details=self.facts,
            )
        return Stopped(
            f"HiGHS found no solution of {size} in {self.problem.time_limit:g} s whose plan fits; "
            "give more time_limit, or use anytime_joint",
            smallest_peak_found=error.smallest_peak_found,
            details=self.facts,
        )
