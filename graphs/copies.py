"""Plans for two memories: bytes by the sequence alone, time by three engines.

Engines are streams, first in first out: compute, the link out and the link in. Statements are
issued in order, without waiting for any; blocks are handed out and taken back at the statement, and
what makes that safe is that a block's next user waits for its last one. Device memory belongs to
the compute stream, host memory to the link out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rematbench.base.kernels import kernel
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.link import Link
from rematbench.graphs.plan import FETCH, FREE, OFFLOAD, move_of

FloatArray = NDArray[np.float64]
OK, DEAD_READ, FREE_DEAD, FREE_RESIDENT, BAD_CODE = range(5)
_NO_OUT, _NO_IN, _MOVED_DEAD, _MOVED_RESIDENT, _TWICE, _NOT_THERE, _HERE = range(5, 12)
COMPUTE, OUT, IN = range(3)
ENGINES = ("compute", "out", "in")


@dataclass(frozen=True)
class Copies:
    """What a plan with copies does beside its computes.

    Attributes:
        host_peak_bytes: the most bytes on the host at any statement.
        out_bytes, in_bytes: copied to the host, and back.
        waiting: cost units that compute, the link out and the link in stood still before what
            came next on them.
        compute_cost: sum over the computes; with what compute waited, the makespan.
        host_after: bytes on the host after each statement.
        begins, ends: per statement, when its engine begins and ends it, in cost units.
    """

    host_peak_bytes: int
    out_bytes: int
    in_bytes: int
    waiting: tuple[float, float, float]
    compute_cost: float
    host_after: IntArray
    begins: FloatArray
    ends: FloatArray


class State(NamedTuple):
    """What kernels change: flags and times per value, clocks and sums per engine, bytes."""

    live: NDArray[np.bool_]
    hosted: NDArray[np.bool_]
    ready: FloatArray
    sent: FloatArray
    whole: FloatArray
    fetched: FloatArray
    clock: FloatArray
    waited: FloatArray
    # On the device now and while a statement runs, on the host now and at most, moved out and in.
    bytes: IntArray
    size: IntArray
    resident: NDArray[np.bool_]


class StatementRows(NamedTuple):
    """Per statement: bytes on the device during and after it, on the host after it; times."""

    during: IntArray
    after: IntArray
    host: IntArray
    begins: FloatArray
    ends: FloatArray


class Replayed(NamedTuple):
    """What :func:`replay` found: a fault, its position and value; or what the plan does."""

    fault: int
    position: int
    value: int
    makespan: float
    computed: int
    checkpoints: int
    copies: Copies


def replay(
    graph: Graph, codes: IntArray, link: Link, live: NDArray[np.bool_], device: IntArray
) -> Replayed:
    """Replay a plan with copies.

    Args:
        live: the residents; what is on the device at the end.
        device: two rows that are filled with live bytes during and after each statement.
    """
    tables = graph.tables
    state = blank_state(graph, live)
    host = np.zeros(len(codes), dtype=np.int64)
    begins, ends = np.zeros((2, len(codes)))
    rows = StatementRows(device[0], device[1], host, begins, ends)
    fault, position, value, cost, computed, checkpoints = run_codes(
        codes, tables, state, link_numbers(link), rows
    )
    makespan = float(state.clock[COMPUTE])
    for output in tables.outputs.tolist():
        makespan = max(makespan, float(state.ready[output]))
    compute, out, into = state.waited.tolist()
    waiting = compute + makespan - float(state.clock[COMPUTE]), out, into
    moved = [int(number) for number in state.bytes[3:]]
    copies = Copies(moved[0], moved[1], moved[2], waiting, cost, host, begins, ends)
    return Replayed(fault, position, value, makespan, computed, checkpoints, copies)


def blank_state(graph: Graph, live: NDArray[np.bool_]) -> State:
    """The state before the first statement.

    Args:
        live: the residents; kernels change it.
    """
    tables, count = graph.tables, len(graph.values)
    ready, sent, whole, fetched = np.zeros((4, count))
    clock, waited = np.zeros((2, 3))
    bytes_ = np.array([graph.resident_bytes, 0, 0, 0, 0, 0])
    hosted = np.zeros(count, dtype=np.bool_)
    return State(live, hosted, ready, sent, whole, fetched, clock, waited, bytes_,
                 tables.value_bytes, tables.resident)  # fmt: skip


def link_numbers(link: Link) -> tuple[float, float, float, bool]:
    """A link as kernels take it."""
    return float(link.out), float(link.into), float(link.latency), bool(link.shared)


@kernel
def run_codes(codes, tables, state, link, timeline):
    """Fills the timeline; returns a fault with position and value, cost, computes, checkpoints."""
    cost, computed, checkpoints = 0.0, 0, -1
    for position in range(codes.size):
        code = codes[position]
        if code >= 0:
            if code >= tables.op_of.size:
                return BAD_CODE, position, 0, cost, computed, checkpoints
            if tables.op_of[code] == tables.loss and checkpoints < 0:
                checkpoints = forward_values(tables.writer, tables.forward, state.live)
            fault, v, begin, end = _compute(code, tables, state)
            cost += tables.cost[code]
            computed += 1
        else:
            fault, v, begin, end = _move(code, state, link)
        if fault != OK:
            return fault, position, v, cost, computed, checkpoints
        timeline.begins[position], timeline.ends[position] = begin, end
        timeline.during[position], timeline.after[position] = state.bytes[1], state.bytes[0]
        timeline.host[position] = state.bytes[2]
    return OK, 0, 0, cost, computed, max(checkpoints, 0)


@kernel
def _compute(code, tables, state):
    """Runs one implementation; returns a fault, its value, and when it begins and ends."""
    op, writes, taken = tables.op_of[code], tables.writes, tables.overwritten_by
    fault, v, begin = _may_begin(code, tables, state)
    if fault != OK:
        return fault, v, 0.0, 0.0
    first = taken.start[code]
    in_place = taken.start[code + 1] > first
    end = begin + tables.cost[code]
    clock = end
    running = state.bytes[0] + tables.workspace[code]
    for k in range(writes.start[op], writes.start[op + 1]):
        v = writes.items[k]
        over = taken.items[first + k - writes.start[op]] if in_place else -1
        if over < 0:
            running += state.size[v]
            state.bytes[0] += state.size[v]
        else:
            state.live[over] = False
        if state.live[v]:  # the old copy is freed, after what still copies it
            state.bytes[0] -= state.size[v]
            clock = max(clock, state.ready[v], state.sent[v])
        state.live[v] = True
        state.ready[v] = end
        state.sent[v] = 0.0
    state.waited[COMPUTE] += begin - state.clock[COMPUTE] + clock - end
    state.clock[COMPUTE] = clock
    state.bytes[1] = running
    return OK, 0, begin, end


@kernel
def _may_begin(code, tables, state):
    """When compute has all that an implementation reads, and may overwrite what it overwrites."""
    reads, taken = tables.reads, tables.overwritten_by
    begin = state.clock[COMPUTE]
    for k in range(reads.start[code], reads.start[code + 1]):
        v = reads.items[k]
        if not state.live[v]:
            return DEAD_READ, v, 0.0
        begin = max(begin, state.ready[v])
    for k in range(taken.start[code], taken.start[code + 1]):
        if taken.items[k] >= 0:  # a writer waits for the copy out
            begin = max(begin, state.sent[taken.items[k]])
    return OK, 0, begin


@kernel
def _move(code, state, link):
    """Frees, copies or drops a value; returns as :func:`_compute` does."""
    count = state.live.size
    if count == 0 or ~code >= 4 * count:
        return BAD_CODE, 0, 0.0, 0.0
    kind, v = ~code // count, ~code % count
    fault = _fault(kind, v, state, link)
    if fault != OK:
        return fault, v, 0.0, 0.0
    size, bytes_ = state.size[v], state.bytes
    bytes_[1] = bytes_[0]
    if kind == FREE:
        state.live[v] = False
        bytes_[0] -= size
        begin, end = _engine(state, COMPUTE, max(state.ready[v], state.sent[v]), 0.0)
    elif kind == OFFLOAD:
        state.hosted[v] = True
        bytes_[2] += size
        bytes_[3] = max(bytes_[3], bytes_[2])
        bytes_[4] += size
        begin, end = _engine(state, OUT, state.ready[v], link[2] + size / link[0])
        state.whole[v] = state.sent[v] = end
        state.fetched[v] = 0.0
    elif kind == FETCH:
        state.live[v] = True
        bytes_[0] += size
        bytes_[1] = bytes_[0]
        bytes_[5] += size
        engine, after = OUT if link[3] else IN, max(state.clock[COMPUTE], state.whole[v])
        begin, end = _engine(state, engine, after, link[2] + size / link[1])
        state.ready[v] = state.fetched[v] = end
        state.sent[v] = 0.0
    else:
        state.hosted[v] = False
        bytes_[2] -= size
        begin, end = _engine(state, OUT, max(state.whole[v], state.fetched[v]), 0.0)
    return OK, 0, begin, end


@kernel
def _engine(state, engine, after, time):
    """Puts a task on an engine; returns when it begins and ends."""
    begin = max(state.clock[engine], after)
    state.waited[engine] += begin - state.clock[engine]
    state.clock[engine] = begin + time
    return begin, begin + time


@kernel
def _fault(kind, v, state, link):
    """What is wrong with a statement on a value."""
    if kind == FREE:
        if state.resident[v]:
            return FREE_RESIDENT
        return OK if state.live[v] else FREE_DEAD
    if kind == OFFLOAD:
        return _fault_of_offload(v, state, link)
    if not state.hosted[v]:
        return _NOT_THERE
    if kind == FETCH and link[1] <= 0:
        return _NO_IN
    return _HERE if kind == FETCH and state.live[v] else OK


@kernel
def _fault_of_offload(v, state, link):
    if link[0] <= 0:
        return _NO_OUT
    if state.resident[v]:
        return _MOVED_RESIDENT
    if not state.live[v]:
        return _MOVED_DEAD
    return _TWICE if state.hosted[v] else OK


@kernel
def forward_values(writer, forward, live):
    """How many values of forward ops are live."""
    count = 0
    for v in range(live.size):
        count += live[v] and writer[v] >= 0 and forward[writer[v]]
    return count


def explain(graph: Graph, code: int, fault: int) -> str:
    """What is wrong with a copy, where, and the remedy."""
    kind, value = move_of(code, len(graph.values))
    said = f"{('free', 'offload', 'fetch', 'drop')[kind]} of {graph.values[value].name!r}"
    return f"{said}, {_WHY[fault]}"


_GIVE = "give link=pcie4, say, or link=given with link.out and link.in"
_WHY: dict[int, Any] = {
    _NO_OUT: f"but there is no link to the host (link.out is 0); {_GIVE}",
    _NO_IN: f"but there is no link from the host (link.in is 0); {_GIVE}",
    _MOVED_DEAD: "which is not live; offload it after its compute and before it is freed",
    _MOVED_RESIDENT: "which is resident and stays on the device; drop this statement",
    _TWICE: "of which the host has a copy; drop this statement, or drop that copy first",
    _NOT_THERE: "of which the host has no copy; offload it first, and drop it later",
    _HERE: "which is on the device; free it first, or leave this statement out",
}
