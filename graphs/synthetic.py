"""Graphs without a model: unit chains, random DAGs, and the backward graph of a forward graph."""

from __future__ import annotations

import numpy as np

from graphs.errors import GraphError
from graphs.ir import Graph, Op, Phase, Value, simple_op


def unit_chain(length: int) -> Graph:
    """``length`` forward layers of one byte and cost one, a loss, and their gradients.

    ``grad_i`` reads layer i and the gradient after it (for the last layer, the loss).

    >>> len(unit_chain(8).ops)
    17
    """
    if length < 1:
        raise GraphError(f"unit_chain: length is {length}; give 1 or more")
    layers = [f"layer{i}" for i in range(length)]
    ops = [
        simple_op(name, Phase.FORWARD, layers[i - 1 : i] if i else [], [name], 1)
        for i, name in enumerate(layers)
    ]
    ops.append(simple_op("loss", Phase.LOSS, [layers[-1]], ["loss"], 1))
    after = "loss"
    for name in reversed(layers):
        ops.append(simple_op(f"grad_{name}", Phase.BACKWARD, [name, after], [f"grad_{name}"], 1))
        after = f"grad_{name}"
    values = tuple(Value(op.name, 1) for op in ops)
    return Graph(f"unit_chain{length}", values, tuple(ops), (after,))


def with_backward(graph: Graph) -> Graph:
    """Add a loss and gradients to a forward-only graph; other graphs come back as they are.

    ``loss`` (no bytes, no cost) reads the sinks, the graph's outputs. ``grad_v`` reads v, all
    that its readers write, and their gradients (for a sink, ``loss``); it has v's bytes and
    twice its cost. The gradients of the sources, and the loss, are the outputs.

    Raises:
        GraphError: a forward op writes several values, or uses the name of a new op.
    """
    if graph.loss_index is not None:
        return graph
    for op in graph.ops:
        if len(op.writes) != 1:
            raise GraphError(
                f"graph {graph.name!r}: op {op.name!r} writes {len(op.writes)} values; a backward "
                "graph is only derived for ops that write one"
            )
    size = {value.name: value.bytes for value in graph.values}
    resident = {value.name for value in graph.values if value.resident}
    readers: dict[str, list[str]] = {name: [] for name in size}
    for op in graph.ops:
        for name in op.reads:
            readers[name].append(op.writes[0])
    sinks = [op.writes[0] for op in graph.ops if not readers[op.writes[0]]]
    loss = simple_op("loss", Phase.LOSS, sinks, ["loss"], 0)
    backward = [_gradient(op, readers[op.writes[0]]) for op in reversed(graph.ops)]
    sources = [f"grad_{op.writes[0]}" for op in graph.ops if set(op.reads) <= resident]
    values = [Value("loss", 0), *(Value(op.name, size[op.name[5:]]) for op in backward)]
    return Graph(
        graph.name,
        (*graph.values, *values),
        (*graph.ops, loss, *backward),
        ("loss", *sources),
        graph.cost_unit,
    )


def _gradient(op: Op, readers: list[str]) -> Op:
    value = op.writes[0]
    gradients = [f"grad_{reader}" for reader in readers] or ["loss"]
    reads = [value, *readers, *gradients]
    return simple_op(f"grad_{value}", Phase.BACKWARD, reads, [f"grad_{value}"], 2 * op.cost)


def random_graph(length: int, seed: int, edges_per_op: float = 1.5) -> Graph:
    """A random forward DAG of ``length`` ops, with its backward graph.

    Sizes and costs are small whole numbers; every op but the first reads at least one other.
    """
    if length < 1:
        raise GraphError(f"random_graph: length is {length}; give 1 or more")
    random = np.random.default_rng(seed)
    ops, values = [], [Value("x", int(random.integers(1, 20)), resident=True)]
    for i in range(length):
        count = min(i, 1 + random.poisson(max(0.0, edges_per_op - 1)))
        near = [f"v{i - int(d)}" for d in random.geometric(0.5, count) if d <= i]
        reads = list(dict.fromkeys(near)) or [f"v{i - 1}" if i else "x"]
        ops.append(simple_op(f"v{i}", Phase.FORWARD, reads, [f"v{i}"], int(random.integers(1, 10))))
        values.append(Value(f"v{i}", int(random.integers(1, 100))))
    forward = Graph(f"random{length}_{seed}", tuple(values), tuple(ops), (f"v{length - 1}",))
    return with_backward(forward)
