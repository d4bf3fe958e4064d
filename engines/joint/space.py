"""Schedules with implementations: what the search of MONeT moves through.

The forward pass runs first; before each backward op, what it reads and is gone is computed again
(MONeT, section 3, stages). A schedule is a group of implementations per op and a boolean matrix
``keep``, as in the reduced problem F. The implementations within the groups follow: the leanest at
first, then, statement by statement, the fastest that fits the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from rematbench.engines.joint.implementations import AllowedImplementations
from rematbench.engines.joint.kernels import fastest, leanest, picked
from rematbench.engines.plans.stages import BoolArray, FloatArray
from rematbench.engines.stages.kernels import computes
from rematbench.engines.stages.space import Schedule, Space
from rematbench.graphs.ir import IntArray, Phase, Rows
from rematbench.graphs.plan import Plan, with_frees
from rematbench.graphs.simulate import simulate


@dataclass(frozen=True)
class ImplementationSpace(Space):
    """The schedules of one choice of groups.

    The cost of a schedule is that after the fastest implementations that fit were chosen, if
    ``joint``; its peak is that of the leanest implementations.

    Attributes:
        implementations: of the graph.
        choice: per op, the group that computes it.
        limit: bytes that the fastest implementations must fit.
        joint: do the fastest implementations count while searching?
        preferred: per op, an implementation to run it instead of the leanest, or -1. It counts as
            what the op needs, so that a repair makes room for it.
    """

    implementations: AllowedImplementations
    choice: IntArray
    limit: int
    joint: bool
    preferred: IntArray

    @classmethod
    def start(
        cls, implementations: AllowedImplementations, limit: int, joint: bool
    ) -> ImplementationSpace:
        """The space of each op's first group; optional ops are computed only where they are read.

        Besides forward ops it computes again gradients that stay in memory for long.
        """
        graph, loss = implementations.graph, implementations.graph.loss_index
        assert loss is not None
        repeatable = [n for n, op in enumerate(graph.ops[:loss]) if op.phase is Phase.FORWARD]
        repeatable += implementations.long_lived
        later = [op for step in implementations.steps for op in step]
        for op in implementations.optional_later:
            later.insert(1 + max(n for n, other in enumerate(later) if other < op), op)
        ops, stages = np.array(repeatable, dtype=np.int64), np.array(later, dtype=np.int64)
        none = np.full(len(graph.ops), -1, dtype=np.int64)
        return cls(
            "F",
            graph,
            ops,
            stages,
            implementations,
            implementations.group_at[:-1].copy(),
            limit,
            joint,
            none,
        )

    def deferred(self) -> Self:
        """The same with deferrable ops at the end."""
        deferrable = [op in self.implementations.deferrable for op in self.stages.tolist()]
        return replace(self, stages=self.stages[np.argsort(deferrable, kind="stable")])

    def whole(self) -> Self:
        """The same with stages for forward ops, too, to compute again before the loss."""
        forward = self.ops[: len(self.ops) - len(self.implementations.long_lived)]
        if np.isin(forward, self.stages).any():
            return self
        return replace(self, stages=np.concatenate([forward, self.stages]))

    def choosing(self, choice: IntArray) -> Self:
        """The same with other groups."""
        return replace(self, choice=choice)

    def preferring(self, preferred: IntArray | None) -> Self:
        """The same with other preferred implementations; None: with none."""
        none = np.full_like(self.preferred, -1)
        return replace(self, preferred=none if preferred is None else preferred)

    @cached_property
    def cost(self) -> FloatArray:
        """What the search takes recomputing each repeatable op to cost, in its leanest form.

        An encoding exists so that it can be stored: it is the last thing to drop.
        """
        tables, again = self.graph.tables, self.implementations.recompute_group
        groups = np.where(again >= 0, again, self.choice)[self.ops].tolist()
        found = np.full(len(self.ops), float(tables.cost.sum()))
        for i in np.flatnonzero(self.implementations.surely_needed[self.ops]).tolist():
            implementations = self.implementations.members[groups[i]]
            lean = implementations[
                self.implementations.extra[implementations]
                == self.implementations.extra[implementations].min()
            ]
            found[i] = tables.cost[lean].min()
        return found

    def read_from(self, ops: IntArray) -> Rows:
        """Per op, the repeatable ops that its group reads."""
        return Rows(*picked(self.choice[ops], self.place, self.implementations.writers))

    def simulated(
        self, keep: BoolArray, available: BoolArray, recomputed: BoolArray
    ) -> Schedule[Self]:
        """The schedule with these matrices, and its plan in the leanest implementations."""
        sequence, stage_of = computes(recomputed, self.stage)
        implementations = self.implementations.arrays
        lean, legal = leanest(self.all_ops[sequence], self.choice, self.preferred, implementations)
        there = lean >= 0
        lean, stage_of = lean[there], stage_of[there]
        codes = with_frees(self.graph, lean)
        plan = Plan.from_codes(self.graph, codes)
        trace = simulate(self.graph, plan)
        if self.joint:
            during = trace.bytes_during[codes >= 0]
            fast = fastest(lean, legal[there], during, self.limit, implementations)
            trace = replace(trace, cost=float(self.graph.tables.cost[fast].sum()))
        return Schedule(self, keep, available, recomputed, stage_of, plan, trace)

    def finished(self, schedule: Schedule[Any]) -> Plan:
        """The schedule's plan with the fastest implementations that fit."""
        return Plan.of_computes(self.graph, self.fastest(schedule))

    def fastest(self, schedule: Schedule[Any]) -> IntArray:
        """Per compute of the schedule, the fastest implementation that fits."""
        codes = schedule.plan.codes(self.graph)
        is_compute = codes >= 0
        ops, implementations = (
            self.graph.tables.op_of[codes[is_compute]],
            self.implementations.arrays,
        )
        during = schedule.trace.bytes_during[is_compute]
        lean, legal = leanest(ops, self.choice, self.preferred, implementations)
        fast: IntArray = fastest(lean, legal, during, self.limit, implementations)
        return fast
