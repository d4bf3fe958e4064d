"""A linear program, column by column and row by row, for HiGHS."""

from __future__ import annotations

from collections.abc import Iterable

import highspy
import numpy as np

Term = tuple[int, float]
"""(column, coefficient)."""


class Program:
    """Columns between 0 and 1, and rows ``sum(terms) <= upper``."""

    def __init__(self) -> None:
        self.cost: list[float] = []
        self.integral: list[bool] = []
        self._upper: list[float] = []
        self._start: list[int] = [0]
        self._column: list[int] = []
        self._value: list[float] = []

    def column(self, cost: float = 0.0, integral: bool = False) -> int:
        """A new column."""
        self.cost.append(cost)
        self.integral.append(integral)
        return len(self.cost) - 1

    def most(self, terms: Iterable[Term], upper: float) -> int:
        """A new row, ``sum(terms) <= upper``; terms of one column add up."""
        total: dict[int, float] = {}
        for column, value in terms:
            total[column] = total.get(column, 0.0) + value
        self._column += total.keys()
        self._value += total.values()
        self._start.append(len(self._column))
        self._upper.append(upper)
        return len(self._upper) - 1

    @property
    def size(self) -> dict[str, int]:
        """Rows, columns and non-zeros."""
        return {
            "rows": len(self._upper),
            "columns": len(self.cost),
            "nonzeros": len(self._column),
        }

    def lp(self, integral: bool) -> highspy.HighsLp:
        """What HiGHS takes."""
        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = len(self.cost), len(self._upper)
        lp.col_cost_ = np.array(self.cost)
        lp.col_lower_, lp.col_upper_ = np.zeros(len(self.cost)), np.ones(len(self.cost))
        lp.row_lower_ = np.full(len(self._upper), -highspy.kHighsInf)
        lp.row_upper_ = np.array(self._upper)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.num_row_, lp.a_matrix_.num_col_ = lp.num_row_, lp.num_col_
        lp.a_matrix_.start_ = np.array(self._start, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(self._column, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(self._value)
        if integral:
            kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
            lp.integrality_ = [kinds[is_integral] for is_integral in self.integral]
        return lp
