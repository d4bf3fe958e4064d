"""The evicted neighbourhood e*: per storage, the evicted storages that it can reach.

Each storage has two regions, forwards (what depends on it) and backwards (what it depends on):
the interior is evicted, the frontier resident. They are bit sets, kept as simrd keeps them:
absorbed at an eviction, rebuilt around what is rematerialized, and stale in between (sections
4.2 and 4.5).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rematbench.graphs.ir import IntArray
from rematbench.strategies.dtr.state import Row, State, kernel

# Planes of ``State.bits``: the interior, then the frontier.
FORWARD, BACKWARD = 0, 2

_ZERO, _ONE = np.uint64(0), np.uint64(1)
# A de Bruijn sequence: its 64 windows of six bits all differ, and so tell the 64 bits apart.
_SPREAD, _TOP = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
_PLACE = np.zeros(64, dtype=np.int64)
_PLACE[[(0x03F79D71B4CB0A89 << i & (2**64 - 1)) >> 58 for i in range(64)]] = np.arange(64)


@kernel
def lowest(word: Any) -> Any:
    """Index of the lowest bit of a word that is not zero."""
    return _PLACE[((word & (~word + _ONE)) * _SPREAD) >> _TOP]


@kernel
def _edges(storage: Row, plane: int) -> tuple[Any, Any, Any]:
    """Where the edges of a storage begin, how many, and how many counting repeats."""
    if plane == FORWARD:
        return storage.children, storage.nchildren, storage.readers
    return storage.parents, storage.nparents, storage.reads


@kernel
def rebuild(s: State, g: int, plane: int) -> None:
    """Walk the region of the resident storage ``g`` again."""
    interior, frontier = s.bits[plane, g], s.bits[plane + 1, g]
    interior[:] = _ZERO
    frontier[:] = _ZERO
    flat, todo = s.flat, s.todo
    todo[0], count, cost, accesses = g, 1, 0, 0
    while count:
        count -= 1
        start, length, degree = _edges(s.storages[todo[count]], plane)
        accesses += degree
        for k in range(start, start + length):
            other = flat[k]
            word, bit = other >> 6, _ONE << np.uint64(other & 63)
            if s.resident[other] != 0:
                if other != g:
                    frontier[word] |= bit
            elif interior[word] & bit == _ZERO:
                interior[word] |= bit
                cost += s.storages[other].cost
                todo[count] = other
                count += 1
    _set_cost(s, g, plane, cost)
    s.now.accesses += accesses


@kernel
def _set_cost(s: State, g: int, plane: int, cost: int) -> None:
    if plane == FORWARD:
        s.storages[g].forward = cost
    else:
        s.storages[g].backward = cost


@kernel
def _absorb(s: State, at: int, g: int, plane: int) -> None:
    """Add the region of ``g``, evicted just now, to that of its neighbour ``at``."""
    interior, more = s.bits[plane, at], s.bits[plane, g]
    frontier, further = s.bits[plane + 1, at], s.bits[plane + 1, g]
    word, bit = g >> 6, _ONE << np.uint64(g & 63)
    frontier[word] &= ~bit
    cost = s.storages[at].forward if plane == FORWARD else s.storages[at].backward
    for w in range(interior.size):
        frontier[w] |= further[w]
        fresh = more[w] & ~interior[w]
        if w == word:
            fresh |= bit
        interior[w] |= fresh
        while fresh != _ZERO:
            cost += s.storages[64 * w + lowest(fresh)].cost
            s.now.accesses += 1
            fresh &= fresh - _ONE
    _set_cost(s, at, plane, cost)


@kernel
def regions_evict(s: State, g: int) -> None:
    """Storage ``g`` was evicted: its resident neighbours' regions absorb its own."""
    for plane in (FORWARD, BACKWARD):
        around = s.bits[BACKWARD - plane + 1, g]
        for w in range(around.size):
            word = around[w]
            while word != _ZERO:
                at = 64 * w + lowest(word)
                if s.resident[at] != 0:
                    _absorb(s, at, g, plane)
                word &= word - _ONE
    s.bits[:, g] = _ZERO
    s.storages[g].forward = s.storages[g].backward = 0


@kernel
def regions_compute(s: State, fresh: IntArray, count: int) -> None:
    """The storages ``fresh[:count]`` are resident again: rebuild their and their neighbours'."""
    union = s.bits[:, -1]
    union[:] = _ZERO
    for i in range(count):
        g = fresh[i]
        rebuild(s, g, FORWARD)
        rebuild(s, g, BACKWARD)
        for plane in (FORWARD, BACKWARD):
            around = s.bits[BACKWARD - plane + 1, g]
            for w in range(around.size):
                union[plane, w] |= around[w]
    for plane in (FORWARD, BACKWARD):
        for w in range(union.shape[1]):
            word = union[plane, w]
            while word != _ZERO:
                rebuild(s, 64 * w + lowest(word), plane)
                word &= word - _ONE


@kernel
def neighbourhood(s: State, g: int) -> tuple[Any, Any]:
    """The cost of ``g`` and of e*(g), and the latest access to any of them, walked afresh.

    This is banishing's e*: a true union, and a staleness over all of it.
    """
    cost, last = s.storages[g].cost, s.storages[g].last
    first = s.now.epoch + 1
    s.now.epoch += 2
    for plane, epoch in ((FORWARD, first), (BACKWARD, first + 1)):
        s.todo[0], count = g, 1
        while count:
            count -= 1
            start, length, degree = _edges(s.storages[s.todo[count]], plane)
            s.now.accesses += degree
            for k in range(start, start + length):
                other = s.storages[s.flat[k]]
                if s.resident[s.flat[k]] != 0 or other.banished != 0 or other.mark == epoch:
                    continue
                if other.mark != first:  # reached in one direction only, so far
                    cost += other.cost
                    last = max(last, other.last)
                other.mark = epoch
                s.todo[count] = s.flat[k]
                count += 1
    return cost, last
