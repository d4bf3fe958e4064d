"""One recomputation more, or less, and the intervals that change with it."""

from __future__ import annotations

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.intervals.memory import END, FREE, REPEATS, add, refresh
from rematbench.engines.stages.kernels import row

ENDLESS = 1 << 62
"""A key after every other."""


CROWD = 2048
"""Recomputations of one stage, beyond which a schedule is not worth the time to make it."""


@kernel
def latest(state, op, before):
    """The last compute of an op before a key; there is one."""
    n = state.head.size
    found = op
    following = state.again[op]
    while following >= 0 and state.stage[following] * n + op < before:
        found = following
        following = state.again[following]
    return found


@kernel
def key_of(state, compute):
    """The moment of a compute; of none, the end of time."""
    if compute < 0:
        return ENDLESS
    return state.stage[compute] * state.head.size + state.op[compute]


@kernel
def last_read(net, state, value, begin, before):
    """The last read of a value after one key and before another; ``begin`` if there is none."""
    n = state.head.size
    found = begin
    for reader in row(net.readers, value):
        if reader * n + reader >= before:
            break
        key = key_of(state, latest(state, reader, before))
        found = max(found, key)
    return found


@kernel
def next_read(net, state, value, begin, before):
    """The first read of a value after one key and before another; ``before`` if there is none."""
    n = state.head.size
    found = before
    for reader in row(net.readers, value):
        if reader * n + reader >= found:
            break
        at = reader
        key = reader * n + reader
        while key <= begin and state.again[at] >= 0:
            at = state.again[at]
            key = state.stage[at] * n + reader
        if key > begin:
            found = min(found, key)
    return found


@kernel
def end_of(net, state, value, begin, following):
    """The last moment at which a copy of a value is in memory.

    Args:
        begin, following: keys of its compute, and of the next one of its op.
    """
    if following == ENDLESS and net.final[value]:
        return state.head.size * state.head.size - 1
    return last_read(net, state, value, begin, following)


@kernel
def find(state, stage, op):
    """The compute of an op in a stage, or -1."""
    at = op
    while at >= 0 and state.stage[at] < stage:
        at = state.again[at]
    return at if at >= 0 and state.stage[at] == stage else -1


@kernel
def insert(net, state, stage, op):
    """Recompute an op in a later stage than its own; False where it is, or may not be again."""
    n = state.head.size
    if not may_repeat(net, state, op):
        return False
    key = stage * n + op
    before = latest(state, op, key)
    following = state.again[before]
    if (following >= 0 and state.stage[following] == stage) or state.counts[FREE] == 0:
        return False
    state.counts[FREE] -= 1
    state.counts[REPEATS] += 1
    state.cost[0] += net.cost[op]
    at = state.unused[state.counts[FREE]]
    state.stage[at] = stage
    state.op[at] = op
    state.counts[END] = max(state.counts[END], at + 1)
    _link(net, state, at)
    begin, end = key_of(state, before), key_of(state, following)
    for value in row(net.writes, op):
        size = net.size[value]
        if size == 0:
            continue
        if end_of(net, state, value, key, end) > key:
            add(state, last_read(net, state, value, begin, key) + 1, key - 1, -size)
        else:
            state.offset[at] += size
    _read(net, state, op, key, 1)
    state.again[at] = following
    state.again[before] = at
    refresh(state, stage)
    return True


@kernel
def may_repeat(net, state, op):
    """May an op be computed once more?"""
    count, at = 1, state.again[op]
    while at >= 0 and count < net.most:
        count += 1
        at = state.again[at]
    return net.most == 0 or count < net.most


@kernel
def _link(net, state, at):
    """Put a compute into its stage, with the memory that is there besides what it writes."""
    stage, op = state.stage[at], state.op[at]
    before, following = -1, state.head[stage]
    while state.op[following] < op:
        before = following
        following = state.after[following]
    other = state.op[following]
    there = state.offset[following] - net.workspace[other] - net.written[other]
    state.offset[at] = there + net.workspace[op]
    state.after[at] = following
    if before < 0:
        state.head[stage] = at
    else:
        state.after[before] = at


