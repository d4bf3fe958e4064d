"""Retention intervals of a sequence of computes, cut at each read: what may be bridged by the host.

A *copy* of a value lives from a compute to its last read before the next compute. Between two
touches that are not neighbours lies a *gap*: the copy is kept there, or the host bridges it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.plans.stages import BoolArray, FloatArray
from rematbench.graphs.ir import Graph, IntArray


@dataclass(frozen=True)
class Sequence:
    """Computes in order, with all their gaps; positions count computes.

    Attributes:
        graph: of the computes.
        computes: implementation numbers; none overwrites what it reads.
        value, made, begin, end: per gap: its value, where its copy was computed, and the touches
            that it lies between. Gaps are in the order of ``begin``.
        ends: (position, value) of each copy's last touch, where it is freed.
        levels: bytes on the device during each compute, where no gap is bridged.
    """

    graph: Graph
    computes: IntArray
    value: IntArray
    made: IntArray
    begin: IntArray
    end: IntArray
    ends: IntArray
    levels: IntArray

    @classmethod
    def of(cls, graph: Graph, computes: IntArray) -> Sequence:
        """All gaps of a valid sequence."""
        computes = np.ascontiguousarray(computes, dtype=np.int64)
        found, stops, levels = _touches(computes, graph.tables)
        gaps = np.array(found, dtype=np.int64).reshape(-1, 4)
        ends = np.array(stops, dtype=np.int64).reshape(-1, 2)
        gaps = gaps[np.argsort(gaps[:, 2], kind="stable")]
        value, made, begin, end = (np.ascontiguousarray(gaps[:, k]) for k in range(4))
        levels = levels + graph.resident_bytes
        return cls(graph, computes, value, made, begin, end, ends, levels)

    @cached_property
    def sizes(self) -> IntArray:
        """Bytes per gap."""
        return self.graph.tables.value_bytes[self.value]

    @cached_property
    def costs(self) -> FloatArray:
        """Cost per compute."""
        return self.graph.tables.cost[self.computes]

    def levels_with(self, bridged: BoolArray) -> IntArray:
        """Bytes on the device during each compute, where bridged gaps hold nothing."""
        less = np.zeros(len(self.computes) + 1, dtype=np.int64)
        np.add.at(less, self.begin[bridged] + 1, self.sizes[bridged])
        np.subtract.at(less, self.end[bridged], self.sizes[bridged])
        found: IntArray = self.levels - np.cumsum(less)[:-1]
        return found


@kernel
def _touches(computes, tables):
    """Lists of (value, made, begin, end) of gaps and (position, value) of last touches; levels."""
    count, values = computes.size, tables.value_bytes.size
    made = np.full(values, -1, dtype=np.int64)
    last = np.full(values, -1, dtype=np.int64)
    gaps = [(0, 0, 0, 0)][:0]
    ends = [(0, 0)][:0]
    change = np.zeros(count + 1, dtype=np.int64)
    more = np.zeros(count, dtype=np.int64)
    for k in range(count):
        i = computes[k]
        op = tables.op_of[i]
        more[k] = tables.workspace[i]
        for j in range(tables.reads.start[i], tables.reads.start[i + 1]):
            v = tables.reads.items[j]
            if k > last[v] + 1 and not tables.resident[v]:
                gaps.append((v, made[v], last[v], k))
            last[v] = k
        for j in range(tables.writes.start[op], tables.writes.start[op + 1]):
            v = tables.writes.items[j]
            if made[v] >= 0:
                _end(v, made, last, change, ends, tables.value_bytes)
            made[v] = last[v] = k
    for v in np.flatnonzero(made >= 0):
        if tables.is_output[v]:
            change[made[v]] += tables.value_bytes[v]
        else:
            _end(v, made, last, change, ends, tables.value_bytes)
    return gaps, ends, np.cumsum(change)[:-1] + more


@kernel
def _end(v, made, last, change, ends, value_bytes):
    """A copy's last touch is known."""
    ends.append((last[v], v))
    change[made[v]] += value_bytes[v]
    change[last[v] + 1] -= value_bytes[v]
