"""Compiled loops over the implementations of a schedule's computes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.plans.stages import FloatArray
from rematbench.engines.stages.kernels import row
from rematbench.graphs.ir import IntArray, Rows


class Implementations(NamedTuple):
    """A graph's implementations.

    Attributes:
        members: per group.
        group_of: per implementation, its group, or -1.
        extra: per implementation, see :class:`~rematbench.engines.joint.ways.Ways`.
        cost: per implementation.
        recompute_group: per op, the group that recomputes it by values of its own, or -1.
        overwrites: per implementation, the value whose storage each write takes
            over, or -1.
        reads: per implementation, the values that it reads.
        writes: per op, the values that it writes.
        outputs: values that must be live at the end.
        value_bytes: per value.
    """

    members: Rows
    group_of: IntArray
    extra: IntArray
    cost: FloatArray
    recompute_group: IntArray
    overwrites: Rows
    reads: Rows
    writes: Rows
    outputs: IntArray
    value_bytes: IntArray


@kernel
def picked(groups, place, writers):
    """Rows of some groups' writers, numbered by ``place``; those that it lacks are left out."""
    start = np.zeros(groups.size + 1, dtype=np.int64)
    size = 0
    for group in groups:
        size += row(writers, group).size
    items = np.empty(size, dtype=np.int64)
    end = 0
    for i in range(groups.size):
        for writer in row(writers, groups[i]):
            if place[writer] >= 0:
                items[end] = place[writer]
                end += 1
        start[i + 1] = end
    return start, items[:end].copy()


@kernel
def leanest(ops, choice, preferred, ways):
    """Per compute, its leanest legal way (-1: nobody reads what it writes) and a mask of all.

    Backwards, since a value may be overwritten only where nobody reads it later.

    Args:
        choice: per op, its group.
        preferred: per op, a way to run it instead of the leanest, or -1.
    """
    lean = np.full(ops.size, -1, dtype=np.int64)
    legal = np.zeros(ops.size, dtype=np.int64)
    is_repeat = np.zeros(ops.size, dtype=np.bool_)
    seen = np.zeros(choice.size, dtype=np.bool_)
    for p in range(ops.size):
        is_repeat[p] = seen[ops[p]]
        seen[ops[p]] = True
    needed = np.zeros(ways.value_bytes.size, dtype=np.bool_)
    for v in ways.outputs:
        needed[v] = True
    for p in range(ops.size - 1, -1, -1):
        op = ops[p]
        wanted = False
        for written in row(ways.writes, op):
            wanted = wanted or needed[written]
        if not wanted:
            continue
        best, group = -1, ways.recompute_group[op]
        if is_repeat[p] and group >= 0:
            best, legal[p] = _leanest_of(group, preferred[op], needed, ways)
        if best < 0:  # also where recomputing may only overwrite, and must not
            best, legal[p] = _leanest_of(choice[op], preferred[op], needed, ways)
        lean[p] = best
        for written in row(ways.writes, op):
            needed[written] = False
        for read in row(ways.reads, best):
            needed[read] = True
    return lean, legal


@kernel
def _leanest_of(group, preferred, needed, ways):
    """The leanest legal way of a group, or the preferred one (-1: none), and a mask of all."""
    best = -1
    legal = np.int64(0)
    for m, way in enumerate(row(ways.members, group)):
        allowed = m < 62
        for taken in row(ways.overwrites, way):
            if taken >= 0 and needed[taken]:
                allowed = False
        if not allowed:
            continue
        legal |= np.int64(1) << m
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
        for m, way in enumerate(row(ways.members, ways.group_of[lean[p]])):
            fits = ways.extra[way] <= room and (legal[p] >> m) & 1
            if fits and ways.cost[way] < ways.cost[fast[p]]:
                fast[p] = way
    return fast
