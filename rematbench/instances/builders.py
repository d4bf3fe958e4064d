"""Graphs of the library that no model of the command line makes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.ir import Graph, Op, Phase, Value


def uneven_chain(length: int, seed: int) -> Graph:
    """A chain whose layers differ: sizes from 2^0 to 2^12 bytes, costs from 1 to 1000.

    A layer's gradient has its size and twice its cost.

    >>> len(uneven_chain(8, 0).ops)
    17
    """
    random = np.random.default_rng(seed)
    graph = unit_chain(length)
    sizes = np.rint(2 ** random.uniform(0, 12, length)).astype(int).tolist()
    costs = random.integers(1, 1000, length).tolist()
    place = {f"layer{i}": i for i in range(length)}

    def sized(value: Value) -> Value:
        layer = place.get(value.name.removeprefix("grad_"))
        return value if layer is None else replace(value, bytes=sizes[layer])

    def costed(op: Op) -> Op:
        layer = place.get(op.name.removeprefix("grad_"))
        if layer is None:
            return op
        cost = costs[layer] * (2 if op.phase is Phase.BACKWARD else 1)
        return replace(op, implementations=(replace(op.implementations[0], cost=cost),))

    values, ops = tuple(map(sized, graph.values)), tuple(map(costed, graph.ops))
    return Graph(f"uneven_chain{length}", values, ops, graph.outputs, graph.cost_unit)


def only_forward(length: int, seed: int) -> Graph:
    """The forward part of :func:`~rematbench.graphs.builders.synthetic.random_graph`."""
    graph = random_graph(length, seed, edges_per_op=2.5)
    sinks = graph.ops[length].reads  # of the loss
    values = graph.values[: length + 1]  # the input's, too
    return Graph(f"random{length}_forward", values, graph.ops[:length], sinks, graph.cost_unit)
