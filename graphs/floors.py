"""What plans of one kind must have at least: less than that, and gradients are computed twice."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.ir import Graph, IntArray, Phase


def once_floor(graph: Graph) -> tuple[int, str]:
    """A peak in bytes that no plan undercuts which computes each backward op once.

    For plans whose first computes are in program order. While a backward op runs, what earlier
    ones have written is there if it is an output or still to be read, for it cannot come back;
    besides it are residents, what the op reads and writes, and its workspace, in its leanest
    implementation. Between this floor and :meth:`Graph.floor` lie budgets at which activations
    alone cannot be dropped any further: weight gradients would have to go, too, and come back.

    Returns:
        The bytes and what needs them; the graph's own floor where that is as high, or where there
        is no loss.
    """
    floor, loss = graph.floor(), graph.loss_index
    if loss is None:
        return floor
    tables, needed = graph.tables, graph.always_needed_ops()
    once = np.array([op.phase is not Phase.FORWARD for op in graph.ops]) & needed
    once[loss] = True
    last = _last_reads(graph, needed)
    movable = np.where(tables.resident, 0, tables.value_bytes)
    stays = (tables.writer >= 0) & once[tables.writer] & (last > tables.writer)
    change = np.zeros(len(graph.ops) + 1, dtype=np.int64)
    np.add.at(change, tables.writer[stays] + 1, movable[stays])
    np.add.at(change, last[stays], -movable[stays])
    staying = np.cumsum(change)
    ends = np.where(stays, last, -1)
    highest = floor
    for op in np.flatnonzero(once).tolist():
        own = min(
            _own(graph, op, implementation, movable, ends)
            for implementation in _implementations(graph, op)
        )
        total = graph.resident_bytes + int(staying[op]) + own
        if total > highest[0]:
            highest = total, f"op {graph.ops[op].label}, with the gradients that are there by then"
    return highest


def _implementations(graph: Graph, op: int) -> range:
    first = graph.tables.op_first
    return range(int(first[op]), int(first[op + 1]))


def _own(graph: Graph, op: int, implementation: int, movable: IntArray, ends: IntArray) -> int:
    """Bytes that an op needs beside what stays over it."""
    tables = graph.tables
    reads = tables.reads[implementation]
    written = [
        int(movable[w])
        for w, taken_over in zip(
            tables.writes[op], tables.overwritten_by[implementation], strict=True
        )
        if taken_over < 0
    ]
    return int(movable[reads[ends[reads] <= op]].sum() + tables.workspace[implementation]) + sum(
        written
    )


def _last_reads(graph: Graph, needed: NDArray[np.bool_]) -> IntArray:
    """Per value, the last op that reads it in every implementation; the end for outputs."""
    tables = graph.tables
    last = np.full(len(graph.values), -1, dtype=np.int64)
    for op in np.flatnonzero(needed).tolist():
        implementations = [
            set(tables.reads[implementation].tolist())
            for implementation in _implementations(graph, op)
        ]
        last[sorted(set.intersection(*implementations))] = op
    last[tables.outputs] = len(graph.ops)
    return last
