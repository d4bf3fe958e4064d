"""Memory rows of a space, generated where a fractional solution violates them.

In each row a value counts for one of the reasons why it must be in memory there, whichever weighs
most in the given solution. All choices of reasons together describe the memory exactly, where a
group has one stage; where it has more, they describe what every schedule must satisfy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.graphs.ir import IntArray
from rematbench.graphs.kernels import kernel
from rematbench.strategies.checkmate.memory import Memory
from rematbench.strategies.checkmate.space import FloatArray

SMALL = 1e-9


class Layout(NamedTuple):
    """Columns of a relaxation, -1 where there is none.

    Attributes:
        low, high: per group, its first stage and the one after its last.
        recompute: (groups, ops): is the op recomputed in the group?
        keep: (groups + 1, values): is the value in memory when the group begins?
    """

    low: IntArray
    high: IntArray
    recompute: IntArray
    keep: IntArray


class Cuts(NamedTuple):
    """Rows ``sum(value[k] x[column[k]] for k in start[i]:start[i + 1]) <= upper[i]``."""

    start: IntArray
    column: IntArray
    value: FloatArray
    upper: FloatArray


def violated(memory: Memory, layout: Layout, x: FloatArray, budget: float, by: float) -> Cuts:
    """Rows that ``x`` violates by more than ``by``.

    Args:
        budget, by: in the memory's unit.
    """
    return Cuts(*_violated(memory, layout, np.append(x, 0.0), budget, by))


@kernel
def _violated(memory, layout, x, budget, by):
    groups = layout.low.size
    rows = new_rows(x.size)
    mark = np.full(memory.size.size, -1, dtype=np.int64)
    if memory.first.size and memory.first.min() < 0:
        for k in range(memory.transient.size):
            _prefix_row(memory, layout, x, rows, k)
            rows = finish(rows, budget, by)
    for g in range(groups):
        last_use = _last_uses(memory, layout, g)
        for s in range(layout.low[g], layout.high[g]):
            _stage_row(memory, layout, x, rows, g, s, last_use, mark)
            rows = finish(rows, budget, by)
        mark[:] = -1
        for k in range(memory.transient.size):
            if x[layout.recompute[g, k]] > 1e-6:
                if layout.high[g] - layout.low[g] == 1:
                    _exact_row(memory, layout, x, rows, g, k, last_use)
                else:
                    _group_row(memory, layout, x, rows, g, k, mark)
                rows = finish(rows, budget, by)
    count, end = rows.counts[0], rows.counts[1]
    return rows.start[: count + 1], rows.column[:end], rows.value[:end], rows.upper[:count]


class _Rows(NamedTuple):
    """Finished rows, and the one in the making.

    Attributes:
        dense, touched: coefficients of the row in the making, and where they are.
        start, column, value, upper: see :class:`Cuts`.
        counts: finished rows, their entries, columns touched.
        total: of the row in the making: its constant, its value at x.
    """

    dense: FloatArray
    touched: IntArray
    start: IntArray
    column: IntArray
    value: FloatArray
    upper: FloatArray
    counts: IntArray
    total: FloatArray


@kernel
def new_rows(columns):
    """No rows yet."""
    return _Rows(
        np.zeros(columns),
        np.empty(columns, dtype=np.int64),
        np.zeros(1024, dtype=np.int64),
        np.empty(1 << 16, dtype=np.int64),
        np.empty(1 << 16),
        np.empty(1024),
        np.zeros(3, dtype=np.int64),
        np.zeros(2),
    )


@kernel
def constant(rows, amount):
    """Add a constant to the row in the making."""
    rows.total[0] += amount
    rows.total[1] += amount


@kernel
def term(rows, x, column, amount):
    """Add a term to the row in the making; column -1 is zero."""
    if column < 0 or amount == 0.0:
        return
    if rows.dense[column] == 0.0:
        rows.touched[rows.counts[2]] = column
        rows.counts[2] += 1
    rows.dense[column] += amount
    rows.total[1] += amount * x[column]


@kernel
def finish(rows, budget, by):
    """Keep the row in the making if it is violated, and begin another."""
    count, end, touched = rows.counts[0], rows.counts[1], rows.counts[2]
    if rows.total[1] > budget + by:
        if count + 2 > rows.start.size or end + touched > rows.column.size:
            rows = _Rows(
                rows.dense,
                rows.touched,
                _grown(rows.start, count + 2),
                _grown(rows.column, end + touched),
                _grown(rows.value, end + touched),
                _grown(rows.upper, count + 2),
                rows.counts,
                rows.total,
            )
        for i in range(touched):
            column = rows.touched[i]
            if abs(rows.dense[column]) > SMALL:
                rows.column[end] = column
                rows.value[end] = rows.dense[column]
                end += 1
        rows.upper[count] = budget - rows.total[0]
        rows.start[count + 1] = end
        rows.counts[0], rows.counts[1] = count + 1, end
    for i in range(touched):
        rows.dense[rows.touched[i]] = 0.0
    rows.counts[2] = 0
    rows.total[:] = 0.0
    return rows


@kernel
def _grown(array, least):
    longer = np.zeros(max(2 * array.size, least), dtype=array.dtype)
    longer[: array.size] = array
    return longer


@kernel
def _kept(memory, layout, x, g, v):
    """Does v stay beyond group g? (column or -1, value)"""
    if g + 1 == layout.low.size and memory.final[v]:
        return -1, 1.0
    column = layout.keep[g + 1, v]
    return column, x[column]


@kernel
def _add_kept(rows, x, column, present, amount):
    """Add ``amount`` for a value of :func:`_kept`, which may be a constant."""
    if column >= 0:
        term(rows, x, column, amount)
    elif present > 0:
        constant(rows, amount)


@kernel
def _last_uses(memory, layout, g):
    """Per value, the last stage of the group that uses it, or -1."""
    found = np.full(memory.size.size, -1, dtype=np.int64)
    for s in range(layout.low[g], layout.high[g]):
        for k in range(memory.use_at[s], memory.use_at[s + 1]):
            found[memory.uses[k]] = s
    return found


@kernel
def _prefix_row(memory, layout, x, rows, k):
    """While op k runs in the first forward pass."""
    constant(rows, memory.resident + memory.transient[k])
    for v in range(memory.size.size):
        if memory.writer[v] > k or memory.first[v] >= 0:
            continue
        last = memory.writer[v]
        if memory.reader_at[v + 1] > memory.reader_at[v]:
            last = memory.readers[memory.reader_at[v + 1] - 1]
        if last >= k or memory.final[v]:
            constant(rows, memory.size[v])
        else:
            term(rows, x, layout.keep[0, v], memory.size[v])


@kernel
def _stage_row(memory, layout, x, rows, g, s, last_use, mark):
    """While the op of stage s runs."""
    constant(rows, memory.during[s])
    for k in range(memory.use_at[s], memory.use_at[s + 1]):
        constant(rows, memory.size[memory.uses[k]])
        mark[memory.uses[k]] = s
    place = memory.stage_place[s]
    if place >= 0:
        for k in range(memory.write_at[place], memory.write_at[place + 1]):
            constant(rows, memory.size[memory.writes[k]])
    for v in range(memory.size.size):
        if mark[v] == s or memory.first[v] >= s:
            continue
        size, again = memory.size[v], layout.recompute[g, memory.writer[v]]
        kept, present = _kept(memory, layout, x, g, v)
        if s == layout.high[g] - 1:
            _add_kept(rows, x, kept, present, size)
        elif last_use[v] > s:
            constant(rows, size)
            term(rows, x, again, -size)
        elif present - x[again] > SMALL:
            _add_kept(rows, x, kept, present, size)
            term(rows, x, again, -size)


@kernel
def _exact_row(memory, layout, x, rows, g, k, last_use):
    """While op k runs again, in a group of one stage."""
    s = layout.low[g]
    constant(rows, memory.before[s])
    term(rows, x, layout.recompute[g, k], memory.transient[k])
    for v in range(memory.size.size):
        if memory.first[v] >= s:
            continue
        size, writer = memory.size[v], memory.writer[v]
        if writer >= k:
            term(rows, x, layout.keep[g, v], size)
            if writer == k:
                term(rows, x, layout.recompute[g, k], size)
        elif last_use[v] == s:
            constant(rows, size)
        else:
            reason, most = _kept(memory, layout, x, g, v)
            for i in range(memory.reader_at[v], memory.reader_at[v + 1]):
                column = layout.recompute[g, memory.readers[i]]
                if memory.readers[i] >= k and x[column] > most:
                    reason, most = column, x[column]
            if most > SMALL:
                _add_kept(rows, x, reason, most, size)


@kernel
def _group_row(memory, layout, x, rows, g, k, mark):
    """While op k runs again, somewhere in a group of several stages."""
    again = layout.recompute[g, k]
    least = np.inf
    for s in range(layout.low[g], layout.high[g]):
        least = min(least, memory.before[s])
    constant(rows, least)
    term(rows, x, again, memory.transient[k])
    for i in range(memory.write_at[k], memory.write_at[k + 1]):
        term(rows, x, again, memory.size[memory.writes[i]])
        mark[memory.writes[i]] = k
    for i in range(memory.read_at[k], memory.read_at[k + 1]):
        term(rows, x, again, memory.size[memory.reads[i]])
        mark[memory.reads[i]] = k
    for v in range(memory.size.size):
        if mark[v] == k or memory.first[v] >= layout.low[g]:
            continue
        column = layout.recompute[g, memory.writer[v]]
        kept, present = _kept(memory, layout, x, g, v)
        if present - x[column] > SMALL:
            _add_kept(rows, x, kept, present, memory.size[v])
            term(rows, x, column, -memory.size[v])
