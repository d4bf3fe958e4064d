"""Checkpoint-all: keep every activation until its last use; the baseline of every ratio."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from rematbench.graphs.plan import program_order
from rematbench.strategies.base import Problem, Solution, Traits, fitted


@dataclass(frozen=True)
class CheckpointAll:
    """What an ordinary training step does: nothing is recomputed, nothing is kept too long."""

    traits: ClassVar[Traits] = Traits("yes", "no", "no")

    def plan(self, problem: Problem) -> Solution:
        """The program-order plan.

        Raises:
            Infeasible: its simulated peak is above the budget.
        """
        return fitted(problem, program_order(problem.graph))
