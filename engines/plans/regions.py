"""Regions that run forward again as a whole, as ``torch.utils.checkpoint`` runs them.

Outside of regions everything stays that the backward pass reads. In a region only what is read
outside of it stays, and what a policy saves. Right before the first backward op that misses
something of a region, all that the backward pass misses of it is computed, once, from what stayed
(PyTorch stops the second forward run early: after the last op that is wanted).

Until the last backward op that reads of a region, PyTorch's eager mode holds what need not stay:
the region's inputs, and what a policy saved that the second run never comes to. Anywhere it holds
all that a node of autograd's graph reads and makes until the whole node has run: of ``x * y`` both
factors and the incoming gradient, beside both new gradients.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from rematbench.engines.plans.stages import BoolArray, needed
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan, with_frees


def plan_with_regions(
    graph: Graph, region: IntArray, saved: BoolArray | None = None, late: bool = False
) -> Plan:
    """The plan of a step with checkpointed regions.

    Args:
        region: per op, the number of the region that a forward op is in; -1 for none.
        saved: per op, does a policy keep what it makes? None: none.
        late: free as late as PyTorch's eager mode does.
    """
    saved = np.zeros(len(graph.ops), dtype=bool) if saved is None else saved
    ops = needed(graph).tolist()
    dropped = _dropped(graph, ops, region, saved)
    again = _missed(graph, ops, dropped)
    order, last = _sequence(graph, ops, region, dropped, again)
    codes = with_frees(graph, graph.tables.op_first[order])
    if late:
        until = _inputs(graph, ops, region, last)
        until |= _unread(graph, region, saved, again, last)
        for value, op in _by_nodes(graph, ops).items():
            until[value] = max(op, until.get(value, -1))
        codes = _held(graph, codes, until)
    return Plan.from_codes(graph, codes)


def _dropped(graph: Graph, ops: list[int], region: IntArray, saved: BoolArray) -> BoolArray:
    """Per value: does it leave memory until its region runs again?"""
    tables = graph.tables
    inside = np.append(np.where(saved, -1, region), -1)  # the last one is of residents
    gone = inside[tables.writer] >= 0
    gone[tables.outputs] = False
    for op in ops:
        if not tables.backward[op]:
            reads = tables.inputs[op]
            gone[reads[inside[tables.writer[reads]] != region[op]]] = False
    return np.asarray(gone)


def _missed(graph: Graph, ops: list[int], dropped: BoolArray) -> BoolArray:
    """Per op: must it run again, so that the backward pass has all its reads?"""
    tables = graph.tables
    again = np.zeros(len(graph.ops), dtype=bool)
    pending = [op for op in ops if tables.backward[op]]
    while pending:
        reads = tables.inputs[pending.pop()]
        writers = np.unique(tables.writer[reads[dropped[reads]]])
        pending += writers[~again[writers]].tolist()
        again[writers] = True
    return again


def _sequence(
    graph: Graph, ops: list[int], region: IntArray, dropped: BoolArray, again: BoolArray
) -> tuple[list[int], dict[int, int]]:
    """All computes in order, and the last backward op that reads of each region."""
    tables = graph.tables
    second: dict[int, list[int]] = defaultdict(list)
    for op in np.flatnonzero(again).tolist():
        second[int(region[op])].append(op)
    order: list[int] = []
    last: dict[int, int] = {}
    for op in ops:
        if tables.backward[op]:
            reads = tables.inputs[op]
            writers = tables.writer[reads]
            for one in np.unique(region[writers[dropped[reads]]]).tolist():
                order += second.pop(one, [])
            last |= dict.fromkeys(region[writers[writers >= 0]].tolist(), op)
        order.append(op)
    return order, last


def _inputs(graph: Graph, ops: list[int], region: IntArray, last: dict[int, int]) -> dict[int, int]:
    """What regions read from outside, and the op until which it stays."""
    tables = graph.tables
    found: dict[int, int] = {}
    for op in ops:
        until = last.get(int(region[op]), -1)
        if region[op] >= 0 and until >= 0:
            reads = tables.inputs[op]
            writers = tables.writer[reads]
            for value in reads[(writers >= 0) & (region[writers] != region[op])].tolist():
                found[value] = max(found.get(value, -1), until)
    return found


def _unread(
    graph: Graph, region: IntArray, saved: BoolArray, again: BoolArray, last: dict[int, int]
) -> dict[int, int]:
    """Saved values that the second run never comes to, and the op until which they stay."""
    stop: dict[int, int] = {}
    for op in np.flatnonzero(again).tolist():
        stop[int(region[op])] = op
    found: dict[int, int] = {}
    for op in np.flatnonzero(saved & (region >= 0)).tolist():
        one = int(region[op])
        if one in last and op > stop.get(one, -1):
            found |= dict.fromkeys(graph.tables.writes[op].tolist(), last[one])
    return found


def _by_nodes(graph: Graph, ops: list[int]) -> dict[int, int]:
    """What an autograd node of several ops reads and makes, and its last op.

    Where several nodes read a value the last of them counts: until then it stays anyway.
    """
    tables = graph.tables
    last = {graph.ops[op].autograd_node: op for op in ops}
    found: dict[int, int] = {}
    for op in ops:
        node = graph.ops[op].autograd_node
        if node is not None:
            touched = (*tables.inputs[op], *tables.writes[op])
            found |= dict.fromkeys(map(int, touched), last[node])
    return found


def _held(graph: Graph, codes: IntArray, until: dict[int, int]) -> IntArray:
    """The statements, where values are freed at last no earlier than right after an op."""
    op_of = graph.tables.op_of
    last = {code: position for position, code in enumerate(codes.tolist()) if code < 0}
    done = np.zeros(len(graph.ops), dtype=bool)
    waiting: dict[int, list[int]] = defaultdict(list)
    found: list[int] = []
    for position, code in enumerate(codes.tolist()):
        op = until.get(~code, -1) if last.get(code) == position else -1
        if op >= 0 and not done[op]:
            waiting[op].append(code)
            continue
        found.append(code)
        if code >= 0:
            done[op_of[code]] = True
            found += waiting.pop(int(op_of[code]), [])
    return np.array(found, dtype=np.int64)
