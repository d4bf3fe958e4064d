"""Linear programs for HiGHS, built from coordinate triples (row, column, value)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import highspy
import numpy as np

from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import IntArray

Column = int | np.int64
Term = tuple[Column, float]
"""(column, coefficient)."""


class SparseRows(NamedTuple):
    """Rows ``lower[i] <= sum(value[k] x[column[k]]) <= upper[i]``, k in start[i]:start[i + 1]."""

    lower: FloatArray
    upper: FloatArray
    start: IntArray
    column: IntArray
    value: FloatArray

    def followed_by(self, more: SparseRows) -> SparseRows:
        """These rows, then others."""
        both = (np.concatenate(pair) for pair in zip(self, more, strict=True))
        lower, upper, _, column, value = both
        start = np.append(self.start, self.start[-1] + more.start[1:])
        return SparseRows(lower, upper, start, column, value)

    def until(self, row: int) -> SparseRows:
        """The rows before number ``row``."""
        end = int(self.start[row])
        start = self.start[: row + 1]
        return SparseRows(
            self.lower[:row], self.upper[:row], start, self.column[:end], self.value[:end]
        )


class LinearProgram:
    """A sum over columns, to be minimised, and rows that they satisfy.

    Attributes:
        offset: added to the objective.
    """

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset
        self._columns: list[tuple[float, float, float, bool]] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._row: list[int] = []
        self._column: list[int] = []
        self._value: list[float] = []

    def column(
        self, cost: float = 0.0, integral: bool = False, lower: float = 0.0, upper: float = 1.0
    ) -> int:
        """A new column, and its number."""
        self._columns.append((cost, lower, upper, integral))
        return len(self._columns) - 1

    def row(self, terms: Iterable[Term], upper: float) -> int:
        """A new row, ``sum(terms) <= upper``, and its number; terms of one column add up.

        Here and below column -1 is zero.
        """
        total: dict[int, float] = {}
        for column, value in terms:
            if column >= 0:
                total[int(column)] = total.get(int(column), 0.0) + value
        number = len(self._upper)
        self._row += [number] * len(total)
        self._column += total.keys()
        self._value += total.values()
        self._lower.append(-highspy.kHighsInf)
        self._upper.append(upper)
        return number

    def at_most(
        self, left: Iterable[Column], right: Iterable[Column], constant: float = 0.0
    ) -> int:
        """A new row, ``sum of left <= sum of right + constant``, and its number."""
        terms = [(column, 1.0) for column in left] + [(column, -1.0) for column in right]
        return self.row(terms, constant)

    def rows(
        self, lower: float, upper: float, columns: Sequence[IntArray], values: Sequence[float]
    ) -> None:
        """Rows of one shape, ``lower <= sum(values[k] x[columns[k][i]]) <= upper`` for all i."""
        column = np.stack(columns, axis=1)
        count = len(column)
        row, term = np.nonzero(column >= 0)
        value = np.array(values)[term]
        self.triples(np.full(count, lower), np.full(count, upper), row, column[row, term], value)

    def triples(
        self, lower: FloatArray, upper: FloatArray, row: IntArray, column: IntArray, value: Any
    ) -> None:
        """New rows, numbered from 0 on, by the coordinates of what is not zero in them."""
        self._row += (row + len(self._upper)).tolist()
        self._column += column.tolist()
        self._value += value.tolist()
        self._lower += lower.tolist()
        self._upper += upper.tolist()

    def raise_rows(self, rows: IntArray, by: float) -> FloatArray:
        """Add to the upper limits of rows; what they are then."""
        for row in rows.tolist():
            self._upper[row] += by
        return self.upper[rows]

    def raise_columns(self, columns: IntArray, by: float) -> FloatArray:
        """Add to the upper limits of columns; what they are then."""
        for number in columns.tolist():
            cost, lower, upper, integral = self._columns[number]
            self._columns[number] = cost, lower, upper + by, integral
        return np.array([self._columns[number][2] for number in columns.tolist()])

    @property
    def upper(self) -> FloatArray:
        """Per row, its upper limit."""
        return np.array(self._upper)

    @property
    def columns(self) -> FloatArray:
        """Costs, lower and upper limits, by column."""
        return np.array(self._columns, dtype=np.float64).reshape(-1, 4)[:, :3].T.copy()

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and non-zeros."""
        counts = len(self._upper), len(self._columns), len(self._value)
        return dict(zip(("rows", "columns", "nonzeros"), counts, strict=True))

    @property
    def matrix(self) -> SparseRows:
        """All rows."""
        row = np.array(self._row, dtype=np.int64)
        order = np.argsort(row, kind="stable")
        lower, upper = np.array(self._lower), self.upper
        start = np.searchsorted(row[order], np.arange(len(upper) + 1))
        column = np.array(self._column, dtype=np.int64)[order]
        return SparseRows(lower, upper, start, column, np.array(self._value)[order])

    def lp(self, integral: bool, rows: SparseRows | None = None) -> highspy.HighsLp:
        """What HiGHS takes; without integrality, its linear relaxation.

        Args:
            rows: :attr:`matrix`, where the caller has it.
        """
        lp, rows = highspy.HighsLp(), self.matrix if rows is None else rows
        cost, lower, upper = self.columns
        lp.num_col_, lp.num_row_ = len(cost), len(rows.upper)
        lp.offset_, lp.col_cost_ = self.offset, cost
        lp.col_lower_, lp.col_upper_ = lower, upper
        lp.row_lower_, lp.row_upper_ = rows.lower, rows.upper
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = lp.num_row_, lp.num_col_
        lp.a_matrix_.start_ = rows.start.astype(np.int32)
        lp.a_matrix_.index_ = rows.column.astype(np.int32)
        lp.a_matrix_.value_ = rows.value
        if integral:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[is_integral] for *_, is_integral in self._columns]
        return lp
