"""What a plan may choose: the ways to run each op, pruned, and grouped by what they read.

A variant allows some kinds of implementations (MONeT, section 5, ablation; appendix D). Ways of an
op that read the same values differ only in what they need while they run; which one is best
depends on the room at that statement alone. So the planner chooses a *group* of ways per op, and
the way within the group follows from the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rematbench.graphs.errors import NotApplicable
from rematbench.graphs.ir import Graph, IntArray, Rows
from rematbench.graphs.kinds import Kind, kinds_of
from rematbench.strategies.monet.kernels import Implementations
from rematbench.strategies.stages import BoolArray

ALWAYS = frozenset({Kind.DEFAULT, Kind.CONVOLUTION, Kind.INPLACE, Kind.STATISTICS, Kind.SHAPE})
"""Every variant has these: gradients are split, in-place operators enabled, and convolution
algorithms at least chosen afterwards (appendix D; appendix G, first paragraph)."""

OUTPUT = frozenset({Kind.OUTPUT, Kind.INPUT})
INTERMEDIATE = frozenset({Kind.INTERMEDIATE, Kind.REPLAY})
VARIANTS: dict[str, frozenset[Kind]] = {
    "full": ALWAYS | OUTPUT | INTERMEDIATE,
    "noop": ALWAYS,
    "conv": ALWAYS,
    "output": ALWAYS | OUTPUT,
    "intermediate": ALWAYS | INTERMEDIATE,
}
JOINT = frozenset({"full", "conv"})
"""Variants that weigh convolution algorithms against memory while they search."""
LONG = 8
"""Steps over which a gradient must be live to be worth computing again: longer than its op's
neighbours keep it, and short enough for the gradients of skip connections."""


@dataclass(frozen=True)
class Ways:
    """The allowed ways of a graph.

    Groups are numbered through, in op order; the first group of an op is the one with its
    default's reads, or with fewer.

    Attributes:
        graph: the graph.
        everything: are all of the graph's implementations allowed (pruned ones count as such)?
        group_at: per op, its first group; one longer than the ops.
        members: per group, implementation numbers.
        recompute_group: per op, the group that recomputes it by values of its own, or -1.
        extra: per implementation, bytes that it needs beside what is live before it: workspace,
            and outputs that take over no storage.
        allowed: per op, all of its ways, pruned or not, that fit the budget by themselves.
    """

    graph: Graph
    everything: bool
    group_at: IntArray
    members: Rows
    recompute_group: IntArray
    extra: IntArray
    allowed: Rows

    @classmethod
    def of(cls, graph: Graph, kinds: frozenset[Kind], budget: int | None = None) -> Ways:
        """The ways of ``graph`` that are of ``kinds``.

        Args:
            budget: in bytes; ways that need more by themselves are as good as not there.

        Raises:
            NotApplicable: an op's default overwrites what it reads.
        """
        for op in graph.ops:
            if op.implementations[0].overwrites:
                raise NotApplicable(
                    f"op {op.name!r} overwrites what it reads in each of its ways; MONeT needs a "
                    "default that does not"
                )
        tables = graph.tables
        extra = _extra(graph)
        movable = [
            frozenset(row[~tables.resident[row]].tolist())
            for row in map(tables.reads.__getitem__, range(len(tables.op_of)))
        ]
        size = np.where(tables.resident, 0, tables.value_bytes)
        room = np.inf if budget is None else budget - graph.resident_bytes
        everything, starts, again, every = True, [0], [], list[list[int]]()
        groups: list[list[int]] = []
        for number, op in enumerate(graph.ops):
            first = int(tables.op_first[number])
            allowed = [
                first + i for i, way in enumerate(op.implementations) if kinds_of(way.name) <= kinds
            ]
            everything &= len(allowed) == len(op.implementations)
            fit = {way for way in allowed if extra[way] + size[tables.reads[way]].sum() <= room}
            takes_over = {movable[way] for way in fit if not _overwrites_nothing(way, graph)}
            beside = {way for way in allowed if movable[way] in takes_over}
            allowed = sorted(fit | beside) or allowed  # an optional op may have none
            every.append(allowed)
            own = frozenset(tables.writes[number].tolist())
            ours = _grouped([w for w in allowed if not movable[w] & own], movable, extra, graph)
            by_itself = [w for w in allowed if movable[w] & own]
            cheaper = [w for w in by_itself if tables.cost[w] <= tables.cost[first]]
            again.append(len(groups) + len(ours) if cheaper else -1)
            groups += [*ours, cheaper] if cheaper else ours
            starts.append(len(groups))
        return cls(
            graph,
            everything,
            np.array(starts, dtype=np.int64),
            Rows.of(groups),
            np.array(again, dtype=np.int64),
            extra,
            Rows.of(every),
        )

    @cached_property
    def group_of(self) -> IntArray:
        """Per implementation, its group, or -1."""
        found = np.full(len(self.graph.tables.op_of), -1, dtype=np.int64)
        for group in range(len(self.members)):
            found[self.members[group]] = group
        return found

    @cached_property
    def arrays(self) -> Implementations:
        """For the kernels."""
        tables = self.graph.tables
        rows = tables.overwritten_by, tables.reads, tables.writes
        return Implementations(
            self.members.start,
            self.members.items,
            self.group_of,
            self.extra,
            tables.cost,
            *(array for each in rows for array in (each.start, each.items)),
            tables.outputs,
            tables.value_bytes,
        )

    @cached_property
    def writers(self) -> Rows:
        """Per group, the ops that write what it reads, in program order."""
        writer = self.graph.tables.writer
        found = (set(writer[self.reads(group)].tolist()) for group in range(len(self.members)))
        return Rows.of([sorted(ops - {-1}) for ops in found])

    def groups(self, op: int) -> range:
        """The groups that may compute ``op`` the first time."""
        end = int(self.group_at[op + 1]) - (self.recompute_group[op] >= 0)
        return range(int(self.group_at[op]), end)

    def reads(self, group: int) -> IntArray:
        """What the ways of a group read; residents included."""
        return self.graph.tables.reads[int(self.members[group][0])]

    def first_ways(self, op: int) -> list[int]:
        """Every way to compute ``op`` the first time."""
        return [int(way) for group in self.groups(op) for way in self.members[group]]

    def surely_read(self, op: int) -> frozenset[int]:
        """Values that every way of ``op`` reads, whenever it runs."""
        groups = [*self.groups(op)] + (
            [int(self.recompute_group[op])] if self.recompute_group[op] >= 0 else []
        )
        rows = [frozenset(self.reads(group).tolist()) for group in groups]
        return frozenset.intersection(*rows)

    def surely_needed(self) -> BoolArray:
        """Per op: does every plan compute it?"""
        return self._surely_needed

    @cached_property
    def _surely_needed(self) -> BoolArray:
        tables = self.graph.tables
        wanted = np.zeros(len(self.graph.values), dtype=bool)
        wanted[tables.outputs] = True
        needed = np.zeros(len(self.graph.ops), dtype=bool)
        for op in range(len(needed) - 1, -1, -1):
            if wanted[tables.writes[op]].any():
                needed[op] = True
                wanted[list(self.surely_read(op))] = True
        return needed

    @cached_property
    def deferrable(self) -> frozenset[int]:
        """Ops after the loss that make more bytes than they read, outputs that nothing reads.

        The gradients of a classifier's weights are such. Whoever computes them later than in
        their place keeps the smaller values instead.
        """
        graph, tables = self.graph, self.graph.tables
        assert graph.loss_index is not None
        final = np.zeros(len(graph.values), dtype=bool)
        final[tables.outputs] = True
        final[tables.reads.items] = False
        size = np.where(tables.resident, 0, tables.value_bytes)
        return frozenset(
            op
            for op in np.flatnonzero(self.surely_needed()).tolist()
            if op > graph.loss_index
            and final[tables.writes[op]].all()
            and all(
                size[tables.reads[way]].sum() < size[tables.writes[op]].sum()
                for way in self.first_ways(op)
            )
        )

    @cached_property
    def long_lived(self) -> list[int]:
        """Ops after the loss whose values are read long after: gradients of skip connections."""
        tables = self.graph.tables
        time = {op: number for number, step in enumerate(self.steps) for op in step}
        last = dict(time)
        for op, number in time.items():
            for v in {int(v) for way in self.first_ways(op) for v in tables.reads[way]}:
                writer = int(tables.writer[v])
                if writer in last:
                    last[writer] = max(last[writer], number)
        return sorted(op for op in time if last[op] - time[op] > LONG)

    @cached_property
    def steps(self) -> list[tuple[int, ...]]:
        """The needed ops from the loss on, in the order in which they run.

        Program order, except for pairs: where an op that makes outputs only (the gradient of a
        weight) follows one that reads the same gradients (that of the convolution's input), the
        two may run in either order, and it runs first. So its other reads can be freed before
        the other gradient is made.
        """
        graph, tables = self.graph, self.graph.tables
        assert graph.loss_index is not None
        outputs = set(tables.outputs.tolist())
        stages = [op for op in np.flatnonzero(graph.needed_ops()) if op >= graph.loss_index]
        found: list[tuple[int, ...]] = []
        for op in map(int, stages):
            before = found[-1] if found else ()
            makes_outputs = set(tables.writes[op].tolist()) <= outputs
            if len(before) == 1 and makes_outputs and self._are_siblings(before[0], op):
                found[-1] = (op, *before)
            else:
                found.append((op,))
        return found

    def _are_siblings(self, op: int, other: int) -> bool:
        """Do two backward ops read the same gradients, and nothing of each other?"""
        tables, loss = self.graph.tables, self.graph.loss_index
        assert loss is not None
        sets = []
        for each in (op, other):
            reads = {int(v) for way in self.first_ways(each) for v in tables.reads[way]}
            sets.append({v for v in reads if tables.writer[v] > loss})
        made = set(tables.writes[op].tolist()) | set(tables.writes[other].tolist())
        overwrites = any(
            (tables.overwritten_by[way] >= 0).any()
            for each in (op, other)
            for way in self.first_ways(each)
        )
        return bool(sets[0]) and sets[0] == sets[1] and not made & sets[0] and not overwrites


def _extra(graph: Graph) -> IntArray:
    tables = graph.tables
    extra = tables.workspace.copy()
    for way, op in enumerate(tables.op_of.tolist()):
        sizes = tables.value_bytes[tables.writes[op]]
        taken = tables.overwritten_by[way]
        extra[way] += int(sizes[taken < 0].sum() if len(taken) else sizes.sum())
    return extra


def _overwrites_nothing(way: int, graph: Graph) -> bool:
    return bool((graph.tables.overwritten_by[way] < 0).all())


def _pruned(
    ways: list[int], movable: list[frozenset[int]], extra: IntArray, graph: Graph
) -> list[int]:
    """Without ways that another beats in cost, in extra bytes and in what it reads."""
    cost, taken = graph.tables.cost, graph.tables.overwritten_by
    kept: list[int] = []
    for way in sorted(ways, key=lambda w: (cost[w], extra[w], len(movable[w]))):
        overwritten = {v for v in taken[way].tolist() if v >= 0}
        beaten = any(
            movable[other] <= movable[way]
            and cost[other] <= cost[way]
            and extra[other] <= extra[way]
            and {v for v in taken[other].tolist() if v >= 0} <= overwritten
            for other in kept
        )
        if not beaten:
            kept.append(way)
    return kept


def _grouped(
    ways: list[int], movable: list[frozenset[int]], extra: IntArray, graph: Graph
) -> list[list[int]]:
    """Groups of what is left after pruning, each with a way that overwrites nothing."""
    plain = [way for way in ways if _overwrites_nothing(way, graph)]
    kept = _pruned(ways, movable, extra, graph)
    legal = {movable[way] for way in kept if way in plain}
    for way in plain:
        if movable[way] not in legal and any(movable[way] == movable[other] for other in kept):
            kept.append(way)
            legal.add(movable[way])
    groups: dict[frozenset[int], list[int]] = {}
    for way in sorted(kept):
        if movable[way] in legal:
            groups.setdefault(movable[way], []).append(way)
    return list(groups.values())
