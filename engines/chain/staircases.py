"""Staircases: the least time for every memory, as two lists of steps, for the kernels."""

from __future__ import annotations

import numpy as np

from rematbench.base.kernels import kernel

# Times that differ by less are the same: sums of the same numbers in another order.
SAME = 1e-12


@kernel
def grown(array, need):
    if array.size >= need:
        return array
    larger = np.empty(max(need, 2 * array.size), dtype=array.dtype)
    for i in range(array.size):  # numba takes seconds to compile that a slice is assigned to
        larger[i] = array[i]
    return larger


@kernel
def push(memory, time, count, m, value):
    """Append a step, unless it saves no time; one at the same memory gives way."""
    if count and value >= time[count - 1] - SAME * abs(time[count - 1]):
        return count
    if count and memory[count - 1] == m:
        count -= 1
    memory[count] = m
    time[count] = value
    return count + 1


@kernel
def sum_of(stairs, both, least, added, free, out_memory, out_time):
    """The sum of two segments' staircases, each shifted to the right, from ``least`` on."""
    (one, i_shift), (other, j_shift) = both
    memory, time, count = stairs.memory, stairs.time, 0
    i, i_end = stairs.start[one], stairs.stop[one]
    j, j_end = stairs.start[other], stairs.stop[other]
    m = max(max(memory[i] + i_shift, memory[j] + j_shift), least)
    while m <= free:
        while i + 1 < i_end and memory[i + 1] + i_shift <= m:
            i += 1
        while j + 1 < j_end and memory[j + 1] + j_shift <= m:
            j += 1
        count = push(out_memory, out_time, count, m, time[i] + time[j] + added)
        i_next, j_next = i + 1 < i_end, j + 1 < j_end
        if i_next and (not j_next or memory[i + 1] + i_shift <= memory[j + 1] + j_shift):
            m = memory[i + 1] + i_shift
        elif j_next:
            m = memory[j + 1] + j_shift
        else:
            break
    return count


@kernel
def lower_of(a_memory, a_time, a_count, b_memory, b_time, b_count, out_memory, out_time):
    """The lower envelope of two staircases."""
    i = j = count = 0
    while i < a_count or j < b_count:
        if j == b_count or (i < a_count and a_memory[i] <= b_memory[j]):
            count = push(out_memory, out_time, count, a_memory[i], a_time[i])
            i += 1
        else:
            count = push(out_memory, out_time, count, b_memory[j], b_time[j])
            j += 1
    return count


@kernel
def at(memory, time, start, stop, m):
    """The least time with m bytes of the staircase from ``start`` to ``stop``."""
    low, high = start, stop
    while low < high:
        middle = (low + high) // 2
        if memory[middle] <= m:
            low = middle + 1
        else:
            high = middle
    return time[low - 1] if low > start else np.inf
