"""Which storage to evict: scores as exact as Python's own, and Python's own random numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from rematbench.base.kernels import inner_kernel
from rematbench.engines.eviction.components import component_cost
from rematbench.engines.eviction.regions import neighbourhood
from rematbench.engines.eviction.state import (
    BY_CHANCE,
    BY_LRU,
    COST_CLASSES,
    COST_FULL,
    COST_NONE,
    DEALLOC_BANISH,
    RuntimeState,
    pool_compact,
)
from rematbench.graphs.ir import IntArray

_EXACT = 2.0**53


@inner_kernel
def choose(s: RuntimeState) -> Any:
    """The storage of the pool to evict: the last one of least score, or the first of score 0."""
    now = s.now
    if now.rule == BY_CHANCE:
        now.accesses += 1
        pool_compact(s)
        return s.pool[_below(s.twister, now.pooled)]
    if now.pooled > 2 * now.evictable + 64:
        pool_compact(s)
    if now.rule == BY_LRU:
        return _oldest(s)
    best, chosen = math.inf, -1
    for i in range(now.pooled):
        g = s.pool[i]
        if g < 0:
            continue
        now.accesses += 1
        # Written out, since a call that hands over the state costs more than all of this.
        storage = s.storages[g]
        cost, last = storage.cost, storage.last
        if now.cost == COST_NONE:
            cost = 1
        elif now.cost == COST_CLASSES:
            cost += component_cost(s, g)
        elif now.cost == COST_FULL:
            if now.dealloc == DEALLOC_BANISH:
                cost, last = neighbourhood(s, g)
            else:
                cost += storage.forward + storage.backward
        size = storage.bytes if now.by_size != 0 else 1
        stale = now.clock - last if now.by_staleness != 0 else 1
        if size == 0 or stale == 0:  # an infinite score
            if best == math.inf:
                chosen = g
            continue
        # Rounding may put a score that is no larger up to 2^-51 above.
        if cost / (float(size) * float(stale)) > best + abs(best) * 1e-15:
            continue
        score = ratio(cost, size, stale)
        if score <= best:
            best, chosen = score, g
        if cost == 0:
            break
    return chosen


@inner_kernel
def _oldest(s: RuntimeState) -> Any:
    """What LRU evicts: simrd's score is the time of the last access itself."""
    best, chosen = s.now.clock, -1
    for i in range(s.now.pooled):
        g = s.pool[i]
        if g < 0:
            continue
        s.now.accesses += 1
        if s.storages[g].last <= best:
            best, chosen = s.storages[g].last, g
        if best == 0:
            break
    return chosen


@inner_kernel
def ratio(cost: int, size: int, stale: int) -> Any:
    """``cost / (size * stale)`` rounded once, as Python divides integers.

    Args:
        cost: any whole number below 2^62 in size.
        size, stale: 1 or more, below 2^62.
    """
    product = float(size) * float(stale)
    if product < _EXACT and abs(cost) < _EXACT:
        return cost / product
    if cost < 0:
        return -_divide(-cost, size, stale)
    return _divide(cost, size, stale)


@inner_kernel
def _divide(cost: int, size: int, stale: int) -> float:
    """Binary long division of ``cost`` by the 128-bit product of ``size`` and ``stale``."""
    if cost == 0:
        return 0.0
    one, zero = np.uint64(1), np.uint64(0)
    high, low = _multiply(np.uint64(size), np.uint64(stale))
    rest_high, rest = zero, np.uint64(cost)
    exponent = 0
    while _less(rest_high, rest, high, low):
        rest_high, rest = _double(rest_high, rest)
        exponent -= 1
    while True:
        twice_high, twice = _double(high, low)
        if _less(rest_high, rest, twice_high, twice):
            break
        high, low = twice_high, twice
        exponent += 1
    quotient = 0
    for _ in range(54):
        quotient <<= 1
        if not _less(rest_high, rest, high, low):
            quotient |= 1
            borrow = one if rest < low else zero
            rest_high, rest = rest_high - high - borrow, rest - low
        rest_high, rest = _double(rest_high, rest)
    whole = quotient >> 1
    if quotient & 1 and (rest_high != zero or rest != zero or whole & 1):
        whole += 1
    return math.ldexp(float(whole), exponent - 52)


@inner_kernel
def _multiply(a: Any, b: Any) -> tuple[Any, Any]:
    mask, half = np.uint64(0xFFFFFFFF), np.uint64(32)
    low = (a & mask) * (b & mask)
    left, right = (a >> half) * (b & mask), (a & mask) * (b >> half)
    middle = (low >> half) + (left & mask) + (right & mask)
    high = (a >> half) * (b >> half) + (left >> half) + (right >> half) + (middle >> half)
    return high, (middle << half) | (low & mask)


@inner_kernel
def _less(a_high: Any, a: Any, b_high: Any, b: Any) -> Any:
    return a_high < b_high or (a_high == b_high and a < b)


@inner_kernel
def _double(high: Any, low: Any) -> tuple[Any, Any]:
    one = np.uint64(1)
    return (high << one) | (low >> np.uint64(63)), low << one


@inner_kernel
def _below(twister: IntArray, limit: int) -> Any:
    """``random.randrange(0, limit)``."""
    bits = 0
    while limit >> bits:
        bits += 1
    while True:
        word = _word(twister) >> (32 - bits)
        if word < limit:
            return word


@inner_kernel
def _word(twister: IntArray) -> Any:
    """The next 32 bits of the Mersenne twister MT19937."""
    if twister[624] >= 624:
        for i in range(624):
            y = (twister[i] & 0x80000000) | (twister[(i + 1) % 624] & 0x7FFFFFFF)
            twister[i] = twister[(i + 397) % 624] ^ (y >> 1) ^ (0x9908B0DF if y & 1 else 0)
        twister[624] = 0
    y = twister[twister[624]]
    twister[624] += 1
    y ^= y >> 11
    y ^= (y << 7) & 0x9D2C5680
    y ^= (y << 15) & 0xEFC60000
    return y ^ (y >> 18)
