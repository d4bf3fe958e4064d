"""The evicted neighbourhood e*: per storage, the evicted storages that it can reach.

Each storage has two regions, forwards (what depends on it) and backwards (what it depends on):
the interior is evicted, the frontier resident. They are bit sets, kept as simrd keeps them:
absorbed at an eviction, rebuilt around what is rematerialized, and stale in between (sections
4.2 and 4.5).

Whoever a rematerialized storage borders on walks its whole region again: in a deep network nearly
all gradients of parameters, each through all that is dead, which is cubic in the ops. Where no op
makes a view of an older storage, backward regions are never stale, and what such a walk would find
follows from what was there (:func:`_leave`). The bit sets stay, quadratic in the storages.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from rematbench.base.kernels import inner_kernel
from rematbench.engines.eviction.state import Row, RuntimeState
from rematbench.graphs.ir import IntArray

# Planes of ``State.bits``: the interior, then the frontier.
FORWARD, BACKWARD = 0, 2

_ZERO, _ONE = np.uint64(0), np.uint64(1)
# A de Bruijn sequence: its 64 windows of six bits all differ, and so tell the 64 bits apart.
_SPREAD, _TOP = np.uint64(0x03F79D71B4CB0A89), np.uint64(58)
_PLACE = np.zeros(64, dtype=np.int64)
_PLACE[[(0x03F79D71B4CB0A89 << i & (2**64 - 1)) >> 58 for i in range(64)]] = np.arange(64)


@inner_kernel
def lowest(word: Any) -> Any:
    """Index of the lowest bit of a word that is not zero."""
    return _PLACE[((word & (~word + _ONE)) * _SPREAD) >> _TOP]


@inner_kernel
def _edges(storage: Row, plane: int) -> tuple[Any, Any, Any]:
    """Where the edges of a storage begin, how many, and how many counting repeats."""
    if plane == FORWARD:
        return storage.children, storage.nchildren, storage.readers
    return storage.parents, storage.nparents, storage.reads


@inner_kernel
def rebuild(s: RuntimeState, g: int, plane: int) -> None:
    """Walk the region of the resident storage ``g`` again."""
    interior, frontier = s.bits[plane, g], s.bits[plane + 1, g]
    interior[:] = _ZERO
    frontier[:] = _ZERO
    flat, todo = s.flat, s.todo
    todo[0], count, cost, accesses = g, 1, 0, 0
    own = _edges(s.storages[g], plane)[2]
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
    _set_cost(s, g, plane, cost, accesses - own)
    s.now.accesses += accesses


@inner_kernel
def _set_cost(s: RuntimeState, g: int, plane: int, cost: int, walked: int) -> None:
    """Of a region, and how many edges counting repeats its interior has."""
    if plane == FORWARD:
        s.storages[g].forward = cost
    else:
        s.storages[g].backward, s.storages[g].walked = cost, walked


@inner_kernel
def _leave(s: RuntimeState, at: int, fresh: IntArray, count: int) -> None:
    """The storages ``fresh[:count]`` leave the backward region of ``at``, as if it were rebuilt.

    One op has just made them, so that all they depend on is resident: nothing else was reached
    through them alone, and of the frontier only what they depend on can go.
    """
    interior, frontier, own = s.bits[BACKWARD, at], s.bits[BACKWARD + 1, at], s.storages[at]
    for i in range(count):
        g = fresh[i]
        word, bit = g >> 6, _ONE << np.uint64(g & 63)
        if interior[word] & bit != _ZERO:
            interior[word] &= ~bit
            frontier[word] |= bit
            own.backward -= s.storages[g].cost
            own.walked -= s.storages[g].reads
    for i in range(count):
        storage = s.storages[fresh[i]]
        for k in range(storage.parents, storage.parents + storage.nparents):
            other = s.flat[k]
            word, bit = other >> 6, _ONE << np.uint64(other & 63)
            if frontier[word] & bit != _ZERO and not _borders(s, other, at, interior):
                frontier[word] &= ~bit
    s.now.accesses += own.reads + own.walked


@inner_kernel
def _borders(s: RuntimeState, g: int, at: int, interior: Any) -> Any:
    """Does ``at`` or the interior of its backward region depend on ``g`` directly?"""
    first = s.storages[g].children
    for k in range(first, first + s.storages[g].nchildren):
        child = s.flat[k]
        if child == at or interior[child >> 6] & (_ONE << np.uint64(child & 63)) != _ZERO:
            return True
    return False


@inner_kernel
def _absorb(s: RuntimeState, at: int, g: int, plane: int) -> None:
    """Add the region of ``g``, evicted just now, to that of its neighbour ``at``."""
    interior, more = s.bits[plane, at], s.bits[plane, g]
    frontier, further = s.bits[plane + 1, at], s.bits[plane + 1, g]
    word, bit = g >> 6, _ONE << np.uint64(g & 63)
    frontier[word] &= ~bit
    cost = s.storages[at].forward if plane == FORWARD else s.storages[at].backward
    walked = s.storages[at].walked
    for w in range(interior.size):
        frontier[w] |= further[w]
        fresh = more[w] & ~interior[w]
        if w == word:
            fresh |= bit
        interior[w] |= fresh
        while fresh != _ZERO:
            absorbed = s.storages[64 * w + lowest(fresh)]
            cost += absorbed.cost
            walked += absorbed.reads
            s.now.accesses += 1
            fresh &= fresh - _ONE
    _set_cost(s, at, plane, cost, walked)


@inner_kernel
def regions_evict(s: RuntimeState, g: int) -> None:
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
    s.storages[g].forward = s.storages[g].backward = s.storages[g].walked = 0


@inner_kernel
def regions_compute(s: RuntimeState, fresh: IntArray, count: int) -> None:
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
                at = 64 * w + lowest(word)
                if plane == BACKWARD and s.now.views == 0:
                    _leave(s, at, fresh, count)
                else:
                    rebuild(s, at, plane)
                word &= word - _ONE


@inner_kernel
def neighbourhood(s: RuntimeState, g: int) -> tuple[Any, Any]:
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
