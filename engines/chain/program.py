"""The kernels of the chain program: fill its table, and read a choice from it.

Segments are numbered s * n + t, and n * n more where what stage t saved is at hand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.chain.chain import FloatArray
from rematbench.engines.chain.staircases import SAME, at, grown, lower_of, push, sum_of
from rematbench.graphs.ir import IntArray

KEEP, CUT, RETAIN, BASE = 0, 1, 2, 3
"""What to do with a segment first: keep its first stage in an option; keep its input, go on to
another stage and keep that one's input, or all of the stage before it; nothing but go back over
it."""


class StageOptions(NamedTuple):
    """Options to keep stages, those of a stage together.

    Attributes:
        first: per stage, its first option; one more entry at the end.
        kept: bytes that stay of the stage until it is gone back over.
        forward_peak: above the gradient that is live, while the stage is kept.
        back_peak: while it is gone back over.
        time: of both passes.
    """

    first: IntArray
    kept: IntArray
    forward_peak: IntArray
    back_peak: IntArray
    time: FloatArray


class Recurrence(NamedTuple):
    """Which recurrence.

    Attributes:
        published: the authors', which tests the forward of a kept stage with the gradient after
            it instead of the one that is live?
        retain: may what a stage saved outlive its input?
        alone: may a single stage be kept in an option, too, right before going back over it?
    """

    published: bool
    retain: bool
    alone: bool


class Stairs(NamedTuple):
    """The staircases that there are.

    Attributes:
        start, stop: per segment, where its steps lie.
        memory, time: of each step.
    """

    start: IntArray
    stop: IntArray
    memory: IntArray
    time: FloatArray


class _Work(NamedTuple):
    """Room for the segment at hand: the best staircase, one more, and the lower one of both."""

    best_memory: IntArray
    best_time: FloatArray
    more_memory: IntArray
    more_time: FloatArray
    next_memory: IntArray
    next_time: FloatArray


@kernel
def fill(stages, options, rules, free, most, least):
    """All staircases, shorter segments first.

    Args:
        free: the most memory.
        most: steps of all together.
        least: only the first step of each?

    Returns:
        Are there no more steps than that; the staircases.
    """
    n = stages.output.size
    stairs = _no_stairs(n)
    work, used = _new_work(), 0
    for length in range(n):
        for s in range(n - length):
            t = s + length
            for saved in range(1 + (rules.retain and stages.base_time[t] > 0)):
                count = 0
                if length == 0:
                    count = _going_back(stages, work, s, saved, free)
                if length > 0 or rules.alone:
                    task = (stages, options, rules, stairs)
                    work, count = _by_options(task, work, count, s, t, saved, free)
                    work, count = _by_cuts(task, work, count, s, t, saved, free)
                if least:
                    count = min(count, 1)
                if used + count > most:
                    return False, stairs
                stairs = _stored(stairs, (saved * n + s) * n + t, work, used, count)
                used += count
    return True, stairs


@kernel
def _no_stairs(n):
    start, stop = np.zeros(2 * n * n, dtype=np.int64), np.zeros(2 * n * n, dtype=np.int64)
    return Stairs(start, stop, np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64))


@kernel
def _new_work():
    return _Work(
        np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64),
        np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64),
        np.empty(1024, dtype=np.int64), np.empty(1024, dtype=np.float64),
    )  # fmt: skip


@kernel
def _stored(stairs, segment, work, used, count):
    """The staircases with one more."""
    memory, time = grown(stairs.memory, used + count), grown(stairs.time, used + count)
    for i in range(count):
        memory[used + i], time[used + i] = work.best_memory[i], work.best_time[i]
    stairs.start[segment], stairs.stop[segment] = used, used + count
    return Stairs(stairs.start, stairs.stop, memory, time)


@kernel
def _enlarged(work, size):
    """The same with room for one more staircase of so many steps."""
    if work.more_memory.size >= size:
        return work
    more = grown(work.more_memory, size), grown(work.more_time, size)
    return _Work(work.best_memory, work.best_time, *more, work.next_memory, work.next_time)


@kernel
def _lowered(work, count, found):
    """The best staircase lowered by one more, and how many steps it has."""
    memory = grown(work.next_memory, count + found + 1)
    time = grown(work.next_time, count + found + 1)
    best, more = (work.best_memory, work.best_time), (work.more_memory, work.more_time)
    count = lower_of(*best, count, *more, found, memory, time)
    return _Work(memory, time, *more, *best), count


@kernel
def _base_need(stages, s):
    """Room to run a stage for what backward reads alone, and go back over it."""
    return max(stages.gradient[s] + stages.base_peak[s], stages.back_peak[s])


@kernel
def _going_back(stages, work, s, saved, free):
    """The one step of a single stage: its forward pass, unless it is saved, and its backward."""
    need, spent = _base_need(stages, s), stages.base_time[s] + stages.back_time[s]
    if saved:
        need, spent = stages.back_peak[s] - stages.saved[s], stages.back_time[s]
    if need > free:
        return 0
    return push(work.best_memory, work.best_time, 0, max(0, need), spent)


@kernel
def _published_need(stages, s, t):
    """What the authors' recurrence asks of every choice: room to go from s to t."""
    most = stages.plain_peak[s]
    for j in range(s + 1, t):
        most = max(most, stages.moved_peak[j])
    return stages.gradient[t] + most


@kernel
def _option_need(stages, options, rules, s, t, option):
    """Room to keep s in an option, and to go back over it at the end."""
    if rules.published:
        return max(0, max(_base_need(stages, s), _published_need(stages, s, t)))
    return max(0, max(stages.gradient[t] + options.forward_peak[option], options.back_peak[option]))


