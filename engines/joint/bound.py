"""The bound model inside HiGHS: linear first, then mixed-integer, at any budget."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import Literal

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.intervals.moments import TOLERANCE
from rematbench.engines.joint.columns import SCALE
from rematbench.engines.joint.implementations import AllowedImplementations
from rematbench.engines.joint.model import bound_model
from rematbench.engines.lp.solver import Idle, Solver
from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import IntArray

SAFETY = 1e-6
"""Relative part of an integer program's bound that is given away for the solver's tolerances;
linear programs prove theirs by their multipliers."""

FINE_ROWS, FINE_COLUMNS, MOST_MOMENTS = 600, 3000, 12
"""Size of a fine model: moments, and heavy ops, times forward ops; and the most moments."""
Grain = Literal["coarse", "medium", "double", "fine"]
HEAVY: dict[Grain, int] = {"medium": 4, "double": 4}
"""Heavy forward ops of models that are to be solved in seconds."""


@dataclass(frozen=True)
class Advice:
    """What a solution of the bound model says about schedules.

    Attributes:
        choice: per op, the group that it favours.
        preferred: per op, the implementation that it favours in that group.
        moments: steps that begin with what is stored.
        stored: per moment and value, how much of it is live; 1 for what is negligible.
    """

    choice: IntArray
    preferred: IntArray
    moments: tuple[int, ...]
    stored: FloatArray


def moments_of(
    implementations: AllowedImplementations, grain: Grain
) -> tuple[list[int], list[int]]:
    """Moments, and the heaviest forward ops, of a model."""
    tables, loss = implementations.graph.tables, implementations.graph.loss_index
    assert loss is not None
    forward = np.flatnonzero(implementations.surely_needed[:loss]).tolist()
    count, size = len(forward) + 1, np.where(tables.resident, 0, tables.value_bytes)

    def least(op: int) -> int:
        """Bytes that it needs at least."""
        return min(
            int(implementations.extra[w] + size[tables.reads[w]].sum())
            for w in implementations.first_implementations(op)
        )

    moments, heavy = [0], HEAVY.get(grain, 0)
    if grain == "double":
        moments.append(int(np.argmax([max(map(least, step)) for step in implementations.steps])))
    elif grain == "fine":
        many = min(max(2, FINE_ROWS // count), MOST_MOMENTS)
        heavy = min(FINE_COLUMNS // count, count)
        moments = (
            np.linspace(0, len(implementations.steps), many, endpoint=False).astype(int).tolist()
        )
    return sorted({*moments}), sorted(forward, key=least, reverse=True)[:heavy]


class Bound:
    """Lower bounds of the cost of every plan within a budget.

    Args:
        implementations: the allowed implementations.
        budget: in bytes.
        seed: of HiGHS.
        grain: ``coarse``, of one moment, the loss; ``medium``, with a few heavy forward ops;
            ``double``, with the heaviest step as a second moment; ``fine``, of many moments,
            evenly spread, and heavy forward ops.

    Attributes:
        best: the best bound so far, in the graph's cost unit; infinite if there is no plan.
        build_seconds: time that building the model took.
        nodes: of the branch-and-bound tree.
    """

    def __init__(
        self,
        implementations: AllowedImplementations,
        budget: int,
        seed: int,
        grain: Grain = "coarse",
    ) -> None:
        started = planning_seconds()
        moments, heavy = moments_of(implementations, grain)
        self.model = bound_model(implementations, budget, moments, heavy)
        self.build_seconds = planning_seconds() - started
        self.seed, self.best, self.nodes = seed, 0.0, 0
        self._linear: Solver | None = None

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and non-zeros, before presolve."""
        return self.model.program.size

    def linear(self, deadline: float, idle: Idle, share: float = 1.0) -> Advice | None:
        """Solve the linear relaxation at ``share`` of the budget; None without a solution.

        Args:
            deadline: by :func:`~rematbench.base.clock.planning_seconds`.
            idle: called again and again while HiGHS works in a thread of its own.
        """
        if self._linear is None or self._linear.left_behind:
            self._linear = Solver(self.model.program, seed=self.seed)
        rows = np.array(self.model.memory_rows, dtype=np.int64)
        upper = self.model.program.upper[rows]
        self._linear.limit_rows(rows, upper - (1 - share) * SCALE)
        outcome = self._linear.run(deadline, idle)
        if outcome is None:
            return None
        if share == 1.0:
            self._learn(outcome.bound - TOLERANCE * SCALE)
        return None if outcome.x is None else self._advice(outcome.x)

    def integral(
        self, deadline: float, idle: Idle, gap: float, enough: Callable[[], bool]
    ) -> Advice | None:
        """Solve the mixed-integer program; its best solution, or None.

        Args:
            deadline, idle: as above.
            gap: relative gap at which to stop.
            enough: asked now and then, after a better bound, whether to stop.
        """

        def is_enough(bound: float) -> bool:
            if isfinite(bound):
                self._learn(bound * (1 - SAFETY))
            return enough()

        solver = Solver(self.model.program, integral=True, seed=self.seed)
        solver.stop_when(gap, is_enough)
        outcome = solver.run(deadline, idle)
        if outcome is None:
            return None
        self.nodes += outcome.nodes
        self._learn(outcome.bound * (1 - SAFETY))
        return None if outcome.x is None else self._advice(outcome.x)

    def _learn(self, objective: float) -> None:
        self.best = max(self.best, objective * self.model.unit)

    def _advice(self, solution: FloatArray) -> Advice:
        model, implementations = self.model, self.model.implementations
        x = np.append(solution, 0.0)  # the last one is for what has no column
        choice = implementations.group_at[:-1].copy()
        preferred = np.full_like(choice, -1)
        for op in np.flatnonzero(model.needed).tolist():
            groups = implementations.groups(op)
            weight = [
                x[model.implementation[implementations.members[group]]].sum() for group in groups
            ]
            choice[op] = groups[int(np.argmax(weight))]
            members = implementations.members[int(choice[op])]
            preferred[op] = members[int(np.argmax(x[model.implementation[members]]))]
        stored = np.where(model.stored >= 0, x[model.stored], 1.0)
        return Advice(choice, preferred, model.moments, stored)
