"""``strategy=poet``: POET's program, solved by HiGHS, and its schedule as a plan."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import ClassVar, Literal

import numpy as np

from rematbench.base.errors import ConfigError, Infeasible, Stopped
from rematbench.engines.bridges.across import copyable
from rematbench.engines.bridges.gaps import Sequence
from rematbench.engines.bridges.weave import woven
from rematbench.engines.lp.solver import SOLVER, Solver, SolverRun
from rematbench.engines.plans.stages import FloatArray, needed
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import (
    Problem,
    Solution,
    Traits,
    available_threads,
    check_choice,
    check_share,
    fitted,
    planning_seconds,
)
from rematbench.strategies.poet.program import PagingProgram, most_columns, pages

MOST_COLUMNS = 100_000
"""Of a program that is still built: about 150 ops."""
SPARED = 1e-7
"""Of the budget: HiGHS may violate a row by a little."""


@dataclass(frozen=True)
class Poet:
    """The least energy of computing and copying, by POET's program as printed.

    A copy takes energy there, and no time; and what comes back takes no room while it comes. The
    simulator judges the plan, so that ``objective`` and ``cost`` are of different things.

    Attributes:
        objective: ``energy``: copies at ``copy_power``; ``time``: as if one thing happened after
            the other, so that a copy counts as its time on the link.
        copy_power: power of copying over that of computing. The paper measures each device; this
            is our guess.
        deadline: most cost of all computes, as a multiple of checkpoint-all's; the paper's time
            limit, which copies do not count for. None: there is none.
        gap: relative gap at which to stop.
        threads: of HiGHS; None: those of the job.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True, offloads=True)
    objective: Literal["energy", "time"] = "energy"
    copy_power: float = 0.25
    deadline: float | None = None
    gap: float = 1e-4
    threads: int | None = None

    def __post_init__(self) -> None:
        check_choice("objective", self.objective, ("energy", "time"))
        check_share("gap", self.gap)
        for name, value in (("copy_power", self.copy_power), ("deadline", self.deadline)):
            if value is not None and not 0 <= value < inf:
                raise ConfigError(f"strategy.{name}={value}: give a finite number, 0 or more")

    def plan(self, problem: Problem) -> Solution:
        """The plan of the program's best schedule.

        Raises:
            NotApplicable: no link, no loss, or an op in place.
            Infeasible: the program has no schedule, or the host is too small for it.
            Stopped: none was found in time; says how large the program is.
        """
        started = planning_seconds()
        graph = copyable(problem)
        order = program_order(graph)
        trace = simulate(graph, order)
        if problem.budget is None or trace.peak_bytes <= problem.budget:
            return Solution(order, objective=trace.cost, variant=self.objective)
        program = self._program(problem, problem.budget, trace.cost)
        outcome = self._solved(problem, program, started)
        assert outcome.x is not None
        plan, paged = _plan(problem, program, outcome.x)
        computes = plan.codes(graph)
        facts = {
            **program.linear.size,
            "nodes": outcome.nodes,
            "solver_status": outcome.status,
            "paged_values": paged,
            "paged_compute_cost": float(graph.tables.cost[computes[computes >= 0]].sum()),
        }
        how = {"variant": self.objective, "solver": SOLVER, "details": facts}
        return fitted(problem, plan, objective=outcome.objective, **how)

    def _solved(self, problem: Problem, program: PagingProgram, started: float) -> SolverRun:
        """What HiGHS found, with a solution."""
        threads = self.threads or available_threads()
        solver = Solver(program.linear, True, problem.seed, threads)
        solver.stop_when(self.gap)
        outcome = solver.run(started + problem.time_limit, idle=lambda: False)
        size = program.linear.size
        if outcome is not None and outcome.status == "infeasible":
            raise Infeasible(f"POET's program has no schedule within {problem.budget} bytes")
        if outcome is None or outcome.x is None:
            raise Stopped(
                f"HiGHS found no plan of POET's program, {size['rows']:,} rows and "
                f"{size['columns']:,} columns, in {problem.time_limit:g} s; give more time_limit, "
                "or use hybrid"
            )
        return outcome

    def _program(self, problem: Problem, budget: int, once: float) -> PagingProgram:
        graph = problem.graph
        columns = most_columns(graph)
        if columns > MOST_COLUMNS:
            raise Stopped(
                f"POET's program has {columns:,} columns for {len(needed(graph))} ops, and no "
                "solver of today comes to an end; use hybrid, or pofo"
            )
        power = self.copy_power if self.objective == "energy" else 1.0
        deadline = None if self.deadline is None else self.deadline * once
        spared = budget - int(SPARED * budget)
        return PagingProgram(graph, max(1, spared), problem.link, power, deadline)


def _plan(problem: Problem, program: PagingProgram, x: FloatArray) -> tuple[Plan, int]:
    """A solution as a plan, and how many values it pages out.

    A value is paged where it is read later than it was touched, and is not near when a stage
    between begins.

    Raises:
        Infeasible: the host has no room.
    """
    graph, ops = problem.graph, needed(problem.graph)
    stages, computed, near = program.decode(x)
    sequence = Sequence.of(graph, graph.tables.op_first[ops[computed]])
    place = np.full(len(graph.ops), -1, dtype=np.int64)
    place[ops] = np.arange(len(ops))
    writers = place[graph.tables.writer[sequence.value]].tolist()
    touched = zip(writers, stages[sequence.begin], stages[sequence.end], strict=True)
    bridged = np.array([pages(near, op, range(a + 1, b + 1)) for op, a, b in touched], dtype=bool)
    if not bridged.any():
        return Plan.of_computes(graph, sequence.computes), 0
    assert problem.budget is not None
    plan = woven(sequence, bridged, problem.budget, problem.link, problem.host)
    if plan is None:
        raise Infeasible(
            f"POET's program knows no limit of the host, and its schedule needs more than "
            f"{problem.host} bytes there; give more, or use hybrid"
        )
    return plan, len(np.unique(sequence.value[bridged]))
