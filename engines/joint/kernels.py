"""Compiled loops over the implementations of a schedule's computes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.plans.stages import BoolArray, FloatArray
from rematbench.engines.stages.kernels import row
from rematbench.graphs.ir import IntArray, Rows


class Implementations(NamedTuple):
    """A graph's implementations.

    Attributes:
        members: per group.
        group_of: per implementation, its group, or -1.
        extra: per implementation, see
            :class:`~rematbench.engines.joint.implementations.AllowedImplementations`.
        cost: per implementation.
        recompute_group: per op, the group that recomputes it by values of its own, or -1.
        overwrites: per implementation, the value whose storage each write takes
            over, or -1.
        reads: per implementation, the values that it reads.
        writes: per op, the values that it writes.
        outputs: values that must be live at the end.
        value_bytes: per value.
        random: per op, does it draw random numbers?
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
    random: BoolArray


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
def leanest(ops, choice, preferred, implementations):
    """Per compute, its leanest legal implementation (-1: nobody reads it) and a mask of all.

    Backwards, since a value may be overwritten only where nobody reads it later. A random op that
    is computed again keeps its first compute, read or not: it draws in program order.

    Args:
        choice: per op, its group.
        preferred: per op, an implementation to run it instead of the leanest, or -1.
    """
    lean = np.full(ops.size, -1, dtype=np.int64)
    legal = np.zeros(ops.size, dtype=np.int64)
    is_repeat = np.zeros(ops.size, dtype=np.bool_)
    seen = np.zeros(choice.size, dtype=np.bool_)
    for p in range(ops.size):
        is_repeat[p] = seen[ops[p]]
        seen[ops[p]] = True
    needed = np.zeros(implementations.value_bytes.size, dtype=np.bool_)
    draws_later = np.zeros(choice.size, dtype=np.bool_)
    for v in implementations.outputs:
        needed[v] = True
    for p in range(ops.size - 1, -1, -1):
        op = ops[p]
        wanted = draws_later[op] and not is_repeat[p]
        for written in row(implementations.writes, op):
            wanted = wanted or needed[written]
        if not wanted:
            continue
        best, group = -1, implementations.recompute_group[op]
        if is_repeat[p] and group >= 0:
            best, legal[p] = _leanest_of(group, preferred[op], needed, implementations)
        if best < 0:  # also where recomputing may only overwrite, and must not
            best, legal[p] = _leanest_of(choice[op], preferred[op], needed, implementations)
        lean[p] = best
        draws_later[op] = implementations.random[op]
        for written in row(implementations.writes, op):
            needed[written] = False
        for read in row(implementations.reads, best):
            needed[read] = True
    return lean, legal


@kernel
def _leanest_of(group, preferred, needed, implementations):
    """A group's leanest legal implementation, or the preferred one (-1: none); a mask of all."""
    best = -1
    legal = np.int64(0)
    for m, implementation in enumerate(row(implementations.members, group)):
        allowed = m < 62
        for taken in row(implementations.overwrites, implementation):
            if taken >= 0 and needed[taken]:
                allowed = False
        if not allowed:
            continue
        legal |= np.int64(1) << m
        leaner = best < 0 or implementations.extra[implementation] < implementations.extra[best]
        if not leaner and implementations.extra[implementation] == implementations.extra[best]:
            leaner = implementations.cost[implementation] < implementations.cost[best]
        if implementation == preferred or (leaner and (best < 0 or best != preferred)):
            best = implementation
    return best, legal


@kernel
def fastest(lean, legal, during, limit, implementations):
    """Per compute, the cheapest legal implementation that fits; the leanest where none does."""
    fast = lean.copy()
    for p in range(lean.size):
        free_bytes = limit - during[p] + implementations.extra[lean[p]]
        for m, implementation in enumerate(
            row(implementations.members, implementations.group_of[lean[p]])
        ):
            fits = implementations.extra[implementation] <= free_bytes and (legal[p] >> m) & 1
            if fits and implementations.cost[implementation] < implementations.cost[fast[p]]:
                fast[p] = implementation
    return fast
