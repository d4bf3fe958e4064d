"""Where a graph repeats itself: equal stretches of ops that follow each other."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from rematbench.engines.intervals.net import Net
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import IntArray

WORD = 6
"""Ops that are compared at once to find out by how much a graph repeats itself."""
CANDIDATES = 12
"""Periods that are looked at."""


class Repeat(NamedTuple):
    """Stretches of ``period`` ops, ``times`` of them, from op ``first`` on, that are equal."""

    first: int
    period: int
    times: int

    @property
    def end(self) -> int:
        """The op after the last stretch."""
        return self.first + self.period * self.times


def repeats(net: Net, end: int, least: int = 2) -> list[Repeat]:
    """Equal stretches among the ops before ``end``, by structure, sizes and costs; disjoint.

    Two ops are equal if their costs, workspaces and values are, and if what they read is as far
    back, or the same value, or resident in both.

    Args:
        least: ops of the shortest stretch.
    """
    prints = _prints(net, end)
    found: list[Repeat] = []
    for period in _periods(prints, least):
        same = _same(net, prints, end, period)
        found += _runs(same, period)
    chosen: list[Repeat] = []
    # The widest first; of equal ones that with the shortest stretches.
    for each in sorted(found, key=lambda r: (-(r.end - r.first), r.period)):
        if all(each.end <= other.first or each.first >= other.end for other in chosen):
            chosen.append(each)
    return sorted(chosen)


def _prints(net: Net, end: int) -> IntArray:
    """Per op, a number that is equal for equal costs, workspaces, sizes and numbers of reads."""
    known: dict[tuple[object, ...], int] = {}
    found = np.empty(end, dtype=np.int64)
    for op in range(end):
        reads = net.reads.stretch(op, op + 1)
        key = (
            float(net.cost[op]),
            int(net.workspace[op]),
            tuple(net.size[net.writes.stretch(op, op + 1)].tolist()),
            tuple(net.size[reads].tolist()),
        )
        found[op] = known.setdefault(key, len(known))
    return found


def _periods(prints: IntArray, least: int) -> list[int]:
    """By how much words of ops come again, the most frequent first."""
    last: dict[bytes, int] = {}
    seen: Counter[int] = Counter()
    for op in range(len(prints) - WORD + 1):
        word = prints[op : op + WORD].tobytes()
        if word in last:
            seen[op - last[word]] += 1
        last[word] = op
    return [period for period, _ in seen.most_common(CANDIDATES) if period >= least]


def _same(net: Net, prints: IntArray, end: int, period: int) -> BoolArray:
    """Per op: is the op a period later equal?"""
    same = prints[: end - period] == prints[period:]
    for op in np.flatnonzero(same).tolist():
        here, there = net.reads.stretch(op, op + 1), net.reads.stretch(op + period, op + period + 1)
        back, ahead = op - net.writer[here], op + period - net.writer[there]
        same[op] = bool(np.all((back == ahead) | (here == there)))
    return np.asarray(same)


def _runs(same: BoolArray, period: int) -> list[Repeat]:
    """Where a period holds for at least one whole stretch."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], same, [False]]).astype(np.int8)))
    return [
        Repeat(int(begin), period, (int(end - begin) + period) // period)
        for begin, end in edges.reshape(-1, 2)
        if end - begin >= period
    ]
