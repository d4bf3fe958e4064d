"""A graph in integers and numpy arrays, for algorithms; kernels take these tuples whole."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


class Rows(NamedTuple):
    """Rows of integers of unequal length: row i is ``items[start[i]:start[i + 1]]``.

    ``rows[i]`` is row i and ``len(rows)`` counts rows, outside of kernels; there are the fields.

    >>> rows = Rows.of([[4, 2], [], [7]])
    >>> rows[0].tolist(), len(rows), rows.picked([2, 0]).items.tolist()
    ([4, 2], 3, [7, 4, 2])
    """

    start: IntArray
    items: IntArray

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Rows:
        """Of lists."""
        rows = list(rows)
        start = np.zeros(len(rows) + 1, dtype=np.int64)
        np.cumsum([len(row) for row in rows], out=start[1:])
        return cls(start, np.array([i for row in rows for i in row], dtype=np.int64))

    # A tuple's items are its two arrays; what people ask for by number are rows.
    def __getitem__(self, row: int) -> IntArray:  # type: ignore[override]
        return self.items[self.start[row] : self.start[row + 1]]

    def __len__(self) -> int:
        return self.start.size - 1

    @property
    def row_of(self) -> IntArray:
        """Per item, its row."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def stretch(self, low: int, high: int) -> IntArray:
        """The items of rows low to high, without high."""
        return self.items[self.start[low] : self.start[high]]

    def lists(self) -> list[list[int]]:
        """All rows."""
        items = self.items.tolist()
        return [items[a:b] for a, b in pairwise(self.start.tolist())]

    def picked(self, numbers: Sequence[int] | IntArray) -> Rows:
        """Some of the rows, in the given order."""
        numbers = np.asarray(numbers, dtype=np.int64)
        count = self.start[numbers + 1] - self.start[numbers]
        start = np.concatenate([[0], np.cumsum(count)]).astype(np.int64)
        shift = np.repeat(self.start[numbers] - start[:-1], count)
        return Rows(start, self.items[shift + np.arange(len(shift))])

    def numbered(self, number: IntArray) -> Rows:
        """The same rows by other numbers, one per item; items whose number is -1 are left out."""
        items = number[self.items]
        before = np.concatenate([[0], np.cumsum(items >= 0)]).astype(np.int64)
        return Rows(before[self.start], items[items >= 0])

    def transposed(self, count: int) -> Rows:
        """Per item, of which there are ``count``, the rows that hold it, ascending."""
        ends = np.cumsum(np.bincount(self.items, minlength=count), dtype=np.int64)
        order = np.argsort(self.items, kind="stable")
        return Rows(np.concatenate([[0], ends]).astype(np.int64), self.row_of[order])


class Tables(NamedTuple):
    """A graph in integers. Implementations are numbered through, in op order.

    Attributes:
        value_bytes, resident: per value.
        writer: op that writes each value; -1 for resident values.
        is_read: per value, does any implementation read it?
        is_output: per value, must it be live at the end?
        outputs: the values that must.
        op_first: number of each op's default implementation; one longer than the ops.
        forward, backward: per op, is it of this phase?
        loss: the loss op, or -1.
        inputs: values that each op's default implementation reads (without repeats).
        writes: values per op.
        op_of, cost, workspace: per implementation.
        reads: values per implementation (without repeats).
        overwritten_by: per implementation, one entry per write of its op: the value whose
            storage that write takes over, or -1.
    """

    value_bytes: IntArray
    resident: NDArray[np.bool_]
    writer: IntArray
    is_read: NDArray[np.bool_]
    is_output: NDArray[np.bool_]
    outputs: IntArray
    op_first: IntArray
    forward: NDArray[np.bool_]
    backward: NDArray[np.bool_]
    loss: int
    inputs: Rows
    writes: Rows
    op_of: IntArray
    cost: NDArray[np.float64]
    workspace: IntArray
    reads: Rows
    overwritten_by: Rows