@kernel
def _by_options(task, work, count, s, t, saved, free):
    """Keep the first stage in one of its options."""
    stages, options, rules, stairs = task
    n = stages.output.size
    after = (saved * n + s + 1) * n + t
    for option in range(options.first[s], options.first[s + 1]):
        need, found = _option_need(stages, options, rules, s, t, option), 0
        if s == t:
            if need <= free:
                found = push(work.more_memory, work.more_time, 0, need, options.time[option])
        else:
            work = _enlarged(work, stairs.stop[after] - stairs.start[after] + 1)
            for i in range(stairs.start[after], stairs.stop[after]):
                m = max(stairs.memory[i] + options.kept[option], need)
                if m <= free:
                    spent = stairs.time[i] + options.time[option]
                    found = push(work.more_memory, work.more_time, found, m, spent)
        work, count = _lowered(work, count, found)
    return work, count


@kernel
def _first_need(stages, rules, s, t):
    """Room to leave the input of s, and go over s."""
    need = max(0, stages.gradient[t] + stages.plain_peak[s])
    return max(need, _published_need(stages, s, t)) if rules.published else need


@kernel
def _may_retain(stages, rules, s, c):
    """May all of the stage before a cut be kept?"""
    return rules.retain and c - 1 > s and stages.base_time[c - 1] > 0


@kernel
def _cut(stages, s, t, c, retained, need, forward):
    """The room that a cut needs, the time to get there, and the bytes that it keeps.

    Args:
        need, forward: of the way up to the stage before the cut.
    """
    if retained:
        peak = stages.gradient[t] + stages.output[c - 2] + stages.kept_peak[c - 1]
        return max(need, peak), forward + stages.kept_time[c - 1], stages.kept[c - 1]
    return (
        _passed(stages, s, t, c, need), forward + stages.plain_time[c - 1], stages.output[c - 1]
    )  # fmt: skip


@kernel
def _passed(stages, s, t, c, need):
    """The room to go over the stage before a cut as well."""
    if c - 1 > s:
        return max(need, stages.gradient[t] + stages.moved_peak[c - 1])
    return need


@kernel
def _by_cuts(task, work, count, s, t, saved, free):
    """Keep the input of s, go on to c, and keep its input, or all of c - 1."""
    stages, _, rules, stairs = task
    start, stop, memory, time = stairs
    n, forward, passed_need = stages.output.size, 0.0, _first_need(stages, rules, s, t)
    for c in range(s + 1, t + 1):
        right = (saved * n + c) * n + t
        for retained in range(1 + _may_retain(stages, rules, s, c)):
            left = (retained * n + s) * n + c - 1
            if start[right] == stop[right] or start[left] == stop[left]:
                continue
            need, added, shift = _cut(stages, s, t, c, retained, passed_need, forward)
            left_shift = shift * retained
            lowest = max(memory[start[right]] + shift, memory[start[left]] + left_shift)
            lowest = max(lowest, need)
            fastest = time[stop[right] - 1] + time[stop[left] - 1] + added
            if lowest > free or at(work.best_memory, work.best_time, 0, count, lowest) <= fastest:
                continue
            size = stop[right] - start[right] + stop[left] - start[left] + 1
            work = _enlarged(work, size)
            both = (right, shift), (left, left_shift)
            found = sum_of(stairs, both, need, added, free, work.more_memory, work.more_time)
            work, count = _lowered(work, count, found)
        forward, passed_need = (
            forward + stages.plain_time[c - 1],
            _passed(stages, s, t, c, passed_need),
        )
    return work, count


@kernel
def choose(stages, options, rules, stairs, s, t, m, saved):
    """What to do first with a segment, and with which option or cut; equal times prefer cuts."""
    n, best, kind, place = stages.output.size, np.inf, BASE, -1
    if s == t and m >= _base_need(stages, s):
        best = stages.base_time[s] + stages.back_time[s]
    if s < t or (rules.alone and not saved):
        found, option = _best_option(stages, options, rules, stairs, s, t, m, saved)
        if found < best - SAME * abs(best) or (best == np.inf and found < np.inf):
            best, kind, place = found, KEEP, option
    start, stop, memory, time = stairs
    forward, passed_need = 0.0, _first_need(stages, rules, s, t)
    for c in range(s + 1, t + 1):
        right = (saved * n + c) * n + t
        for retained in range(1 + _may_retain(stages, rules, s, c)):
            left = (retained * n + s) * n + c - 1
            need, total, shift = _cut(stages, s, t, c, retained, passed_need, forward)
            if m < need:
                continue
            total += at(memory, time, start[right], stop[right], m - shift)
            total += at(memory, time, start[left], stop[left], m - shift * retained)
            if total <= best + SAME * abs(best) and total < np.inf:
                best, kind, place = total, RETAIN if retained else CUT, c
        forward, passed_need = (
            forward + stages.plain_time[c - 1],
            _passed(stages, s, t, c, passed_need),
        )
    return kind, place


@kernel
def _best_option(stages, options, rules, stairs, s, t, m, saved):
    """The least time of keeping the first stage, and in which option."""
    n, best, place = stages.output.size, np.inf, -1
    after = (saved * n + s + 1) * n + t
    for option in range(options.first[s], options.first[s + 1]):
        if m < _option_need(stages, options, rules, s, t, option):
            continue
        total = options.time[option]
        if s < t:
            start, stop = stairs.start[after], stairs.stop[after]
            total += at(stairs.memory, stairs.time, start, stop, m - options.kept[option])
        if total < best - SAME * abs(best) or (best == np.inf and total < np.inf):
            best, place = total, option
    return best, place
