"""checkmate_ilp: problem (9) of Checkmate, solved by HiGHS (Jain et al., MLSys 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, Stopped
from rematbench.engines.anytime import Progress
from rematbench.engines.lp.solver import SOLVER, SolverRun
from rematbench.engines.plans.stages import needed
from rematbench.engines.stages.space import Schedule, Space, check
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import (
    Problem,
    Solution,
    Traits,
    available_threads,
    check_choice,
    check_share,
    cost_of_once,
)
from rematbench.strategies.checkmate.fractional import RowRelaxation
from rematbench.strategies.checkmate.published.paper import MOST_OPS
from rematbench.strategies.checkmate.published.paper_model import solve_paper, solve_with_gap
from rematbench.strategies.checkmate.rounding import EPSILONS, THRESHOLDS, round_at, two_phase

VARIANTS = ("rows", "paper", "unpartitioned")
MOST_COLUMNS = 1_000_000
"""Of a program that is still built: 1,000 ops."""
ROUNDING = 0.2
"""Share of the time for the paper's own approximation, whose plan the program starts from."""
TOLERANCE = 1e-6
"""Relative gap at which a cost counts as proven optimal."""


@dataclass(frozen=True)
class CheckmateIlp:
    """The cheapest schedule of Checkmate's problem (9) within a budget, with HiGHS' bound.

    The variables are the paper's R and S, for every stage and op. Its memory constraints, which
    linearize when each value is freed, are added where a solution violates them: the same
    schedules are allowed, and the optimum is the same. The program starts from the cheapest plan
    of the paper's two-phase rounding (section 5). Nothing else searches.

    Attributes:
        variant: ``rows``, as above; ``paper``, (9) as printed, with all of its constraints at once;
            ``unpartitioned``, without the frontier-advancing stages of (8). The last two are for
            small graphs.
        gap: relative gap (cost - bound) / cost at which to stop.
        threads: of HiGHS; None: those of the job.
        max_ops: most ops of a graph for variants other than ``rows``.
        integrality_gap: solve the variant's linear relaxation, too, for ``extra.integrality_gap``
            (variants other than ``rows``).

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    variant: Literal["rows", "paper", "unpartitioned"] = "rows"
    gap: float = 1e-4
    threads: int | None = None
    max_ops: int = MOST_OPS
    integrality_gap: bool = False

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, VARIANTS)
        check_share("gap", self.gap)

    def plan(self, problem: Problem) -> Solution:
        """The plan, and a bound of (9).

        Raises:
            NotApplicable: an op overwrites what it reads, or the graph is too large for the
                variant.
            Infeasible: (9) has no schedule within the budget.
            Stopped: none was found in time; says how large the program is.
        """
        threads = self.threads or available_threads()
        partitioned = self.variant != "unpartitioned"
        if self.variant != "rows" and self.integrality_gap:
            return solve_with_gap(
                problem, partitioned=partitioned, threads=threads, most=self.max_ops
            )
        if self.variant != "rows":
            return solve_paper(
                problem,
                partitioned=partitioned,
                threads=threads,
                mip_gap=self.gap,
                most=self.max_ops,
            )
        started = planning_seconds()
        order = program_order(problem.graph)
        trace = simulate(problem.graph, order)
        if problem.budget is None or trace.peak_bytes <= problem.budget:
            least = cost_of_once(problem.graph)
            return Solution(order, least, "any", variant="rows")
        check(problem.graph, problem.budget)
        run = _Run(problem, problem.budget, started, max(self.gap, TOLERANCE), threads)
        with run.progress.interruptible():
            run.run()
        return run.solution()


class _Run:
    """The relaxation, its roundings, and the program in whole numbers.

    Attributes:
        progress: the best plan so far, the bound, and when what was found.
    """

    def __init__(
        self, problem: Problem, budget: int, started: float, gap: float, threads: int
    ) -> None:
        self._graph, self._budget, self._limit = problem.graph, budget, problem.time_limit
        self._deadline = started + problem.time_limit
        self.progress = Progress(started, gap, problem.report, hand_over=problem.hand_over)
        self.progress.bound = cost_of_once(problem.graph)
        self._best: Schedule[Space] | None = None
        self._nodes = self._runs = 0
        count = len(needed(problem.graph))
        columns = count * (count - 1)
        if columns > MOST_COLUMNS:
            raise Stopped(
                f"(9) has {columns:,} columns for {count} ops, and no solver of today comes to an "
                "end; use checkmate_rounding, or anytime"
            )
        idle = self.progress.rest
        self._relaxed = RowRelaxation(
            problem.graph, budget, seed=problem.seed, threads=threads, idle=idle
        )

    def run(self) -> None:
        """All of it, until the gap is closed or time is up.

        Raises:
            Infeasible: there is no schedule within the budget.
            Stopped: the linear relaxation was not solved in time.
        """
        self.progress.raise_bound(self._relaxed.relax(1.0, self._deadline))
        now = planning_seconds()
        self._round(now + ROUNDING * (self._deadline - now))
        share: float | None = 1.0
        while share is not None and not self.progress.closed():
            share = self._integral(share)

    def _integral(self, share: float) -> float | None:
        """Solve the program, and say for which share of the budget to solve it again.

        HiGHS lets a solution violate a row by a millionth of a per cent of the budget. Where that
        puts a plan above it, the program is solved for so much less memory; what it proves then is
        no bound of (9). None: there is nothing to solve again.

        Raises:
            Infeasible: there is no schedule within the budget.
        """
        program, peak = self._relaxed.program, 0
        program.limit(share)
        for outcome in program.integral(
            self._deadline,
            self.progress.rest,
            self.progress.gap / 2,
            best=lambda: self._best if share == 1.0 else None,
            enough=self.progress.closed,
        ):
            peak = self._take(outcome, is_bound=share == 1.0)
            if self.progress.closed():
                return None
        if planning_seconds() > self._deadline or not program.settled or peak <= self._budget:
            return None
        return share - 2 * (peak - self._budget) / self._budget

    def _round(self, until: float) -> None:
        """Two-phase rounding, as :class:`~.rounding.CheckmateRounding` does it."""
        for epsilon in EPSILONS:
            try:
                cost = self._relaxed.relax(1 - epsilon, until)
            except Infeasible:  # so are larger epsilons; or time is up
                return
            if cost >= self.progress.cost:
                return
            _, kept = self._relaxed.matrices()
            for threshold in THRESHOLDS:
                self._offer(two_phase(self._graph, round_at(kept, threshold)))
                if planning_seconds() > until or self.progress.closed():
                    return

    def _take(self, outcome: SolverRun, is_bound: bool) -> int:
        """See what HiGHS has found; its peak in bytes, 0 without a solution."""
        self._nodes += outcome.nodes
        self._runs += 1
        if outcome.bound == inf and is_bound:
            raise Infeasible(
                f"Checkmate's problem (9) has no plan within {self._budget} bytes", proven=True
            )
        if is_bound:
            self.progress.raise_bound(outcome.bound)
        found = None if outcome.x is None else self._relaxed.program.decode(outcome.x)
        return 0 if found is None else self._offer(found.plan)

    def _offer(self, plan: Plan) -> int:
        trace = simulate(self._graph, plan)
        self.progress.see(trace.peak_bytes)
        if trace.peak_bytes <= self._budget and trace.cost < self.progress.cost:
            self._best = self._relaxed.space.of_plan(plan)
            self.progress.offer(trace.cost, plan)
        return trace.peak_bytes

    def solution(self) -> Solution:
        """The best plan.

        Raises:
            Stopped: there is none.
        """
        progress, program = self.progress, self._relaxed.program
        if progress.plan is None:
            size = program.size
            raise Stopped(
                f"HiGHS found no plan of (9), {size['rows']:,} rows and {size['columns']:,} "
                f"columns, in {self._limit:g} s; give more time_limit, or use anytime",
                smallest_peak_found=progress.leanest,
            )
        trivial = progress.bound <= cost_of_once(self._graph)
        return Solution(
            progress.plan,
            min(progress.bound, progress.cost),
            "any" if trivial else "9",
            variant="rows",
            solver=SOLVER,
            details={
                **program.size,
                "build_seconds": program.build_seconds,
                "nodes": self._nodes,
                "solver_runs": self._runs,
                **progress.details(),
            },
        )