@kernel
def _read(net, state, op, key, sign):
    """What an op reads stays until ``key``, or no longer; its own compute is not in the list."""
    for value in row(net.reads, op):
        if net.size[value] == 0:
            continue
        source = latest(state, net.writer[value], key)
        following = key_of(state, state.again[source])
        end = end_of(net, state, value, key_of(state, source), following)
        if end < key:
            add(state, end + 1, key, sign * net.size[value])


@kernel
def remove(net, state, at):
    """Take back a recomputation."""
    stage, op = state.stage[at], state.op[at]
    key = key_of(state, at)
    before = op
    while state.again[before] != at:
        before = state.again[before]
    following = state.again[at]
    state.again[before] = following
    state.again[at] = -1
    _read(net, state, op, key, -1)
    begin, end = key_of(state, before), key_of(state, following)
    for value in row(net.writes, op):
        size = net.size[value]
        if size and end_of(net, state, value, key, end) > key:
            add(state, last_read(net, state, value, begin, key) + 1, key - 1, size)
    if state.head[stage] == at:
        state.head[stage] = state.after[at]
    else:
        other = state.head[stage]
        while state.after[other] != at:
            other = state.after[other]
        state.after[other] = state.after[at]
    state.after[at] = -1
    refresh(state, stage)
    state.op[at] = -1
    state.unused[state.counts[FREE]] = at
    state.counts[FREE] += 1
    state.counts[REPEATS] -= 1
    state.cost[0] -= net.cost[op]


@kernel
def is_useless(net, state, at):
    """Does nobody read what a recomputation makes?"""
    key = key_of(state, at)
    following = key_of(state, state.again[at])
    for value in row(net.writes, state.op[at]):
        if end_of(net, state, value, key, following) > key:
            return False
    return True


@kernel
def prune(net, state):
    """Take back what nobody reads."""
    for op in range(state.head.size - 1, -1, -1):
        at = state.again[op]
        while at >= 0:
            following = state.again[at]
            if is_useless(net, state, at):
                remove(net, state, at)
            at = following


@kernel
def sequence(state):
    """The computes in order, as ops."""
    found = np.empty(state.head.size + state.counts[REPEATS], dtype=np.int64)
    count = 0
    for stage in range(state.head.size):
        at = state.head[stage]
        while at >= 0:
            found[count] = state.op[at]
            count += 1
            at = state.after[at]
    return found


@kernel
def resume(net, state, moment, kept):
    """From an op's first compute on, compute again what was not kept, when it is read first.

    Args:
        moment: the op.
        kept: per value; those of later ops are kept, too.

    Returns:
        Was there room, and no stage with very many recomputations?
    """
    n = state.head.size
    live = kept | (net.writer >= moment)
    live[row(net.reads, moment)] = True
    outputs = np.flatnonzero(net.final)
    mark = np.full(n, -1, dtype=np.int64)
    todo = np.empty(n, dtype=np.int64)
    for stage in range(moment, n):
        done, count = 0, _want(net, live, mark, todo, stage, row(net.reads, stage), 0)
        if stage == n - 1:
            count = _want(net, live, mark, todo, stage, outputs, count)
        while done < count:
            count = _want(net, live, mark, todo, stage, row(net.reads, todo[done]), count)
            done += 1
        if count > min(CROWD, state.counts[FREE]):
            return False
        for op in todo[:count]:
            insert(net, state, stage, op)
            live[row(net.writes, op)] = True
    return True


@kernel
def _want(net, live, mark, todo, stage, values, count):
    """Ops to compute again for some values; how many there are then."""
    for value in values:
        op = net.writer[value]
        if not live[value] and mark[op] != stage:
            mark[op] = stage
            todo[count] = op
            count += 1
    return count
