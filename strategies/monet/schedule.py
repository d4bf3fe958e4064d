"""Schedules with implementations: what the search of MONeT moves through.

The forward pass runs first; before each backward op, what it reads and is gone is computed again
(MONeT, section 3, stages). A schedule is a group of ways per op and a boolean matrix ``keep``, as
in the reduced problem F. The ways within the groups follow: the leanest at first, then, statement
by statement, the fastest that fits the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from rematbench.graphs.ir import Graph, IntArray, Phase, Rows
from rematbench.graphs.kernels import kernel
from rematbench.graphs.plan import Plan, with_frees
from rematbench.graphs.simulate import simulate
from rematbench.strategies.checkmate.space import FloatArray, Schedule, Space, _derive, _sequence
from rematbench.strategies.monet.ways import Ways
from rematbench.strategies.stages import BoolArray


@dataclass(frozen=True)
class Chosen(Space):
    """The schedules of one choice of groups.

    ``trace.cost`` of a schedule is that after the fastest ways that fit were chosen, if ``joint``;
    ``trace.peak_bytes`` is that of the leanest ways.

    Attributes:
        ways: of the graph.
        choice: per op, the group that computes it.
        limit: bytes that the fastest ways must fit.
        joint: do the fastest ways count while searching?
        wish: per op, a way to run it instead of the leanest, or -1. It counts as what the op
            needs, so that a repair makes room for it.
    """

    ways: Ways
    choice: IntArray
    limit: int
    joint: bool
    wish: IntArray

    @classmethod
    def start(cls, ways: Ways, choice: IntArray, limit: int, joint: bool) -> Chosen:
        """The space of ``choice``; optional ops are computed only where something reads them.

        Besides forward ops it computes again gradients that are held for long.
        """
        graph, loss = ways.graph, ways.graph.loss_index
        assert loss is not None
        again = [n for n, op in enumerate(graph.ops[:loss]) if op.phase is Phase.FORWARD]
        again += ways.lasting
        later = [op for step in ways.steps for op in step]
        ops, stages = np.array(again, dtype=np.int64), np.array(later, dtype=np.int64)
        none = np.full(len(graph.ops), -1, dtype=np.int64)
        return cls("F", graph, ops, stages, ways, choice, limit, joint, none)

    def late(self) -> Chosen:
        """The same with ops at the end that may wait."""
        late = [op in self.ways.may_wait for op in self.stages.tolist()]
        return replace(self, stages=self.stages[np.argsort(late, kind="stable")])

    def whole(self) -> Chosen:
        """The same with stages for forward ops, too, to compute again before the loss."""
        forward = self.ops[: len(self.ops) - len(self.ways.lasting)]
        return replace(self, stages=np.concatenate([forward, self.stages]))

    def choosing(self, choice: IntArray) -> Chosen:
        """The same with other groups."""
        return replace(self, choice=choice)

    def wishing(self, wish: IntArray | None) -> Chosen:
        """The same with other wishes; None: with none."""
        return replace(self, wish=np.full_like(self.wish, -1) if wish is None else wish)

    @cached_property
    def _again(self) -> IntArray:
        return np.where(self.ways.again >= 0, self.ways.again, self.choice)

    @cached_property
    def cost(self) -> FloatArray:
        """What the search takes recomputing each repeatable op to cost, in its leanest way.

        An encoding exists so that it can be stored: it is the last thing to drop.
        """
        tables, members = self.graph.tables, self.ways.members
        dear = float(tables.cost.sum())
        needed = self.ways.surely_needed()
        found = np.empty(len(self.ops))
        for i, op in enumerate(self.ops.tolist()):
            ways = members[int(self._again[op])]
            lean = ways[self.ways.extra[ways] == self.ways.extra[ways].min()]
            found[i] = tables.cost[lean].min() if needed[op] else dear
        return found

    @cached_property
    def inputs(self) -> Rows:
        """Per repeatable op, the repeatable ops that its group reads."""
        return self._of_groups(self.ops)

    @cached_property
    def uses(self) -> Rows:
        """Per stage, the repeatable ops that its group reads."""
        return self._of_groups(self.stages)

    def _of_groups(self, ops: IntArray) -> Rows:
        writers = self.ways.writers
        rows = _picked(self.choice[ops], self.place, writers.start, writers.items)
        return Rows(*rows)

    def evaluate(self, keep: BoolArray) -> Schedule:
        """The schedule that ``keep`` stands for."""
        available, recomputed = np.empty(self.shape, dtype=bool), np.zeros(self.shape, dtype=bool)
        rows = self.inputs.start, self.inputs.items, self.uses.start, self.uses.items
        _derive(keep, available, recomputed, self.stage, self.stage_place, *rows)
        sequence, stage_of = _sequence(recomputed, self.stage)
        ops = self._all_ops[sequence]
        lean, legal = self._lowered(ops)
        there = lean >= 0
        lean, stage_of = lean[there], stage_of[there]
        codes = with_frees(self.graph, lean)
        plan = Plan.from_codes(self.graph, codes)
        trace = simulate(self.graph, plan)
        if self.joint:
            fast = self._fastest(lean, legal[there], trace.bytes_during[codes >= 0])
            trace = replace(trace, cost=float(self.graph.tables.cost[fast].sum()))
        return Schedule(keep, available, recomputed, stage_of, plan, trace)

    def finished(self, schedule: Schedule) -> Plan:
        """The schedule's plan with the fastest ways that fit."""
        fast = self.fastest(schedule)
        return Plan.from_codes(self.graph, with_frees(self.graph, fast))

    def fastest(self, schedule: Schedule) -> IntArray:
        """Per compute of the schedule, the fastest way that fits."""
        codes = schedule.plan.codes(self.graph)
        computes = codes >= 0
        lean, legal = self._lowered(self.graph.tables.op_of[codes[computes]])
        return self._fastest(lean, legal, schedule.trace.bytes_during[computes])

    @cached_property
    def _all_ops(self) -> IntArray:
        return np.concatenate([self.ops, self.stages])

    def _lowered(self, ops: IntArray) -> tuple[IntArray, IntArray]:
        tables, members = self.graph.tables, self.ways.members
        return _lower(
            ops, self.choice, self._again, self.wish, members.start, members.items, self.ways.extra,
            tables.cost, tables.overwritten_by.start, tables.overwritten_by.items,
            tables.reads.start, tables.reads.items, tables.writes.start, tables.writes.items,
            tables.outputs, tables.value_bytes.size,
        )  # fmt: skip

    def _fastest(self, lean: IntArray, legal: IntArray, during: IntArray) -> IntArray:
        tables, members = self.graph.tables, self.ways.members
        return _upgrade(
            lean, legal, during, self.limit, self.ways.group_of, members.start, members.items,
            self.ways.extra, tables.cost,
        )  # fmt: skip


