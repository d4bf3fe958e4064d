"""What to keep at a moment if a graph is cut into segments: Chen's greedy rule on any graph.

At a cut lies what is written before it and read after it, up to the moment. A cut is made, where
least lies there, whenever the values since the last one exceed a number of bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rematbench.engines.intervals.net import Net
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import IntArray

STEPS = 14
"""Sizes of segments that are tried."""
BACK = 0.3
"""Share of a segment, at its end, in which its cut is looked for."""


def segmentations(net: Net, moment: int) -> Iterator[BoolArray]:
    """Per value, is it kept? For segments from small to large ones.

    Args:
        moment: an op; what it and later ones read may be gone.
    """
    if moment < 4:
        return
    last = _last_reads(net, moment)
    lying = _lying(net, last, moment)
    total = np.cumsum(net.written[:moment])
    seen: set[tuple[int, ...]] = set()
    for size in np.geomspace(4 / moment, 0.5, STEPS) * float(total[-1]):
        cuts = _cuts(lying, total, size)
        if cuts and tuple(cuts) not in seen:
            seen.add(tuple(cuts))
            yield _crossing(net, last, np.array(cuts))


def cuts_of(net: Net, begin: int, end: int, share: float) -> list[int]:
    """Ops, counted from ``begin``, after which to cut some ops into blocks of a share of them."""
    lying = _lying(net, _last_reads(net, end), end)[begin:]
    return _cuts(lying, np.arange(1, end - begin + 1), share * (end - begin))


def _lying(net: Net, last: IntArray, moment: int) -> IntArray:
    """Per op, the bytes that are written before or by it, and read after it."""
    change = np.zeros(moment + 1, dtype=np.int64)
    early = net.writer < moment
    np.add.at(change, net.writer[early], net.size[early])
    np.add.at(change, np.maximum(last, net.writer)[early], -net.size[early])
    return np.cumsum(change)[:moment]


def _last_reads(net: Net, moment: int) -> IntArray:
    """Per value, its last reader before the moment, or -1."""
    reader = np.repeat(np.arange(len(net.cost)), np.diff(net.reads.start))
    last = np.full(len(net.size), -1, dtype=np.int64)
    is_early = reader < moment
    np.maximum.at(last, net.reads.items[is_early], reader[is_early])
    return last


def _cuts(lying: IntArray, total: IntArray, size: float) -> list[int]:
    """Ops after which to cut."""
    cuts: list[int] = []
    begin, done = 0, 0.0
    while True:
        end = int(np.searchsorted(total, done + size))
        if end >= len(total):
            return cuts
        back = max(begin, int(end - BACK * (end - begin)))
        cut = back + int(np.argmin(lying[back : end + 1]))
        cuts.append(cut)
        begin, done = cut + 1, float(total[cut])


def _crossing(net: Net, last: IntArray, cuts: IntArray) -> BoolArray:
    """Per value: is it written at or before some cut, and read after it?"""
    following = np.append(cuts, len(net.cost))[np.searchsorted(cuts, net.writer)]
    return np.asarray(last > following)
