"""Memory rows of a space, generated where a fractional solution violates them.

In each row a value counts for one of the reasons why it must be in memory there, whichever weighs
most in the given solution. All choices of reasons together describe the memory exactly, where a
group has one stage; where it has more, they describe what every schedule must satisfy.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.lp.program import SparseRows
from rematbench.engines.lp.separation import (
    SMALL,
    as_rows,
    constant,
    finish,
    finished,
    new_rows,
    term,
)
from rematbench.engines.plans.stages import FloatArray
from rematbench.engines.stages.kernels import row
from rematbench.engines.stages.memory import ValueTables
from rematbench.graphs.ir import IntArray


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


def violated(
    values: ValueTables, layout: Layout, x: FloatArray, budget: float, by: float
) -> SparseRows:
    """Rows that ``x`` violates by more than ``by``.

    Args:
        budget, by: in the memory's unit.
    """
    return as_rows(_violated(values, layout, np.append(x, 0.0), budget, by))


@kernel
def _violated(values, layout, x, budget, by):
    groups = layout.low.size
    rows = new_rows(x.size)
    mark = np.full(values.size.size, -1, dtype=np.int64)
    for k in range(values.prefix if values.size.size else 0):
        _prefix_row(values, layout, x, rows, k)
        finish(rows, budget, by)
    for g in range(groups):
        last_use = _last_uses(values, layout, g)
        for s in range(layout.low[g], layout.high[g]):
            _stage_row(values, layout, x, rows, g, s, last_use, mark)
            finish(rows, budget, by)
        mark[:] = -1
        for k in range(values.transient.size):
            if x[layout.recompute[g, k]] > 1e-6:
                if layout.high[g] - layout.low[g] == 1:
                    _exact_row(values, layout, x, rows, g, k, last_use)
                else:
                    _group_row(values, layout, x, rows, g, k, mark)
                finish(rows, budget, by)
    return finished(rows)


@kernel
def _kept(values, layout, x, g, v):
    """Does v stay beyond group g? (column or -1, value)"""
    if g + 1 == layout.low.size and values.final[v]:
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
def _last_uses(values, layout, g):
    """Per value, the last stage of the group that uses it, or -1."""
    found = np.full(values.size.size, -1, dtype=np.int64)
    for s in range(layout.low[g], layout.high[g]):
        for used in row(values.uses, s):
            found[used] = s
    return found


@kernel
def _prefix_row(values, layout, x, rows, k):
    """While op k runs in the first forward pass."""
    constant(rows, values.resident + values.transient[k])
    for v in range(values.size.size):
        if values.writer[v] > k or values.first[v] >= 0:
            continue
        readers = row(values.readers, v)
        last = readers[-1] if readers.size else values.writer[v]
        if last >= k or values.final[v]:
            constant(rows, values.size[v])
        else:
            term(rows, x, layout.keep[0, v], values.size[v])


@kernel
def _stage_row(values, layout, x, rows, g, s, last_use, mark):
    """While the op of stage s runs."""
    constant(rows, values.during[s])
    for used in row(values.uses, s):
        constant(rows, values.size[used])
        mark[used] = s
    place = values.stage_place[s]
    if place >= 0:
        for written in row(values.writes, place):
            constant(rows, values.size[written])
    for v in range(values.size.size):
        if mark[v] == s or values.first[v] >= s:
            continue
        size, again = values.size[v], layout.recompute[g, values.writer[v]]
        kept, present = _kept(values, layout, x, g, v)
        if s == layout.high[g] - 1:
            _add_kept(rows, x, kept, present, size)
        elif last_use[v] > s:
            constant(rows, size)
            term(rows, x, again, -size)
        elif present - x[again] > SMALL:
            _add_kept(rows, x, kept, present, size)
            term(rows, x, again, -size)


@kernel
def _exact_row(values, layout, x, rows, g, k, last_use):
    """While op k runs again, in a group of one stage."""
    s = layout.low[g]
    constant(rows, values.before[s])
    term(rows, x, layout.recompute[g, k], values.transient[k])
    for v in range(values.size.size):
        if values.first[v] >= s:
            continue
        size, writer = values.size[v], values.writer[v]
        if writer >= k:
            term(rows, x, layout.keep[g, v], size)
            if writer == k:
                term(rows, x, layout.recompute[g, k], size)
        elif last_use[v] == s:
            constant(rows, size)
        else:
            reason, most = _kept(values, layout, x, g, v)
            for reader in row(values.readers, v):
                column = layout.recompute[g, reader]
                if reader >= k and x[column] > most:
                    reason, most = column, x[column]
            if most > SMALL:
                _add_kept(rows, x, reason, most, size)


@kernel
def _group_row(values, layout, x, rows, g, k, mark):
    """While op k runs again, somewhere in a group of several stages."""
    again = layout.recompute[g, k]
    least = np.inf
    for s in range(layout.low[g], layout.high[g]):
        least = min(least, values.before[s])
    constant(rows, least)
    term(rows, x, again, values.transient[k])
    for written in row(values.writes, k):
        term(rows, x, again, values.size[written])
        mark[written] = k
    for read in row(values.reads, k):
        term(rows, x, again, values.size[read])
        mark[read] = k
    for v in range(values.size.size):
        if mark[v] == k or values.first[v] >= layout.low[g]:
            continue
        column = layout.recompute[g, values.writer[v]]
        kept, present = _kept(values, layout, x, g, v)
        if present - x[column] > SMALL:
            _add_kept(rows, x, kept, present, values.size[v])
            term(rows, x, column, -values.size[v])


@kernel
def close(values, wanted):
    """Add what the wanted values are computed from."""
    for v in range(wanted.size - 1, -1, -1):
        if wanted[v]:
            i = values.writer[v]
            for read in row(values.reads, i):
                wanted[read] = True