@kernel
def _picked(groups, place, writer_at, writers):
    """Rows of some groups' writers, numbered by ``place``; those that it lacks are left out."""
    start = np.zeros(groups.size + 1, dtype=np.int64)
    items = np.empty(writers.size, dtype=np.int64)
    end = 0
    for i in range(groups.size):
        for k in range(writer_at[groups[i]], writer_at[groups[i] + 1]):
            if place[writers[k]] >= 0:
                items[end] = place[writers[k]]
                end += 1
        start[i + 1] = end
    return start, items[:end].copy()


@kernel
def _lower(
    ops, choice, again, wish, member_at, members, extra, cost, over_at, over,
    read_at, reads, write_at, writes, outputs, values,
):  # fmt: skip
    """Per compute, its leanest legal way (-1: nobody reads what it writes) and a mask of all.

    Backwards, since a value may be overwritten only where nobody reads it later.
    """
    lean = np.full(ops.size, -1, dtype=np.int64)
    legal = np.zeros(ops.size, dtype=np.int64)
    seen = np.zeros(choice.size, dtype=np.int64)
    number = np.empty(ops.size, dtype=np.int64)
    for p in range(ops.size):
        number[p] = seen[ops[p]]
        seen[ops[p]] += 1
    needed = np.zeros(values, dtype=np.bool_)
    for v in outputs:
        needed[v] = True
    for p in range(ops.size - 1, -1, -1):
        op = ops[p]
        wanted = False
        for k in range(write_at[op], write_at[op + 1]):
            wanted = wanted or needed[writes[k]]
        if not wanted:
            continue
        best = -1
        for group in (again[op] if number[p] > 0 else choice[op], choice[op]):
            if best >= 0:  # the second is for where the first may only overwrite, and must not
                break
            for m in range(member_at[group], member_at[group + 1]):
                way = members[m]
                allowed = m - member_at[group] < 62
                for k in range(over_at[way], over_at[way + 1]):
                    if over[k] >= 0 and needed[over[k]]:
                        allowed = False
                if not allowed:
                    continue
                legal[p] |= np.int64(1) << (m - member_at[group])
                if (
                    way == wish[op]
                    or best < 0
                    or (
                        best != wish[op]
                        and (
                            extra[way] < extra[best]
                            or (extra[way] == extra[best] and cost[way] < cost[best])
                        )
                    )
                ):
                    best = way
        lean[p] = best
        for k in range(write_at[op], write_at[op + 1]):
            needed[writes[k]] = False
        for k in range(read_at[best], read_at[best + 1]):
            needed[reads[k]] = True
    return lean, legal


@kernel
def _upgrade(lean, legal, during, limit, group_of, member_at, members, extra, cost):
    """Per compute, the cheapest legal way that fits; the leanest where none does."""
    fast = lean.copy()
    for p in range(lean.size):
        room = limit - during[p] + extra[lean[p]]
        group = group_of[lean[p]]
        for m in range(member_at[group], member_at[group + 1]):
            way = members[m]
            fits = extra[way] <= room and (legal[p] >> (m - member_at[group])) & 1
            if fits and cost[way] < cost[fast[p]]:
                fast[p] = way
    return fast


def cheapest_choice(ways: Ways) -> IntArray:
    """Per op, the first of its groups: the one that reads as its default does, or less."""
    return ways.group_at[:-1].copy()


def graph_can_be_planned(graph: Graph) -> bool:
    """Has it a loss, after which everything is backward?"""
    loss = graph.loss_index
    return loss is not None and all(op.phase is not Phase.FORWARD for op in graph.ops[loss:])
