"""Graphs that several tests use."""

from __future__ import annotations

import numpy as np

from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import Plan, with_frees
from rematbench.graphs.synthetic import with_backward


def diamond() -> Graph:
    """a -> b -> d, a -> c -> d, d -> e."""
    edges = {"a": ["x"], "b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["d"]}
    ops = tuple(simple_op(n, Phase.FORWARD, reads, [n], 1) for n, reads in edges.items())
    values = (Value("x", 4, True), *(Value(n, 2) for n in edges))
    return with_backward(Graph("diamond", values, ops, ("e",)))


def recompute_everything(graph: Graph) -> Plan:
    """The forward pass twice, then the backward pass."""
    first = graph.tables.op_first[:-1]
    loss = graph.loss_index
    assert loss is not None
    sequence = np.concatenate([first[: loss + 1], first[:loss], first[loss + 1 :]])
    return Plan.from_codes(graph, with_frees(graph, sequence))
