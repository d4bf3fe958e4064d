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
from typing import Generic, Self, TypeVar

import numpy as np

from rematbench.base.errors import Infeasible, InvalidPlan, NotApplicable
from rematbench.engines.plans.stages import BoolArray, FloatArray, needed, recomputations
from rematbench.engines.stages import kernels
from rematbench.engines.stages.kernels import Course, Structure, Values
from rematbench.graphs.ir import Graph, IntArray, Phase, Rows
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import Trace, simulate

AnySpace = TypeVar("AnySpace", bound="Space", covariant=True)


def check(graph: Graph, budget: int | None) -> None:
    """Refuse what no schedule can do.

    Raises:
        NotApplicable: an op overwrites what it reads by default.
        Infeasible: the budget is below what some op, or the outputs, need.
    """
    for op in graph.ops:
        if op.implementations[0].overwrites:
            raise NotApplicable(
                f"op {op.label} overwrites what it reads by default, which no schedule models"
            )
    floor, what = graph.floor()
    if budget is not None and budget < floor:
        besides = f", {graph.resident_bytes} of them residents" if graph.resident_bytes else ""
        raise Infeasible(
            f"{what} alone must have {floor} bytes{besides}; the budget is {budget}", proven=True
        )


@dataclass(frozen=True)
class Schedule(Generic[AnySpace]):
    """A schedule of a space, simulated.

    Attributes:
        space: what it is of.
        keep: as above.
        available: per stage and repeatable op, in memory when the stage begins?
        recomputed: per stage and repeatable op, computed again in it?
        stage_of: per compute of the plan, its stage; -1 in the first forward pass of F.
        plan, trace: the plan and its simulation.
    """

    space: AnySpace
    keep: BoolArray
    available: BoolArray
    recomputed: BoolArray
    stage_of: IntArray
    plan: Plan
    trace: Trace

    @property
    def cost(self) -> float:
        """In the graph's unit."""
        return self.trace.cost

    @property
    def peak(self) -> int:
        """In bytes."""
        return self.trace.peak_bytes

    def keeping(self, stage: int, op: int, kept: bool = True) -> Schedule[AnySpace]:
        """The same, but for one entry of ``keep``."""
        keep = self.keep.copy()
        keep[stage, op] = kept
        return self.space.evaluate(keep)

    def course(self) -> Course:
        """For the kernels."""
        trace = self.trace
        matrices = self.keep, self.available, self.recomputed
        return Course(trace.codes, trace.bytes_during, self.stage_of, *matrices)


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
        forward = [graph.ops[op].phase is Phase.FORWARD for op in ops]
        first = np.array(forward, dtype=bool) & (ops < loss)
        return Space("F", graph, ops[first], ops[~first])

    @classmethod
    def full(cls, graph: Graph) -> Space:
        """Problem (9) of a graph."""
        return Space("9", graph, needed(graph), needed(graph))

    @classmethod
    def late(cls, graph: Graph, budget: int) -> Space:
        """What (9) does from the first op on that does not fit the budget if every op runs once.

        Every schedule of (9) has such a part, which costs no more: its bounds hold for (9). What
        it keeps for recomputations alone may break the budget earlier; schedules are simulated.
        """
        ops, trace = needed(graph), simulate(graph, program_order(graph))
        above = np.flatnonzero(trace.bytes_during > budget)
        first = graph.tables.op_of[trace.codes[above[0]]] if len(above) else ops[-1]
        return Space("9", graph, ops, ops[ops >= first])

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

    def _numbers(self, ops: IntArray) -> IntArray:
        found = np.full(len(self.graph.ops) + 1, -1, dtype=np.int64)
        found[ops] = np.arange(len(ops))
        return found

    def read_from(self, ops: IntArray) -> Rows:
        """Per op, the repeatable ops that it reads."""
        tables = self.graph.tables
        rows = []
        for op in ops.tolist():
            writers = self.place[tables.writer[tables.inputs[op]]]
            rows.append(sorted({w for w in writers.tolist() if w >= 0}))
        return Rows.of(rows)

    @cached_property
    def structure(self) -> Structure:
        """For the kernels."""
        inputs, uses = self.read_from(self.ops), self.read_from(self.stages)
        return Structure(self.stage, self.place[self.stages], inputs, uses)

    @cached_property
    def values(self) -> Values:
        """For the kernels."""
        tables, place = self.graph.tables, self.place
        reads = tables.reads
        return Values(tables.value_bytes, place[tables.writer], place[tables.op_of], reads)

    def everything(self) -> Schedule[Self]:
        """The schedule that recomputes nothing."""
        return self.evaluate(np.ones(self.shape, dtype=bool))

    def evaluate(self, keep: BoolArray) -> Schedule[Self]:
        """The schedule that ``keep`` stands for."""
        return self.simulated(keep, *kernels.derive(keep, self.structure))

    def explicit(self, recomputed: BoolArray) -> Schedule[Self] | None:
        """The schedule that recomputes exactly these; None where some read would find nothing."""
        numbers = np.arange(len(self.ops) + 1)
        itself = Rows(numbers, numbers[:-1])
        reads = self.structure.uses, self.structure.inputs
        nothing = np.zeros(len(self.ops), dtype=bool)
        live = kernels.liveness(recomputed, self.stage, nothing, *reads, itself)
        try:
            return self.simulated(live, live, recomputed)
        except InvalidPlan:
            return None

    def of_plan(self, plan: Plan) -> Schedule[Self] | None:
        """The schedule that computes what a plan in program order does; None where none can.

        A plan may compute an op twice in one stage, which a schedule cannot. The space has all ops.
        """
        recomputed = np.zeros(self.shape, dtype=bool)
        stage, op = recomputations(self.graph, plan).T
        stage = stage - (len(self.ops) - len(self.stages))
        recomputed[stage[stage >= 0], op[stage >= 0]] = True
        return self.explicit(recomputed)

    def adopt(self, schedule: Schedule[Space]) -> Schedule[Space] | None:
        """A schedule of another space of the graph in this one; None where it is not in it."""
        source = schedule.space
        if source is self:
            return schedule
        recomputed = np.zeros(self.shape, dtype=bool)
        stages, ops = self._numbers(self.stages)[source.stages], self.place[source.ops]
        rows, columns = np.flatnonzero(stages >= 0), np.flatnonzero(ops >= 0)
        inside = schedule.recomputed[np.ix_(rows, columns)]
        if inside.sum() < schedule.recomputed.sum():
            return None
        recomputed[np.ix_(stages[rows], ops[columns])] = inside
        return self.explicit(recomputed)

    def simulated(
        self, keep: BoolArray, available: BoolArray, recomputed: BoolArray
    ) -> Schedule[Self]:
        """The schedule with these matrices, and its plan.

        Raises:
            InvalidPlan: it reads what is not there.
        """
        sequence, stage_of = kernels.computes(recomputed, self.stage)
        ops = self.all_ops[sequence]
        plan = Plan.of_computes(self.graph, self.graph.tables.op_first[ops])
        trace = simulate(self.graph, plan)
        return Schedule(self, keep, available, recomputed, stage_of, plan, trace)

    @cached_property
    def all_ops(self) -> IntArray:
        """The repeatable ops, then those of stages: what the computes' numbers stand for."""
        return np.concatenate([self.ops, self.stages])
