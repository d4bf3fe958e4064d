"""An op's outputs as one node's memory, as programs with a variable per op and stage count it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.engines.plans.stages import needed
from rematbench.graphs.ir import Graph
from rematbench.graphs.tables import IntArray


class NodeBytes(NamedTuple):
    """Bytes of what an op writes.

    Attributes:
        memory: that are kept or freed together.
        pinned: of outputs of the graph beside other values; they stay once they are there.
        unread: that nobody reads.
        is_output: must the node be there at the end?
    """

    memory: int
    pinned: int
    unread: int
    is_output: bool


def node_bytes(graph: Graph) -> list[NodeBytes]:
    """Per needed op."""
    ops, tables = needed(graph), graph.tables
    read = np.zeros(len(graph.values), dtype=bool)
    read[tables.inputs.picked(ops).items] = True

    def of(written: IntArray) -> NodeBytes:
        size, is_output = tables.value_bytes, tables.is_output
        outputs = written[is_output[written]]
        kept = written[read[written] & ~is_output[written]]
        unread = int(size[written[~read[written] & ~is_output[written]]].sum())
        if len(outputs) and not size[kept].any():
            return NodeBytes(int(size[outputs].sum()), 0, unread, True)
        return NodeBytes(int(size[kept].sum()), int(size[outputs].sum()), unread, False)

    return [of(tables.writes[op]) for op in ops]
