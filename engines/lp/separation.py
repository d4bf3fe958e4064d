"""Row separation: rows of a program that a fractional solution x violates, made in a kernel.

A kernel begins with :func:`new_rows`, calls :func:`constant` and :func:`term` for what a row is
made of, then :func:`finish`, and returns :func:`finished`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.lp.program import SparseRows
from rematbench.engines.plans.stages import FloatArray

SMALL = 1e-9


def as_rows(arrays: tuple[Any, ...]) -> SparseRows:
    """What a kernel returned by :func:`finished`, as rows."""
    start, column, value, upper = arrays
    column = column.astype(np.int64, copy=False)  # without numba, none is of floats
    return SparseRows(np.full(len(upper), -np.inf), upper, start, column, value)


class RowBuffer(NamedTuple):
    """Rows ``sum(value[k] x[column[k]]) <= upper[i]``, finished ones and one in the making.

    Attributes:
        dense, touched: coefficients of the row in the making, and where they are.
        total: of the row in the making: its constant, its value at x.
        start, column, value, upper: of the finished rows.
    """

    dense: FloatArray
    touched: list[int]
    total: FloatArray
    start: list[int]
    column: list[int]
    value: list[float]
    upper: list[float]


@kernel
def new_rows(columns):
    """No rows yet."""
    touched, column = [0 for _ in range(0)], [0 for _ in range(0)]
    value, upper = [0.0 for _ in range(0)], [0.0 for _ in range(0)]
    return RowBuffer(np.zeros(columns), touched, np.zeros(2), [0], column, value, upper)


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
        rows.touched.append(column)
    rows.dense[column] += amount
    rows.total[1] += amount * x[column]


@kernel
def finish(rows, limit, by):
    """Keep the row in the making if x violates ``row <= limit`` by enough, and begin another."""
    if rows.total[1] > limit + by:
        for column in rows.touched:
            if abs(rows.dense[column]) > SMALL:
                rows.column.append(column)
                rows.value.append(rows.dense[column])
        rows.upper.append(limit - rows.total[0])
        rows.start.append(len(rows.column))
    for column in rows.touched:
        rows.dense[column] = 0.0
    rows.touched.clear()
    rows.total[:] = 0.0


@kernel
def finished(rows):
    """Start, column, value and upper of the finished rows."""
    start, column = np.array(rows.start), np.array(rows.column)
    return start, column, np.array(rows.value), np.array(rows.upper)
