"""Compiled loops over the implementations of a schedule's computes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.graphs.ir import IntArray
from rematbench.graphs.kernels import kernel
from rematbench.strategies.stages import FloatArray


class Implementations(NamedTuple):
    """A graph's implementations; ``members[member_at[g]:member_at[g + 1]]`` are those of group g.

    Attributes:
        member_at, members: per group.
        group_of: per implementation, its group, or -1.
        extra: per implementation, see :class:`~rematbench.strategies.monet.ways.Ways`.
        cost: per implementation.
        overwrite_at, overwrites: per implementation, the value whose storage each write takes
            over, or -1.
        read_at, reads: per implementation, the values that it reads.
        write_at, writes: per op, the values that it writes.
        outputs: values that must be live at the end.
        value_bytes: per value.
    """

    member_at: IntArray
    members: IntArray
    group_of: IntArray
    extra: IntArray
    cost: FloatArray
    overwrite_at: IntArray
    overwrites: IntArray
    read_at: IntArray
    reads: IntArray
    write_at: IntArray
    writes: IntArray
    outputs: IntArray
    value_bytes: IntArray


class Choice(NamedTuple):
    """Which groups, per op.

    Attributes:
        first: for its first compute.
        repeat: for computing it again.
        preferred: a way to run it instead of the leanest, or -1.
    """

    first: IntArray
    repeat: IntArray
    preferred: IntArray


@kernel
def picked(groups, place, writer_at, writers):
    """Rows of some groups' writers, numbered by ``place``; those that it lacks are left out."""
    start = np.zeros(groups.size + 1, dtype=np.int64)
    items = np.empty(writers.size, dtype=np.int64)
    end = 0
    for i in range(groups.size):
        for k in range(writer_at[groups[i]], writer_at[groups[i] + 1]):
            if place[writers[k]] >= 0:
                items[end] = place[writers[k]]
                end += 1
        start[i + 1] = end
    return start, items[:end].copy()


@kernel
def leanest(ops, choice, ways):
    """Per compute, its leanest legal way (-1: nobody reads what it writes) and a mask of all.

    Backwards, since a value may be overwritten only where nobody reads it later.
    """
    lean = np.full(ops.size, -1, dtype=np.int64)
    legal = np.zeros(ops.size, dtype=np.int64)
    is_repeat = np.zeros(ops.size, dtype=np.bool_)
    seen = np.zeros(choice.first.size, dtype=np.bool_)
    for p in range(ops.size):
        is_repeat[p] = seen[ops[p]]
        seen[ops[p]] = True
    needed = np.zeros(ways.value_bytes.size, dtype=np.bool_)
    for v in ways.outputs:
        needed[v] = True
    for p in range(ops.size - 1, -1, -1):
        op = ops[p]
        wanted = False
        for k in range(ways.write_at[op], ways.write_at[op + 1]):
            wanted = wanted or needed[ways.writes[k]]
        if not wanted:
            continue
        best = -1
        for group in (choice.repeat[op] if is_repeat[p] else choice.first[op], choice.first[op]):
            if best >= 0:  # the second is for where the first may only overwrite, and must not
                break
            best, legal[p] = _leanest_of(group, choice.preferred[op], needed, ways)
        lean[p] = best
        for k in range(ways.write_at[op], ways.write_at[op + 1]):
            needed[ways.writes[k]] = False
        for k in range(ways.read_at[best], ways.read_at[best + 1]):
            needed[ways.reads[k]] = True
    return lean, legal


@kernel
def _leanest_of(group, preferred, needed, ways):
    """The leanest legal way of a group, or the preferred one (-1: none), and a mask of all."""
    best = -1
    legal = np.int64(0)
    for m in range(ways.member_at[group], ways.member_at[group + 1]):
        way = ways.members[m]
        allowed = m - ways.member_at[group] < 62
        for k in range(ways.overwrite_at[way], ways.overwrite_at[way + 1]):
            if ways.overwrites[k] >= 0 and needed[ways.overwrites[k]]:
                allowed = False
        if not allowed:
            continue
        legal |= np.int64(1) << (m - ways.member_at[group])
        leaner = best < 0 or ways.extra[way] < ways.extra[best]
        if not leaner and ways.extra[way] == ways.extra[best]:
            leaner = ways.cost[way] < ways.cost[best]
        if way == preferred or (leaner and (best < 0 or best != preferred)):
            best = way
    return best, legal


@kernel
def fastest(lean, legal, during, limit, ways):
    """Per compute, the cheapest legal way that fits; the leanest where none does."""
    fast = lean.copy()
    for p in range(lean.size):
        room = limit - during[p] + ways.extra[lean[p]]
        group = ways.group_of[lean[p]]
        for m in range(ways.member_at[group], ways.member_at[group + 1]):
            way = ways.members[m]
            fits = ways.extra[way] <= room and (legal[p] >> (m - ways.member_at[group])) & 1
            if fits and ways.cost[way] < ways.cost[fast[p]]:
                fast[p] = way
    return fast
