"""Columns and sparse rows of a relaxation: Checkmate's (1b) and (1c), over groups of stages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from rematbench.graphs.ir import IntArray
from rematbench.graphs.kernels import kernel
from rematbench.strategies.checkmate.cuts import Layout
from rematbench.strategies.checkmate.memory import Memory
from rematbench.strategies.checkmate.space import FloatArray, Space


class SparseRows(NamedTuple):
    """Rows ``lower[i] <= sum(value[k] x[column[k]]) <= upper[i]``, k as in ``start``."""

    lower: FloatArray
    upper: FloatArray
    start: IntArray
    column: IntArray
    value: FloatArray


def make_layout(
    memory: Memory, space: Space, groups: Sequence[tuple[int, int]]
) -> tuple[Layout, int]:
    """Columns only for what can serve the group or a later one, and their number."""
    low, high = np.array(groups, dtype=np.int64).T.copy()
    recompute = np.full((len(groups), len(space.ops)), -1, dtype=np.int64)
    keep = np.full((len(groups) + 1, len(memory.size)), -1, dtype=np.int64)
    wanted = memory.final.copy()
    for g in range(len(groups) - 1, -1, -1):
        wanted[memory.uses[memory.use_at[low[g]] : memory.use_at[high[g]]]] = True
        _close(memory, wanted)
        ops = np.zeros(len(space.ops), dtype=bool)
        ops[memory.writer[wanted]] = True
        recompute[g, ops & (space.stage < high[g] - 1)] = 0
        keep[g, wanted & (memory.first < low[g])] = 0
    count = 0
    for table in (recompute, keep):
        there = table == 0
        table[there] = count + np.arange(there.sum())
        count += int(there.sum())
    return Layout(low, high, recompute, keep), count


@kernel
def _close(memory, wanted):
    """Add what the wanted values are computed from."""
    for v in range(wanted.size - 1, -1, -1):
        if wanted[v]:
            i = memory.writer[v]
            for k in range(memory.read_at[i], memory.read_at[i + 1]):
                wanted[memory.reads[k]] = True


def static_rows(memory: Memory, layout: Layout) -> SparseRows:
    """All rows but the memory rows."""
    low, high, recompute, keep = layout
    groups, writer = len(low), memory.writer
    single = high - low == 1
    old = memory.first[None, :] < low[:, None]  # computed before the group begins
    again = recompute[:, writer]
    parts: list[tuple[float, float, list[float], list[IntArray]]] = []

    used = np.zeros((groups, len(memory.size)), dtype=bool)
    for g in range(groups):
        used[g, memory.uses[memory.use_at[low[g]] : memory.use_at[high[g]]]] = True
    both = (keep[:-1] >= 0) & (again >= 0)
    # What a stage reads is in memory, or recomputed; in a group of one stage never both.
    for here, least, most in (
        (used & old & single[:, None], 1.0, 1.0),
        (used & old & ~single[:, None], 1.0, 2.0),
        (~used & single[:, None] & both, 0.0, 1.0),
    ):
        g, v = np.nonzero(here)
        parts.append((least, most, [1.0, 1.0], [keep[g, v], again[g, v]]))

    g, v = np.nonzero((keep[1:] >= 0) & old)  # (1c)
    parts.append((-np.inf, 0.0, [1.0, -1.0, -1.0], [keep[g + 1, v], keep[g, v], again[g, v]]))
    v = np.flatnonzero(memory.final & old[-1])
    parts.append((1.0, np.inf, [1.0, 1.0], [keep[-2, v], again[-1, v]]))

    reader = np.repeat(np.arange(len(memory.read_at) - 1), np.diff(memory.read_at))
    g, e = np.nonzero((recompute[:, reader] >= 0) & old[:, memory.reads])  # (1b)
    v = memory.reads[e]
    columns = [recompute[g, reader[e]], keep[g, v], again[g, v]]
    parts.append((-np.inf, 0.0, [1.0, -1.0, -1.0], columns))
    return _joined(parts)


def _joined(parts: list[tuple[float, float, list[float], list[IntArray]]]) -> SparseRows:
    """Rows of equal shape, part after part; entries without a column are left out."""
    count = [len(columns[0]) for _, _, _, columns in parts]
    column = [np.stack(columns, axis=1) for _, _, _, columns in parts]
    value = [
        np.broadcast_to(values, each.shape)
        for (_, _, values, _), each in zip(parts, column, strict=True)
    ]
    length = np.concatenate([(each >= 0).sum(axis=1) for each in column])
    flat, flat_value = (np.concatenate([each.ravel() for each in many]) for many in (column, value))
    return SparseRows(
        np.repeat([part[0] for part in parts], count),
        np.repeat([part[1] for part in parts], count),
        np.concatenate([[0], np.cumsum(length)]).astype(np.int32),
        flat[flat >= 0].astype(np.int32),
        flat_value[flat >= 0],
    )


@kernel
def value_liveness(memory, recomputed):
    """Per stage and value: does a later read want what is in memory when the stage begins?"""
    stages, n = recomputed.shape
    live = np.zeros((stages, memory.size.size), dtype=np.bool_)
    wanted = memory.final.copy()
    for s in range(stages - 1, -1, -1):
        for k in range(memory.use_at[s], memory.use_at[s + 1]):
            wanted[memory.uses[k]] = True
        for i in range(n - 1, -1, -1):
            if recomputed[s, i]:
                for k in range(memory.write_at[i], memory.write_at[i + 1]):
                    wanted[memory.writes[k]] = False
                for k in range(memory.read_at[i], memory.read_at[i + 1]):
                    wanted[memory.reads[k]] = True
        for v in range(memory.size.size):
            live[s, v] = wanted[v] and memory.first[v] < s
    return live
