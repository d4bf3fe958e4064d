"""Columns and sparse rows of a relaxation: Checkmate's (1b) and (1c), over groups of stages."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematbench.graphs.kernels import kernel
from rematbench.strategies.checkmate.cuts import Layout
from rematbench.strategies.checkmate.memory import ValueTables
from rematbench.strategies.scheduling.program import LinearProgram
from rematbench.strategies.scheduling.space import Space


def make_layout(
    values: ValueTables, space: Space, groups: Sequence[tuple[int, int]]
) -> tuple[Layout, int]:
    """Columns only for what can serve the group or a later one, and their number."""
    low, high = np.array(groups, dtype=np.int64).T.copy()
    recompute = np.full((len(groups), len(space.ops)), -1, dtype=np.int64)
    keep = np.full((len(groups) + 1, len(values.size)), -1, dtype=np.int64)
    wanted = values.final.copy()
    for g in range(len(groups) - 1, -1, -1):
        wanted[values.uses[values.use_at[low[g]] : values.use_at[high[g]]]] = True
        _close(values, wanted)
        ops = np.zeros(len(space.ops), dtype=bool)
        ops[values.writer[wanted]] = True
        recompute[g, ops & (space.stage < high[g] - 1)] = 0
        keep[g, wanted & (values.first < low[g])] = 0
    count = 0
    for table in (recompute, keep):
        there = table == 0
        table[there] = count + np.arange(there.sum())
        count += int(there.sum())
    return Layout(low, high, recompute, keep), count


@kernel
def _close(values, wanted):
    """Add what the wanted values are computed from."""
    for v in range(wanted.size - 1, -1, -1):
        if wanted[v]:
            i = values.writer[v]
            for k in range(values.read_at[i], values.read_at[i + 1]):
                wanted[values.reads[k]] = True


def static_rows(program: LinearProgram, values: ValueTables, layout: Layout) -> None:
    """Add all rows but the memory rows."""
    low, high, recompute, keep = layout
    groups, writer = len(low), values.writer
    single = high - low == 1
    old = values.first[None, :] < low[:, None]  # computed before the group begins
    again = recompute[:, writer]

    used = np.zeros((groups, len(values.size)), dtype=bool)
    for g in range(groups):
        used[g, values.uses[values.use_at[low[g]] : values.use_at[high[g]]]] = True
    both = (keep[:-1] >= 0) & (again >= 0)
    # What a stage reads is in memory, or recomputed; in a group of one stage never both.
    for here, least, most in (
        (used & old & single[:, None], 1.0, 1.0),
        (used & old & ~single[:, None], 1.0, 2.0),
        (~used & single[:, None] & both, 0.0, 1.0),
    ):
        at = np.nonzero(here)
        program.rows(least, most, [keep[at], again[at]], [1.0, 1.0])

    at = g, v = np.nonzero((keep[1:] >= 0) & old)  # (1c)
    columns = [keep[g + 1, v], keep[at], again[at]]
    program.rows(-np.inf, 0.0, columns, [1.0, -1.0, -1.0])
    final = np.flatnonzero(values.final & old[-1])
    program.rows(1.0, np.inf, [keep[-2, final], again[-1, final]], [1.0, 1.0])

    reader = np.repeat(np.arange(len(values.read_at) - 1), np.diff(values.read_at))
    g, e = np.nonzero((recompute[:, reader] >= 0) & old[:, values.reads])  # (1b)
    at = g, values.reads[e]
    columns = [recompute[g, reader[e]], keep[at], again[at]]
    program.rows(-np.inf, 0.0, columns, [1.0, -1.0, -1.0])


@kernel
def value_liveness(values, recomputed):
    """Per stage and value: does a later read want what is in memory when the stage begins?"""
    stages, n = recomputed.shape
    live = np.zeros((stages, values.size.size), dtype=np.bool_)
    wanted = values.final.copy()
    for s in range(stages - 1, -1, -1):
        for k in range(values.use_at[s], values.use_at[s + 1]):
            wanted[values.uses[k]] = True
        for i in range(n - 1, -1, -1):
            if recomputed[s, i]:
                for k in range(values.write_at[i], values.write_at[i + 1]):
                    wanted[values.writes[k]] = False
                for k in range(values.read_at[i], values.read_at[i + 1]):
                    wanted[values.reads[k]] = True
        for v in range(values.size.size):
            live[s, v] = wanted[v] and values.first[v] < s
    return live
