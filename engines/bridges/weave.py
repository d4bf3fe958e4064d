"""Where the copies of bridged gaps stand among the computes, and the plan that this makes.

Fetches are placed from the end backwards, as early as free bytes allow and no earlier than the link
needs; then frees from the start on, no earlier than compute would wait for the copy out, unless an
op needs the room. The simulator has the last word on both.
"""

from __future__ import annotations

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.bridges.gaps import Sequence
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import IntArray
from rematbench.graphs.link import Link
from rematbench.graphs.plan import DROP, FETCH, OFFLOAD, Plan


def woven(
    sequence: Sequence, bridged: BoolArray, budget: int, link: Link, host: int | None = None
) -> Plan | None:
    """The plan of a sequence with some of its gaps bridged.

    Args:
        bridged: per gap.
        budget: bytes on the device, which the plan may exceed where too little is bridged.
        host: bytes that fit there, or None; drops make room.

    Returns:
        None where the host has no room.
    """
    chosen = np.flatnonzero(bridged)
    room = budget - sequence.levels_with(bridged)
    sizes = sequence.sizes[chosen]
    out = link.latency + sizes / link.out
    into = link.latency + sizes / link.into
    gaps = (sequence.begin[chosen], sequence.end[chosen], sequence.made[chosen], sizes)
    first = _first_of_each(sequence.value[chosen])
    fetches = _fetch_places(*gaps[:2], sizes, into, room, sequence.costs)
    frees = _free_places(*gaps, first, out, fetches, room, sequence.costs)
    return plan_at(sequence, chosen, frees, fetches, host)


def _first_of_each(values: IntArray) -> BoolArray:
    """Is a gap the first one of its value? Those after it find a copy on the host."""
    first = np.zeros(len(values), dtype=np.bool_)
    first[np.unique(values, return_index=True)[1]] = True
    return first


@kernel
def _fetch_places(begin, end, size, into, room, costs):
    """Per gap, the position before which its fetch stands; ``room`` is lessened by what they hold.

    In reversed time a value leaves when its reader has been undone, by the link in.
    """
    count, n = begin.size, costs.size
    place = end.copy()
    order = np.argsort(-end, kind="mergesort")
    done = np.zeros(count)
    clock = link = 0.0
    held, head, tail = 0, 0, 0  # order[head:tail] are on their way
    for k in range(n - 1, -1, -1):
        while head < tail and (done[order[head]] <= clock or held > room[k]):
            g = order[head]
            place[g] = max(k + 1, begin[g] + 1)
            clock = max(clock, done[g])
            held -= size[g]
            head += 1
        clock += costs[k]
        while tail < count and end[order[tail]] == k:
            g = order[tail]
            link = max(link, clock) + into[g]
            done[g] = link
            held += size[g]
            tail += 1
    while head < tail:
        place[order[head]] = begin[order[head]] + 1
        head += 1
    for g in range(count):
        for k in range(place[g], end[g]):
            room[k] -= size[g]
    return place


@kernel
def _free_places(begin, end, made, size, first, out, fetches, room, costs):
    """Per gap, the position before which its free stands; -1 where the fetch would come first."""
    count, n = begin.size, costs.size
    place = np.full(count, -1, dtype=np.int64)
    sent = np.zeros(count)
    waiting = [0 for _ in range(0)]
    by_made = np.argsort(made, kind="mergesort")
    clock = link = 0.0
    held, offloaded, entered = 0, 0, 0
    for k in range(n):
        held -= _let_go(k, clock, waiting, place, sent, fetches, size)
        while held > room[k] and len(waiting) > 0:
            g = waiting.pop(_earliest(waiting, sent))
            clock = max(clock, sent[g])
            place[g] = k
            held -= size[g]
        clock += costs[k]
        while offloaded < count and made[by_made[offloaded]] == k:
            g = by_made[offloaded]
            if first[g]:
                link = max(link, clock) + out[g]
                sent[g] = link
            offloaded += 1
        while entered < count and begin[entered] == k:
            waiting.append(entered)
            held += size[entered]
            entered += 1
    return place


@kernel
def _let_go(k, clock, waiting, place, sent, fetches, size):
    """Frees before position k what has been sent, or is fetched by then; returns its bytes."""
    gone, kept = 0, 0
    for g in waiting:
        if fetches[g] > k and sent[g] > clock:
            waiting[kept] = g
            kept += 1
        else:
            place[g] = -1 if fetches[g] <= k else k
            gone += size[g]
    del waiting[kept:]
    return gone


@kernel
def _earliest(waiting, sent):
    at = 0
    for j in range(len(waiting)):
        if sent[waiting[j]] < sent[waiting[at]]:
            at = j
    return at


def plan_at(
    sequence: Sequence, chosen: IntArray, frees: IntArray, fetches: IntArray, host: int | None
) -> Plan | None:
    """The plan with copies at given places.

    Args:
        chosen: gaps that are bridged, in their order.
        frees, fetches: per one of them, the position before which it stands; -1: it is kept.
        host: as of :func:`woven`.
    """
    graph, count = sequence.graph, len(sequence.graph.values)
    real = frees >= 0
    chosen, frees, fetches = chosen[real], frees[real], fetches[real]
    value, end, begin = sequence.value[chosen], sequence.end[chosen], sequence.begin[chosen]
    ends, first = sequence.ends, _first_of_each(value)
    # Rows (position before which, rank there, order, code); a compute is the last at its own.
    rows = [
        _rows(ends[:, 0] + 1, 0, ends[:, 1], ~ends[:, 1]),
        _rows(sequence.made[chosen][first] + 1, 1, value[first], ~(value + OFFLOAD * count)[first]),
        _rows(frees, 2, begin, ~value),
        _rows(fetches, 3, end, ~(value + FETCH * count)),
        _rows(np.arange(len(sequence.computes)), 4, sequence.computes, sequence.computes),
    ]
    table = np.concatenate(rows)
    codes = table[np.lexsort((table[:, 2], table[:, 1], table[:, 0])), 3]
    if host is not None:
        dropped = _with_drops(codes, graph.tables.value_bytes, host)
        if dropped is None:
            return None
        codes = dropped
    return Plan.from_codes(graph, codes)


def _rows(position: IntArray, rank: int, order: IntArray, codes: IntArray) -> IntArray:
    return np.stack([position, np.full(len(position), rank), order, codes], axis=1)


def _with_drops(codes: IntArray, sizes: IntArray, host: int) -> IntArray | None:
    """Drops of what is fetched no more, right before the offload that needs the room."""
    count = len(sizes)
    kinds, values = np.divmod(~codes, count)
    last = {int(v): p for p, (k, v) in enumerate(zip(kinds, values, strict=True)) if k == FETCH}
    held, there, found = 0, list[int](), list[int]()
    for position, (code, kind, v) in enumerate(zip(codes, kinds, values, strict=True)):
        if kind == OFFLOAD:
            while held + sizes[v] > host:
                gone = next((w for w in there if last.get(w, -1) < position), None)
                if gone is None:
                    return None
                there.remove(gone)
                held -= sizes[gone]
                found.append(~(gone + DROP * count))
            held += sizes[v]
            there.append(int(v))
        found.append(int(code))
    return np.array(found, dtype=np.int64)
