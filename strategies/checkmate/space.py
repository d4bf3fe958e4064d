"""Spaces of schedules: the reduced problem F, and all of Checkmate's problem (9).

A schedule is a sequence of stages. A stage recomputes the ops that its own op cannot do without,
in program order, and ends with that op. In F the forward pass comes first, each op once; stages
are the loss and the backward ops, and only forward ops are recomputed. In (9) every op has a
stage, and every op is recomputed where it helps.

A schedule is encoded as a boolean matrix ``keep``, of shape (stages, repeatable ops): may what is
in memory of an op stay when a stage begins? Everything else follows: what is missing is
recomputed (the least that will do), and every value is freed after its last read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.errors import Infeasible, InvalidPlan, NotApplicable
from rematbench.graphs.ir import Graph, IntArray, Phase, Rows
from rematbench.graphs.kernels import kernel
from rematbench.graphs.plan import Plan, with_frees
from rematbench.graphs.simulate import Trace, simulate
from rematbench.strategies.stages import BoolArray, needed

FloatArray = NDArray[np.float64]


def check(graph: Graph, budget: int) -> None:
    """Refuse what no schedule of Checkmate's can do.

    Raises:
        Infeasible: the budget is below what some op, or the outputs, need.
        NotApplicable: an op overwrites what it reads.
    """
    for op in graph.ops:
        if op.implementations[0].overwrites:
            raise NotApplicable(
                f"op {op.name!r} overwrites what it reads, which (9) does not model"
            )
    floor, what = graph.floor()
    if budget < floor:
        besides = f", {graph.resident_bytes} of them residents" if graph.resident_bytes else ""
        raise Infeasible(
            f"{what} alone must have {floor} bytes{besides}; the budget is {budget}", proven=True
        )


@dataclass(frozen=True)
class Schedule:
    """A schedule of a space, simulated.

    Attributes:
        keep: as above.
        available: per stage and repeatable op, in memory when the stage begins?
        recomputed: per stage and repeatable op, computed again in it?
        stage_of: per compute of the plan, its stage; -1 in the first forward pass of F.
        plan, trace: the plan and its simulation.
    """

    keep: BoolArray
    available: BoolArray
    recomputed: BoolArray
    stage_of: IntArray
    plan: Plan
    trace: Trace


@dataclass(frozen=True)
class Space:
    """F or (9) for one graph.

    Attributes:
        name: ``F`` or ``9``.
        graph: the graph.
        ops: ops that may be recomputed, in program order.
        stages: ops that end a stage, in program order.
    """

    name: str
    graph: Graph
    ops: IntArray
    stages: IntArray

    @classmethod
    def reduced(cls, graph: Graph) -> Space:
        """F of a training graph."""
        ops, loss = needed(graph), graph.loss_index
        assert loss is not None
        forward = np.array([graph.ops[op].phase is Phase.FORWARD for op in ops], dtype=bool)
        first = forward & (ops < loss)
        return cls("F", graph, ops[first], ops[~first])

    @classmethod
    def full(cls, graph: Graph) -> Space:
        """Problem (9) of a graph."""
        return cls("9", graph, needed(graph), needed(graph))

    @property
    def shape(self) -> tuple[int, int]:
        """(stages, repeatable ops)."""
        return len(self.stages), len(self.ops)

    @cached_property
    def cost(self) -> FloatArray:
        """Per repeatable op."""
        tables = self.graph.tables
        return tables.cost[tables.op_first[self.ops]]

    @cached_property
    def base_cost(self) -> float:
        """Cost of computing every op once."""
        tables = self.graph.tables
        return float(tables.cost[tables.op_first[needed(self.graph)]].sum())

    @cached_property
    def place(self) -> IntArray:
        """Per op of the graph, and for "no op" at the end: its number in ``ops``, or -1."""
        return self._numbers(self.ops)

    @cached_property
    def stage(self) -> IntArray:
        """Per repeatable op: the stage that it ends, or -1."""
        return self._numbers(self.stages)[self.ops]

    @cached_property
    def stage_place(self) -> IntArray:
        """Per stage: the number of its op in ``ops``, or -1."""
        return self.place[self.stages]

    def _numbers(self, ops: IntArray) -> IntArray:
        found = np.full(len(self.graph.ops) + 1, -1, dtype=np.int64)
        found[ops] = np.arange(len(ops))
        return found

    def _dependencies(self, ops: IntArray) -> Rows:
        tables = self.graph.tables
        rows = []
        for op in ops.tolist():
            writers = self.place[tables.writer[tables.reads[int(tables.op_first[op])]]]
            rows.append(sorted({w for w in writers.tolist() if w >= 0}))
        return Rows.of(rows)

    @cached_property
    def inputs(self) -> Rows:
        """Per repeatable op, the repeatable ops that it reads."""
        return self._dependencies(self.ops)

    @cached_property
    def uses(self) -> Rows:
        """Per stage, the repeatable ops that its op reads."""
        return self._dependencies(self.stages)

    def everything(self) -> Schedule:
        """The schedule that recomputes nothing."""
        return self.evaluate(np.ones(self.shape, dtype=bool))

    def evaluate(self, keep: BoolArray) -> Schedule:
        """The schedule that ``keep`` stands for."""
        available, recomputed = np.empty(self.shape, dtype=bool), np.zeros(self.shape, dtype=bool)
        _derive(
            keep,
            available,
            recomputed,
            self.stage,
            self.stage_place,
            self.inputs.start,
            self.inputs.items,
            self.uses.start,
            self.uses.items,
        )
        return self._schedule(keep, available, recomputed)

    def explicit(self, recomputed: BoolArray) -> Schedule | None:
        """The schedule that recomputes exactly these; None where some read would find nothing."""
        live = _live(
            recomputed,
            self.stage,
            self.inputs.start,
            self.inputs.items,
            self.uses.start,
            self.uses.items,
        )
        try:
            return self._schedule(live, live, recomputed)
        except InvalidPlan:
            return None

    def adopt(self, schedule: Schedule, source: Space) -> Schedule | None:
        """A schedule of F in (9), which holds it."""
        if source is self:
            return schedule
        recomputed = np.zeros(self.shape, dtype=bool)
        stages = self._numbers(self.stages)[source.stages]
        recomputed[np.ix_(stages, self.place[source.ops])] = schedule.recomputed
        return self.explicit(recomputed)

    def _schedule(self, keep: BoolArray, available: BoolArray, recomputed: BoolArray) -> Schedule:
        sequence, stage_of = _sequence(recomputed, self.stage)
        ops = np.concatenate([self.ops, self.stages])[sequence]
        codes = with_frees(self.graph, self.graph.tables.op_first[ops])
        plan = Plan.from_codes(self.graph, codes)
        trace = simulate(self.graph, plan)
        return Schedule(keep, available, recomputed, stage_of, plan, trace)


@kernel
def _derive(
    keep, available, recomputed, stage, stage_place, input_at, inputs, use_at, uses
):  # fmt: skip
    """Fill ``available`` and ``recomputed``."""
    stages, n = keep.shape
    live = stage < 0
    for s in range(stages):
        again = recomputed[s]
        for i in range(n):
            live[i] = live[i] and keep[s, i]
            available[s, i] = live[i]
        highest = -1
        for k in range(use_at[s], use_at[s + 1]):
            if not live[uses[k]]:
                again[uses[k]] = True
                highest = max(highest, uses[k])
        for i in range(highest, -1, -1):
            if again[i]:
                live[i] = True
                for k in range(input_at[i], input_at[i + 1]):
                    if not live[inputs[k]]:
                        again[inputs[k]] = True
        if stage_place[s] >= 0:
            live[stage_place[s]] = True


@kernel
def _live(recomputed, stage, input_at, inputs, use_at, uses):
    """Per stage and op: does a later read want what is in memory when the stage begins?"""
    stages, n = recomputed.shape
    live = np.zeros((stages, n), dtype=np.bool_)
    wanted = np.zeros(n, dtype=np.bool_)
    for s in range(stages - 1, -1, -1):
        for k in range(use_at[s], use_at[s + 1]):
            wanted[uses[k]] = True
        for i in range(n - 1, -1, -1):
            if recomputed[s, i]:
                wanted[i] = False
                for k in range(input_at[i], input_at[i + 1]):
                    wanted[inputs[k]] = True
            live[s, i] = wanted[i] and stage[i] < s
    return live


@kernel
def _sequence(recomputed, stage):
    """The computes in order, and their stages. Numbers from n on are stages."""
    stages, n = recomputed.shape
    size = n + stages + np.count_nonzero(recomputed)
    sequence = np.empty(size, dtype=np.int64)
    stage_of = np.empty(size, dtype=np.int64)
    end = 0
    for i in range(n):
        if stage[i] < 0:
            sequence[end] = i
            stage_of[end] = -1
            end += 1
    for s in range(stages):
        for i in range(n):
            if recomputed[s, i]:
                sequence[end] = i
                stage_of[end] = s
                end += 1
        sequence[end] = n + s
        stage_of[end] = s
        end += 1
    return sequence[:end], stage_of[:end]


@kernel
def recompute_cost(op, available, recomputed, cost, input_at, inputs):
    """Cost of computing ``op`` again in a stage whose rows are given."""
    missing = np.zeros(op + 1, dtype=np.bool_)
    missing[op] = True
    total = 0.0
    for i in range(op, -1, -1):
        if missing[i]:
            total += cost[i]
            for k in range(input_at[i], input_at[i + 1]):
                j = inputs[k]
                if not available[j] and not recomputed[j]:
                    missing[j] = True
    return total
