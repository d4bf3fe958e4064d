"""hierarchical: a plan from blocks, each solved alone, after the idea of Rockmate (ICML 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.intervals.planner import IntervalSearch, warm_up
from rematbench.engines.lp.solver import SOLVER
from rematbench.engines.stages.space import check
from rematbench.graphs.ir import IntArray
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution, Traits, check_share
from rematbench.strategies.registry import quick_planners


@dataclass(frozen=True)
class Hierarchical:
    """Blocks of the graph are solved for several budgets, equal ones once, and combined.

    No program is larger than one block. What the blocks' bounds add up to is the bound. Then the
    whole plan is improved across the borders by local search.

    Attributes:
        gap: relative gap (cost - bound) / cost at which to stop.
        polish: improve across the borders of blocks?

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    gap: float = 0.002
    polish: bool = True

    def __post_init__(self) -> None:
        check_share("gap", self.gap)

    def warm_up(self) -> None:
        """Compile the kernels."""
        warm_up(quick_planners())

    def plan(self, problem: Problem) -> Solution:
        """The plan, and a bound for every plan in program order.

        Raises:
            NotApplicable: an op overwrites what it reads.
            Infeasible: no plan was found; ``proven`` where there is none.
        """
        started = planning_seconds()
        order = program_order(problem.graph)
        budget = problem.budget
        check(problem.graph, budget)
        if budget is None or simulate(problem.graph, order).peak_bytes <= budget:
            return Solution(order, solver=SOLVER)
        problem = replace(problem, starts=quick_planners())
        search = BlockSearch(problem, budget, started, self.gap)
        with search.progress.interruptible():
            search.run(polish=self.polish)
        return search.solution("blocks")


class BlockSearch(IntervalSearch):
    """The search whose bound and first schedules are those of blocks."""

    def __init__(self, problem: Problem, budget: int, started: float, gap: float) -> None:
        super().__init__(problem, budget, started, gap)
        self.by_blocks = True

    def prove(self, levels: IntArray) -> None:
        """Blocks' bounds, added up."""
        self.prove_by_blocks(int(np.argmax(levels)))

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        found = super().details()
        if self.window is not None:
            found |= {"blocks": len(self.blocks.kind_of), "block_kinds": len(self.blocks.kinds)}
        return found
