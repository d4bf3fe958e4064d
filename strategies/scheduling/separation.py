"""Row separation: rows of a program that a fractional solution x violates, made in a kernel.

A kernel begins with :func:`new_rows`, calls :func:`constant` and :func:`term` for what a row is
made of, then :func:`finish`, and returns :func:`finished`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rematbench.graphs.ir import IntArray
from rematbench.graphs.kernels import kernel
from rematbench.strategies.scheduling.program import SparseRows
from rematbench.strategies.stages import FloatArray

SMALL = 1e-9


def as_rows(arrays: tuple[Any, ...]) -> SparseRows:
    """What a kernel returned by :func:`finished`, as rows."""
    start, column, value, upper = arrays
    return SparseRows(np.full(len(upper), -np.inf), upper, start, column, value)


class RowBuffer(NamedTuple):
    """Rows ``sum(value[k] x[column[k]]) <= upper[i]``, finished ones and one in the making.

    Attributes:
        dense, touched: coefficients of the row in the making, and where they are.
        start, column, value, upper: of the finished rows.
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
    return RowBuffer(
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
def finish(rows, limit, by):
    """Keep the row in the making if x violates ``row <= limit`` by enough, and begin another."""
    count, end, touched = rows.counts[0], rows.counts[1], rows.counts[2]
    if rows.total[1] > limit + by:
        if count + 2 > rows.start.size or end + touched > rows.column.size:
            rows = RowBuffer(
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
        rows.upper[count] = limit - rows.total[0]
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
def finished(rows):
    """Start, column, value and upper of the finished rows."""
    count, end = rows.counts[0], rows.counts[1]
    return rows.start[: count + 1], rows.column[:end], rows.value[:end], rows.upper[:count]
