"""Graphs that several tests use."""

from __future__ import annotations

import re

import numpy as np

from rematbench.graphs.builders.synthetic import with_backward
from rematbench.graphs.ir import Graph, Op, Phase, Value, simple_op
from rematbench.graphs.plan import Plan


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
    return Plan.of_computes(graph, sequence)


def weights(layers: int) -> Graph:
    """A chain whose backward pass makes a large weight gradient, an output, per layer."""
    values, ops = [Value("x", 1, resident=True)], list[Op]()
    before = "x"
    for i in range(layers):
        values.append(Value(f"a{i}", 2))
        ops.append(simple_op(f"a{i}", Phase.FORWARD, [before], [f"a{i}"], 1))
        before = f"a{i}"
    values.append(Value("loss", 2))
    ops.append(simple_op("loss", Phase.LOSS, [before], ["loss"], 1))
    before = "loss"
    for i in reversed(range(layers)):
        values += [Value(f"w{i}", 10), Value(f"g{i}", 2)]
        reads = [before, f"a{i - 1}" if i else "x"]
        ops.append(simple_op(f"w{i}", Phase.BACKWARD, reads, [f"w{i}"], 1))
        ops.append(simple_op(f"g{i}", Phase.BACKWARD, [before], [f"g{i}"], 1))
        before = f"g{i}"
    return Graph("weights", tuple(values), tuple(ops), (*(f"w{i}" for i in range(layers)), "g0"))


def without_progress(text: str) -> str:
    """What a command said, less the lines that it says every ten seconds: on a busy machine."""
    return re.sub(r"(?m)^ *\d+ s  .*\n", "", text)
