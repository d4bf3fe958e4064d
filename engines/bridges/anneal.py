"""Simulated annealing on a plan's statements themselves, for graphs of which a step takes no time.

A try changes the plan a little: a statement moves; a gap is opened, which a fetch or another
compute ends; a gap is closed; a fetch becomes a compute, or a compute a fetch. The tries are
replayed as the simulator replays plans, and what breaks a rule or a limit is not taken.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.graphs.copies import OK, StatementRows, blank_state, link_numbers, run_codes
from rematbench.graphs.ir import IntArray
from rematbench.graphs.plan import DROP, FETCH, FREE, OFFLOAD
from rematbench.graphs.planning import Problem

MORE = 60
"""Statements by which a plan may grow while it is annealed."""


class PlanLimits(NamedTuple):
    """What a plan has to keep to: bytes on the device, residents in them, and on the host."""

    budget: int
    resident: int
    host: int


def annealed(problem: Problem, codes: IntArray, tries: int, warmth: float, seed: int) -> IntArray:
    """The fastest plan that is seen on the way from a plan within the problem's limits.

    Args:
        problem: with a budget.
        tries: changes that are tried.
        warmth: by which share of the makespan a plan may be slower and still be taken, at the
            beginning; 0: never.
        seed: of the changes.
    """
    graph = problem.graph
    assert problem.budget is not None
    host = np.iinfo(np.int64).max if problem.host is None else problem.host
    state = blank_state(graph, graph.tables.resident.copy())
    limits = PlanLimits(problem.budget, graph.resident_bytes, host)
    numbers = link_numbers(problem.link)
    codes = np.ascontiguousarray(codes, dtype=np.int64)
    found: IntArray = _anneal(codes, graph.tables, state, numbers, limits, tries, warmth, seed)
    return found


@kernel
def _anneal(codes, tables, state, link, limits, tries, warmth, seed):
    np.random.seed(seed)
    space = codes.size + MORE
    now, new, best = np.empty((3, space), dtype=np.int64)
    during, after, host = np.empty((3, space), dtype=np.int64)
    begins, ends = np.empty((2, space))
    timeline = StatementRows(during, after, host, begins, ends)
    now[: codes.size] = best[: codes.size] = codes
    size = least_size = codes.size
    cost = least = start = _makespan(codes, tables, state, link, limits, timeline)
    for n in range(tries):
        grown = _changed(now, size, new, tables)
        if grown < 0:
            continue
        found = _makespan(new[:grown], tables, state, link, limits, timeline)
        heat = warmth * start * (1 - n / tries)
        if found > cost and (heat <= 0 or np.random.random() >= np.exp((cost - found) / heat)):
            continue
        now[:grown] = new[:grown]
        size, cost = grown, found
        if cost < least:
            least, least_size = cost, size
            best[:size] = now[:size]
    return best[:least_size].copy()


@kernel
def _makespan(codes, tables, state, link, limits, timeline):
    """Infinite where a rule is broken, a limit, or the program order of first computes."""
    if not _in_order(codes, tables):
        return np.inf
    state.live[:] = tables.resident
    state.hosted[:] = False
    for times in (state.ready, state.sent, state.whole, state.fetched, state.clock, state.waited):
        times[:] = 0.0
    state.bytes[:] = 0
    state.bytes[0] = limits.resident
    fault = run_codes(codes, tables, state, link, timeline)[0]
    if fault != OK or state.bytes[3] > limits.host:
        return np.inf
    if timeline.during[: codes.size].max() > limits.budget:
        return np.inf
    makespan = state.clock[0]
    for v in tables.outputs:
        if not state.live[v]:
            return np.inf
        makespan = max(makespan, state.ready[v])
    return makespan


@kernel
def _in_order(codes, tables):
    """Do the ops run for the first time in program order?"""
    seen = np.zeros(tables.op_first.size, dtype=np.bool_)
    highest = -1
    for code in codes:
        if code >= 0:
            op = tables.op_of[code]
            if not seen[op] and op < highest:
                return False
            seen[op] = True
            highest = max(highest, op)
    return True


@kernel
def _changed(now, size, new, tables):
    """Writes a changed plan; returns its size, or -1 where the change cannot be made."""
    out = np.full(3, -1, dtype=np.int64)
    places = np.full(3, -1, dtype=np.int64)
    codes = np.zeros(3, dtype=np.int64)
    at = np.random.randint(size)
    kind = np.random.random()
    if kind < 0.5:
        _shift(now, size, at, out, places, codes)
    elif kind < 0.75:
        _open(now, size, at, tables, places, codes)
    elif kind < 0.9:
        _close(now, size, at, tables, out)
    else:
        _trade(now, size, at, tables, out, places, codes)
    if out[0] < 0 and places[0] < 0:
        return -1
    return _edited(now, size, new, out, places, codes)


@kernel
def _edited(now, size, new, out, places, codes):
    """The plan without some statements, and with some before others."""
    if size + (places >= 0).sum() > new.size:
        return -1
    n = 0
    for k in range(size + 1):
        for e in range(places.size):
            if places[e] == k:
                new[n] = codes[e]
                n += 1
        if k < size and k != out[0] and k != out[1] and k != out[2]:
            new[n] = now[k]
            n += 1
    return n


@kernel
def _shift(now, size, at, out, places, codes):
    """A statement moves to another place, rather a near one."""
    far = int(min(size, 1 + np.random.exponential(4.0)))
    to = at - far if np.random.random() < 0.5 else at + 1 + far
    if 0 <= to <= size:
        out[0], places[0], codes[0] = at, to, now[at]


@kernel
def _open(now, size, at, tables, places, codes):
    """A value that waits on the device from one op to another leaves it between them."""
    count = tables.value_bytes.size
    if now[at] < 0:
        return
    v = _touched(now[at], tables)
    if v < 0 or tables.resident[v] or tables.writer[v] < 0:
        return
    end = _next_read(now, size, at, v, tables)
    if end < at + 2:
        return
    first = np.random.randint(at + 1, end + 1)
    places[0], codes[0] = first, ~(v + FREE * count)
    places[1], codes[1] = np.random.randint(first, end + 1), _source(v, tables)
    if codes[1] < 0 and not _has(now, size, v + OFFLOAD * count):
        places[2], codes[2] = _made(now, size, v, tables) + 1, ~(v + OFFLOAD * count)


@kernel
def _touched(code, tables):
    """One of the values that an implementation reads or writes; -1: there is none."""
    op = tables.op_of[code]
    reads, writes = tables.reads, tables.writes
    some = reads.start[code + 1] - reads.start[code]
    all_ = some + writes.start[op + 1] - writes.start[op]
    if all_ == 0:
        return -1
    k = np.random.randint(all_)
    if k < some:
        return reads.items[reads.start[code] + k]
    return writes.items[writes.start[op] + k - some]


@kernel
def _source(v, tables):
    """What brings a value back: a fetch, or its op again."""
    if np.random.random() < 0.6:
        return ~(v + FETCH * tables.value_bytes.size)
    return tables.op_first[tables.writer[v]]


@kernel
def _next_read(now, size, at, v, tables):
    """The next compute that reads a value; -1 where the value goes before, or nobody does."""
    for k in range(at + 1, size):
        if now[k] == ~v:
            return -1
        if now[k] >= 0:
            for j in range(tables.reads.start[now[k]], tables.reads.start[now[k] + 1]):
                if tables.reads.items[j] == v:
                    return k
    return -1


@kernel
def _has(now, size, move):
    """Does a plan make a move?"""
    return (now[:size] == ~move).any()


@kernel
def _made(now, size, v, tables):
    """Where a value is computed for the first time."""
    for k in range(size):
        if now[k] >= 0 and tables.op_of[now[k]] == tables.writer[v]:
            return k
    return size - 1


@kernel
def _close(now, size, at, tables, out):
    """A value stays where it left; or a copy on the host that nobody fetches is not made."""
    count = tables.value_bytes.size
    if now[at] >= 0:
        return
    kind, v = ~now[at] // count, ~now[at] % count
    if kind == FREE:
        _keep(now, size, at, v, tables, out)
    elif kind == DROP:
        out[0] = at
    elif kind == OFFLOAD and not _has(now, size, v + FETCH * count):
        out[0] = at
        for k in range(at + 1, size):
            if now[k] == ~(v + DROP * count):
                out[1] = k


@kernel
def _keep(now, size, at, v, tables, out):
    """Without a free, and what brings the value back after it."""
    fetch = ~(v + FETCH * tables.value_bytes.size)
    for k in range(at + 1, size):
        again = now[k] >= 0 and tables.op_of[now[k]] == tables.writer[v]
        if again or now[k] == fetch:
            out[0], out[1] = at, k
            return


@kernel
def _trade(now, size, at, tables, out, places, codes):
    """A fetch becomes a compute, a compute a fetch; or the host's copy is dropped."""
    count = tables.value_bytes.size
    if now[at] >= 0:
        op = tables.op_of[now[at]]
        if tables.writes.start[op] == tables.writes.start[op + 1]:
            return
        v = tables.writes.items[tables.writes.start[op]]
        if _made(now, size, v, tables) < at:
            out[0], places[0], codes[0] = at, at, ~(v + FETCH * count)
            if not _has(now, size, v + OFFLOAD * count):
                places[1], codes[1] = _made(now, size, v, tables) + 1, ~(v + OFFLOAD * count)
        return
    kind, v = ~now[at] // count, ~now[at] % count
    if kind == FETCH and np.random.random() < 0.5:
        out[0], places[0], codes[0] = at, at, tables.op_first[tables.writer[v]]
    elif kind == FETCH and not _has(now, size, v + DROP * count):
        places[0], codes[0] = np.random.randint(at + 1, size + 1), ~(v + DROP * count)
