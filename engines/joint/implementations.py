"""What a plan may choose: each op's implementations, pruned, and grouped by what they read.

A variant allows some kinds of implementations (MONeT, section 5, ablation; appendix D).
Implementations of an op that read the same values differ only in what they need while they run;
which one is best depends on the room at that statement alone. So the planner chooses a *group* of
implementations per op, and the implementation within the group follows from the schedule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from rematbench.engines.joint.kernels import Implementations
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import Graph, IntArray, Rows
from rematbench.graphs.kinds import Kind, kinds_of

ALWAYS = frozenset(
    {Kind.DEFAULT, Kind.CONVOLUTION, Kind.INPLACE, Kind.STATISTICS, Kind.SHAPE, Kind.PARTS}
)
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
class AllowedImplementations:
    """The allowed implementations of a graph.

    Groups are numbered through, in op order; the first group of an op is the one with its
    default's reads, or with fewer.

    Attributes:
        graph: the graph.
        kinds: of implementations that are allowed.
        everything: are all of the graph's implementations allowed (pruned ones count as such)?
        group_at: per op, its first group; one longer than the ops.
        members: per group, implementation numbers.
        recompute_group: per op, the group that recomputes it by values of its own, or -1.
        extra: per implementation, bytes that it needs beside what is live before it: workspace,
            and outputs that take over no storage.
        allowed: per op, all of its implementations, pruned or not, that fit the budget by
            themselves.
    """

    graph: Graph
    kinds: frozenset[Kind]
    everything: bool
    group_at: IntArray
    members: Rows
    recompute_group: IntArray
    extra: IntArray
    allowed: Rows

    @classmethod
    def of(
        cls, graph: Graph, kinds: frozenset[Kind], budget: int | None = None
    ) -> AllowedImplementations:
        """The implementations of ``graph`` that are of ``kinds``.

        Args:
            budget: in bytes; implementations that need more by themselves are as good as not there.
        """
        tables, extra = graph.tables, _extra(graph)
        free_bytes = np.inf if budget is None else budget - graph.resident_bytes
        everything, starts, again = True, [0], list[int]()
        groups, every = list[list[int]](), list[list[int]]()
        for number, op in enumerate(graph.ops):
            first = int(tables.op_first[number])
            names = enumerate((implementation.name for implementation in op.implementations), first)
            implementations = [
                _Implementation.of(graph, implementation, extra)
                for implementation, name in names
                if kinds_of(name) <= kinds
            ]
            everything &= len(implementations) == len(op.implementations)
            implementations = _fitting(implementations, free_bytes)
            every.append([implementation.number for implementation in implementations])
            own = frozenset(tables.writes[number].tolist())
            by_others = _grouped(
                [
                    implementation
                    for implementation in implementations
                    if not implementation.reads & own
                ]
            )
            by_itself = [
                implementation for implementation in implementations if implementation.reads & own
            ]
            cheaper = [
                implementation.number
                for implementation in by_itself
                if implementation.cost <= tables.cost[first]
            ]
            again.append(len(groups) + len(by_others) if cheaper else -1)
            groups += [*by_others, cheaper] if cheaper else by_others
            starts.append(len(groups))
        return cls(
            graph,
            kinds,
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
        return Implementations(
            members=self.members,
            group_of=self.group_of,
            extra=self.extra,
            cost=tables.cost,
            recompute_group=self.recompute_group,
            overwrites=tables.overwritten_by,
            reads=tables.reads,
            writes=tables.writes,
            outputs=tables.outputs,
            value_bytes=tables.value_bytes,
            random=np.array([op.random for op in self.graph.ops], dtype=np.bool_),
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

    def first_implementations(self, op: int) -> list[int]:
        """Every implementation to compute ``op`` the first time."""
        return [
            int(implementation)
            for group in self.groups(op)
            for implementation in self.members[group]
        ]

    def surely_read(self, op: int) -> frozenset[int]:
        """Values that every implementation of ``op`` reads, whenever it runs."""
        groups = [*self.groups(op)] + (
            [int(self.recompute_group[op])] if self.recompute_group[op] >= 0 else []
        )
        rows = [frozenset(self.reads(group).tolist()) for group in groups]
        return frozenset.intersection(*rows)

    @cached_property
    def surely_needed(self) -> BoolArray:
        """Per op: does every plan compute it? None of those that may wait after the loss."""
        tables = self.graph.tables
        wanted = tables.is_output.copy()
        needed = np.zeros(len(self.graph.ops), dtype=bool)
        for op in range(len(needed) - 1, -1, -1):
            if wanted[tables.writes[op]].any():
                needed[op] = True
                wanted[list(self.surely_read(op))] = True
        needed[self.optional_later] = False
        return needed

    @cached_property
    def least_cost(self) -> float:
        """Of every needed op once, in its cheapest implementation."""
        cost = self.graph.tables.cost
        needed = np.flatnonzero(self.surely_needed).tolist()
        return float(sum(cost[self.first_implementations(op)].min() for op in needed))

    @cached_property
    def deferrable(self) -> frozenset[int]:
        """Ops after the loss that make more bytes than they read, outputs that nothing reads.

        The gradients of a classifier's weights are such. Whoever computes them later than in
        their place keeps the smaller values instead.
        """
        graph, tables = self.graph, self.graph.tables
        assert graph.loss_index is not None
        final = tables.is_output & ~tables.is_read
        size = np.where(tables.resident, 0, tables.value_bytes)
        return frozenset(
            op
            for op in np.flatnonzero(self.surely_needed).tolist()
            if op > graph.loss_index
            and final[tables.writes[op]].all()
            and all(
                size[tables.reads[implementation]].sum() < size[tables.writes[op]].sum()
                for implementation in self.first_implementations(op)
            )
        )

    @cached_property
    def long_lived(self) -> list[int]:
        """Ops after the loss whose values are read long after: gradients of skip connections."""
        tables = self.graph.tables
        time = {op: number for number, step in enumerate(self.steps) for op in step}
        last = dict(time)
        for op, number in time.items():
            for v in {
                int(v)
                for implementation in self.first_implementations(op)
                for v in tables.reads[implementation]
            }:
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

    @cached_property
    def optional_later(self) -> list[int]:
        """Optional ops after the loss: copies of parts of gradients, which need not be at once."""
        loss, needed = self.graph.loss_index, self.graph.needed_ops()
        if loss is None:
            return []
        return (loss + np.flatnonzero(~needed[loss:])).tolist()

    def _are_siblings(self, op: int, other: int) -> bool:
        """Do two backward ops read the same gradients, and nothing of each other?"""
        tables, loss = self.graph.tables, self.graph.loss_index
        assert loss is not None
        sets = []
        for each in (op, other):
            reads = {
                int(v)
                for implementation in self.first_implementations(each)
                for v in tables.reads[implementation]
            }
            sets.append({v for v in reads if tables.writer[v] > loss})
        made = set(tables.writes[op].tolist()) | set(tables.writes[other].tolist())
        overwrites = any(
            (tables.overwritten_by[implementation] >= 0).any()
            for each in (op, other)
            for implementation in self.first_implementations(each)
        )
        return bool(sets[0]) and sets[0] == sets[1] and not made & sets[0] and not overwrites


def _extra(graph: Graph) -> IntArray:
    tables = graph.tables
    extra = tables.workspace.copy()
    for implementation, op in enumerate(tables.op_of.tolist()):
        sizes = tables.value_bytes[tables.writes[op]]
        taken = tables.overwritten_by[implementation]
        extra[implementation] += int(sizes[taken < 0].sum() if len(taken) else sizes.sum())
    return extra


class _Implementation(NamedTuple):
    """One implementation.

    Attributes:
        number: of the implementation.
        cost, extra: see :class:`Implementations`.
        need: bytes that it needs by itself, without residents.
        reads: values, without residents.
        overwrites: those of them whose storages it takes over.
    """

    number: int
    cost: float
    extra: int
    need: int
    reads: frozenset[int]
    overwrites: frozenset[int]

    @classmethod
    def of(cls, graph: Graph, number: int, extra: IntArray) -> _Implementation:
        tables = graph.tables
        reads = tables.reads[number]
        reads = reads[~tables.resident[reads]]
        taken = tables.overwritten_by[number]
        need = int(extra[number] + tables.value_bytes[reads].sum())
        sets = (frozenset(values.tolist()) for values in (reads, taken[taken >= 0]))
        return cls(number, float(tables.cost[number]), int(extra[number]), need, *sets)

    def beats(self, other: _Implementation) -> bool:
        """Is it no worse in cost, in extra bytes, in what it reads and in what it overwrites?"""
        no_dearer = self.cost <= other.cost and self.extra <= other.extra
        return no_dearer and self.reads <= other.reads and self.overwrites <= other.overwrites


def _fitting(implementations: list[_Implementation], free_bytes: float) -> list[_Implementation]:
    """Implementations that fit by themselves, and what reads the same as one that overwrites."""
    takes_over = {
        implementation.reads
        for implementation in implementations
        if implementation.need <= free_bytes and implementation.overwrites
    }
    fit = [
        implementation
        for implementation in implementations
        if implementation.need <= free_bytes or implementation.reads in takes_over
    ]
    return fit or implementations  # an optional op may have none


def _grouped(implementations: list[_Implementation]) -> list[list[int]]:
    """Groups of what none of the others beats, each with one that overwrites nothing."""
    kept: list[_Implementation] = []
    for implementation in sorted(
        implementations,
        key=lambda implementation: (
            implementation.cost,
            implementation.extra,
            len(implementation.reads),
        ),
    ):
        if not any(other.beats(implementation) for other in kept):
            kept.append(implementation)
    legal = {implementation.reads for implementation in kept if not implementation.overwrites}
    for implementation in implementations:
        if (
            not implementation.overwrites
            and implementation.reads not in legal
            and implementation.reads in {w.reads for w in kept}
        ):
            kept.append(implementation)
            legal.add(implementation.reads)
    groups: dict[frozenset[int], list[int]] = {}
    for implementation in sorted(kept):
        if implementation.reads in legal:
            groups.setdefault(implementation.reads, []).append(implementation.number)
    return list(groups.values())
