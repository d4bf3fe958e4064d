"""A graph in integers and numpy arrays, for algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Rows:
    """Rows of integers of unequal length: row i is ``items[start[i]:start[i + 1]]``."""

    start: IntArray
    items: IntArray

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Rows:
        start = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=start[1:])
        return cls(start, np.array([i for row in rows for i in row], dtype=np.int64))

    def __getitem__(self, row: int) -> IntArray:
        return self.items[self.start[row] : self.start[row + 1]]

    def __len__(self) -> int:
        return len(self.start) - 1


@dataclass(frozen=True)
class Tables:
    """A graph in integers. Implementations are numbered through, in op order.

    Attributes:
        value_bytes, resident: per value.
        writer: op that writes each value; -1 for resident values.
        op_first: number of each op's default implementation; one longer than the ops.
        writes: values per op.
        op_of, cost, workspace: per implementation.
        reads: values per implementation (without repeats).
        overwritten_by: per implementation, one entry per write of its op: the value whose
            storage that write takes over, or -1.
        outputs: values that must be live at the end.
    """

    value_bytes: IntArray
    resident: NDArray[np.bool_]
    writer: IntArray
    op_first: IntArray
    writes: Rows
    op_of: IntArray
    cost: NDArray[np.float64]
    workspace: IntArray
    reads: Rows
    overwritten_by: Rows
    outputs: IntArray
