"""A graph as the interval search sees it, and its schedules as they change."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.engines.intervals.edits import insert, prune, sequence
from rematbench.engines.intervals.memory import END, FREE, LIMIT
from rematbench.engines.plans.stages import BoolArray, FloatArray, needed
from rematbench.graphs.ir import Graph, IntArray, Rows
from rematbench.graphs.plan import Plan

ROOM = 8
"""Computes that a schedule may have, per op of the graph."""


class Net(NamedTuple):
    """The needed ops of a graph, numbered in program order, and the values that they write.

    Attributes:
        cost: per op.
        workspace: per op, in bytes.
        written: per op, the bytes of its values.
        size: per value, in bytes.
        writer: per value, its op.
        final: per value, is it an output of the graph?
        reads, writes: per op, values.
        readers: per value, ops, ascending.
        most: computes of an op that a schedule may have; 0 for any number.
    """

    cost: FloatArray
    workspace: IntArray
    written: IntArray
    size: IntArray
    writer: IntArray
    final: BoolArray
    reads: Rows
    writes: Rows
    readers: Rows
    most: int

    @classmethod
    def of(cls, graph: Graph, most: int = 0) -> Net:
        """Of default implementations; residents are left out."""
        ops, tables = needed(graph), graph.tables
        number = np.full(len(graph.values), -1, dtype=np.int64)
        written = tables.writes.picked(ops)
        values, writer = written.items, written.row_of
        number[values] = np.arange(len(values))
        first = tables.op_first[ops]
        reads = tables.inputs.picked(ops).numbered(number)
        size = tables.value_bytes[values]
        return cls(
            tables.cost[first],
            tables.workspace[first],
            np.bincount(writer, size, len(ops)).astype(np.int64),
            size,
            writer,
            tables.is_output[values],
            reads,
            written.numbered(number),
            reads.transposed(len(values)),
            most,
        )


class IntervalState(NamedTuple):
    """A schedule: the computes of each op, and the memory while each runs.

    Compute number i, below the number of ops, is the first one of op i. A compute in stage s runs
    before the first compute of op s, which ends the stage; a stage is in program order.

    Attributes:
        stage, op: per compute; of a free number, -1 is the op.
        offset: per compute, bytes in memory while it runs, less what ``added`` says of its stage.
        after: per compute, the next one of its stage, or -1.
        again: per compute, the next one of its op, or -1.
        head: per stage, its first compute.
        most, added: per node of a tree over the stages, the largest memory below it, and what is
            to be added to all below it. Node x has children 2x and 2x + 1; the root is 1.
        unused: free compute numbers, a stack, the lowest on top.
        level: per stage, its largest memory, kept while there is a limit.
        cost: of all computes; one entry.
        counts: five numbers, by their names in :mod:`rematbench.engines.intervals.memory`.
    """

    stage: IntArray
    op: IntArray
    offset: IntArray
    after: IntArray
    again: IntArray
    head: IntArray
    most: IntArray
    added: IntArray
    unused: IntArray
    level: IntArray
    cost: FloatArray
    counts: IntArray


def start(net: Net, resident: int | IntArray) -> IntervalState:
    """Every op once.

    Args:
        resident: bytes that are always there; or, per stage, those that are there during it.
    """
    n = len(net.cost)
    capacity = ROOM * n + 4096
    leaves = 1 << max(0, n - 1).bit_length()
    number = np.arange(capacity)
    state = IntervalState(
        number.copy(),
        np.where(number < n, number, -1),
        np.zeros(capacity, dtype=np.int64),
        np.full(capacity, -1, dtype=np.int64),
        np.full(capacity, -1, dtype=np.int64),
        number[:n].copy(),
        np.full(2 * leaves, -1, dtype=np.int64),
        np.zeros(2 * leaves, dtype=np.int64),
        number[n:][::-1].copy(),
        np.zeros(n, dtype=np.int64),
        np.array([net.cost.sum()]),
        np.zeros(5, dtype=np.int64),
    )
    state.counts[FREE], state.counts[END], state.counts[LIMIT] = capacity - n, n, -1
    state.offset[:n] = _profile(net) + resident
    state.most[leaves : leaves + n] = state.offset[:n]
    for x in range(leaves - 1, 0, -1):
        state.most[x] = max(state.most[2 * x], state.most[2 * x + 1])
    return state


def _profile(net: Net) -> IntArray:
    """Bytes in memory while each op runs, each once, without residents."""
    n = len(net.cost)
    last = net.writer.copy()
    read = net.readers.start[1:] > net.readers.start[:-1]
    last[read] = net.readers.items[net.readers.start[1:][read] - 1]
    last[net.final] = n - 1
    change = np.zeros(n + 1, dtype=np.int64)
    np.add.at(change, net.writer, net.size)
    np.add.at(change, last + 1, -net.size)
    return np.cumsum(change)[:n] + net.workspace


def follow(net: Net, state: IntervalState, recomputed: IntArray) -> None:
    """Make an empty schedule recompute what a plan does.

    Args:
        recomputed: rows (stage, op).
    """
    for stage, op in recomputed.tolist():
        insert(net, state, stage, op)
    prune(net, state)


def plan_of(graph: Graph, state: IntervalState) -> Plan:
    """The schedule as a plan."""
    codes = graph.tables.op_first[needed(graph)[sequence(state)]]
    return Plan.of_computes(graph, codes)
