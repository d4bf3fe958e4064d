"""Memory along a schedule: a tree over the stages, and the computes inside each stage.

Moments are keys: ``stage * ops + op``.
"""

from __future__ import annotations

import numpy as np

from rematbench.base.kernels import kernel

LEAST = -(1 << 62)
"""Less memory than there ever is."""
FREE, REPEATS, END, LIMIT, EXCESS = range(5)
"""A schedule's counts: the height of the stack of free compute numbers; computes beyond the first
ones; one more than the highest compute number ever used; a limit in bytes, below 0 for none; the
sum over the stages of what is above it, kept while there is one. They share an array, since a
kernel that is not inlined takes seven words on the stack for each array of its tuples."""


@kernel
def refresh(state, stage):
    """The computes of a stage have changed: mend the tree above it."""
    most, added = state.most, state.added
    x = (most.size >> 1) + stage
    largest = LEAST
    at = state.head[stage]
    while at >= 0:
        largest = max(largest, state.offset[at])
        at = state.after[at]
    if state.counts[LIMIT] >= 0:
        _weigh(state, stage, largest + base(state, stage))
    if most[x] == largest + added[x]:
        return
    most[x] = largest + added[x]
    _mend(most, added, x)


@kernel
def _weigh(state, stage, level):
    """The memory of a stage is ``level`` now: mend the excess."""
    limit = state.counts[LIMIT]
    state.counts[EXCESS] += max(0, level - limit) - max(0, state.level[stage] - limit)
    state.level[stage] = level


@kernel
def _weigh_all(state, first, last, amount):
    """The memory of some stages changes by ``amount``."""
    limit, total = state.counts[LIMIT], 0
    for stage in range(first, last + 1):
        before = state.level[stage]
        state.level[stage] = before + amount
        total += max(0, before + amount - limit) - max(0, before - limit)
    state.counts[EXCESS] += total


@kernel
def watch(state, limit):
    """From now on keep count of what is above a limit; below 0: no longer."""
    levels, total = profile(state), 0
    for stage in range(levels.size):
        state.level[stage] = levels[stage]
        total += max(0, levels[stage] - limit)
    state.counts[LIMIT], state.counts[EXCESS] = limit, total


@kernel
def _mend(most, added, x):
    x >>= 1
    while x:
        largest = max(most[2 * x], most[2 * x + 1]) + added[x]
        if largest == most[x]:
            break
        most[x] = largest
        x >>= 1


@kernel
def base(state, stage):
    """What is to be added to the offsets of a stage's computes."""
    x = (state.most.size >> 1) + stage
    total = 0
    while x:
        total += state.added[x]
        x >>= 1
    return total


@kernel
def _add_inside(state, stage, low, high, amount):
    """Add to the computes of ops low to high of one stage."""
    at = state.head[stage]
    while at >= 0:
        if low <= state.op[at] <= high:
            state.offset[at] += amount
        at = state.after[at]
    refresh(state, stage)


@kernel
def add(state, low, high, amount):
    """Add to all moments from key ``low`` to key ``high``, both included."""
    if low > high or amount == 0:
        return
    n = state.head.size
    first, last = low // n, high // n
    if first == last:
        _add_inside(state, first, low - first * n, high - last * n, amount)
        return
    if low > first * n:
        _add_inside(state, first, low - first * n, n, amount)
        first += 1
    if high < last * n + last:
        _add_inside(state, last, 0, high - last * n, amount)
        last -= 1
    if first > last:
        return
    if state.counts[LIMIT] >= 0:
        _weigh_all(state, first, last, amount)
    most, added = state.most, state.added
    half = most.size >> 1
    left, right = first + half, last + half
    begin, end = left, right
    while left <= right:
        if left & 1:
            added[left] += amount
            most[left] += amount
            left += 1
        if not right & 1:
            added[right] += amount
            most[right] += amount
            right -= 1
        left >>= 1
        right >>= 1
    _mend_all(most, added, begin)
    _mend_all(most, added, end)


@kernel
def _mend_all(most, added, x):
    x >>= 1
    while x:
        most[x] = max(most[2 * x], most[2 * x + 1]) + added[x]
        x >>= 1


@kernel
def _most_inside(state, stage, low, high):
    largest = LEAST
    at = state.head[stage]
    while at >= 0:
        if low <= state.op[at] <= high:
            largest = max(largest, state.offset[at])
        at = state.after[at]
    return largest if largest == LEAST else largest + base(state, stage)


@kernel
def most_between(state, low, high):
    """The largest memory from key ``low`` to key ``high``, both included."""
    if low > high:
        return LEAST
    n = state.head.size
    first, last = low // n, high // n
    if first == last:
        return _most_inside(state, first, low - first * n, high - last * n)
    largest = LEAST
    if low > first * n:
        largest = _most_inside(state, first, low - first * n, n)
        first += 1
    if high < last * n + last:
        largest = max(largest, _most_inside(state, last, 0, high - last * n))
        last -= 1
    return largest if first > last else max(largest, _most_stages(state, first, last))


@kernel
def _most_stages(state, first, last):
    most, added = state.most, state.added
    half = most.size >> 1
    left, right = first + half, last + half
    on_left, on_right = most[left], most[right]
    while left >> 1 != right >> 1:
        if not left & 1:
            on_left = max(on_left, most[left + 1])
        if right & 1:
            on_right = max(on_right, most[right - 1])
        left >>= 1
        right >>= 1
        on_left += added[left]
        on_right += added[right]
    largest = max(on_left, on_right)
    left >>= 1
    while left:
        largest += added[left]
        left >>= 1
    return largest


@kernel
def peak(state):
    """The largest memory."""
    return state.most[1]


@kernel
def peak_compute(state):
    """A compute of the largest memory: the first one."""
    most = state.most
    half = most.size >> 1
    x = 1
    while x < half:
        x = 2 * x if most[2 * x] >= most[2 * x + 1] else 2 * x + 1
    at = state.head[x - half]
    found = at
    while at >= 0:
        if state.offset[at] > state.offset[found]:
            found = at
        at = state.after[at]
    return found


@kernel
def profile(state):
    """The largest memory of each stage."""
    half = state.most.size >> 1
    total = state.added.copy()
    for x in range(2, half + state.head.size):
        total[x] += total[x >> 1]
    found = np.empty(state.head.size, dtype=np.int64)
    for s in range(found.size):
        x = half + s
        found[s] = state.most[x] + total[x >> 1]
    return found
