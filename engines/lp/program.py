"""Linear programs for HiGHS, built from coordinate triples (row, column, value)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import highspy
import numpy as np
from numpy.typing import NDArray

from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import IntArray

Column = int | np.int64
Term = tuple[Column, float]
"""(column, coefficient)."""
Triples = tuple[IntArray, IntArray, FloatArray]
"""Rows, columns and coefficients."""


class SparseRows(NamedTuple):
    """Rows ``lower[i] <= sum(value[k] x[column[k]]) <= upper[i]``, k in start[i]:start[i + 1]."""

    lower: FloatArray
    upper: FloatArray
    start: IntArray
    column: NDArray[np.int32]
    value: FloatArray

    def followed_by(self, more: SparseRows) -> SparseRows:
        """These rows, then others."""
        return SparseRows(
            np.append(self.lower, more.lower),
            np.append(self.upper, more.upper),
            np.append(self.start, self.start[-1] + more.start[1:]),
            np.append(self.column, more.column),
            np.append(self.value, more.value),
        )

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
        self._counts: list[int] = []  # of what is not zero, by row
        self._column: list[int] = []
        self._value: list[float] = []
        self._entries: list[tuple[NDArray[np.int32], FloatArray]] = []  # before those two lists

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
        self._counts.append(len(total))
        self._column += total.keys()
        self._value += total.values()
        self._lower.append(-highspy.kHighsInf)
        self._upper.append(upper)
        return len(self._upper) - 1

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
        self._gather()
        order = np.argsort(row, kind="stable")
        self._entries.append((column[order].astype(np.int32), value[order]))
        self._counts += np.bincount(row, minlength=len(upper)).tolist()
        self._lower += lower.tolist()
        self._upper += upper.tolist()

    def _gather(self) -> None:
        column, value = np.array(self._column, dtype=np.int32), np.array(self._value, dtype=float)
        self._entries.append((column, value))
        self._column, self._value = [], []

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
        counts = len(self._upper), len(self._columns), sum(self._counts)
        return dict(zip(("rows", "columns", "nonzeros"), counts, strict=True))

    @property
    def matrix(self) -> SparseRows:
        """All rows."""
        self._gather()
        column, value = map(np.concatenate, zip(*self._entries, strict=True))
        self._entries = [(column, value)]
        start = np.append(0, np.cumsum(self._counts, dtype=np.int64))
        return SparseRows(np.array(self._lower), self.upper, start, column, value)

    def pass_to(self, highs: highspy.Highs, integral: bool, rows: SparseRows | None = None) -> None:
        """Make it HiGHS's model; without integrality, its linear relaxation.

        Args:
            rows: :attr:`matrix`, where the caller has it.
        """
        rows = self.matrix if rows is None else rows
        cost, lower, upper = self.columns
        kinds = [integral and is_integral for *_, is_integral in self._columns]
        highs.passModel(
            len(self._columns),
            len(rows.upper),
            len(rows.value),
            int(highspy.MatrixFormat.kRowwise),
            int(highspy.ObjSense.kMinimize),
            self.offset,
            cost,
            lower,
            upper,
            rows.lower,
            rows.upper,
            rows.start[:-1].astype(np.int32),
            rows.column,
            rows.value,
            np.array(kinds, dtype=np.int32),
        )
