"""Graphs without a model: chains, joins, random DAGs, the backward graph of a forward graph."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rematbench.base.errors import GraphError
from rematbench.base.limits import MOST_STEPS, shown
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op


def unit_chain(length: int) -> Graph:
    """``length`` forward layers of one byte and cost one, a loss, and their gradients.

    ``grad_i`` reads layer i and the gradient after it (for the last layer, the loss).

    >>> len(unit_chain(8).ops)
    17
    """
    check_length("unit_chain", length)
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


def check_length(what: str, length: int) -> None:
    """Raises GraphError, which says so, unless a chain can be that long."""
    if not 1 <= length <= MOST_STEPS:
        raise GraphError(f"{what}: length is {shown(length)}; give 1 to {MOST_STEPS}")


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


def join(lengths: Sequence[int]) -> Graph:
    """A join network (Beaumont et al., Figure 3): branches of unit steps that meet in the Turn.

    Branch j has the values ``x{j}_0`` to ``x{j}_l`` and the gradients ``g{j}_l`` to ``g{j}_0``,
    all of one byte. Steps have an in-place implementation (F and the Turn replace their inputs),
    so that a byte is a slot of the theory. The inputs are written by ops without cost, since
    the theory frees them; ``done{j}``, without bytes, stands for "gradient j was computed".

    Args:
        lengths: forward steps per branch, 0 or more.
    """
    if not lengths or any(type(n) is not int or n < 0 for n in lengths):
        raise GraphError(f"join: lengths are {list(lengths)}; give whole numbers, 0 or more")
    if sum(lengths) > MOST_STEPS:
        raise GraphError(
            f"join: lengths come to {shown(sum(lengths))} steps; give {MOST_STEPS} or fewer"
        )
    ops: list[Op] = []
    for j, length in enumerate(lengths):
        ops.append(simple_op(f"x{j}_0", Phase.FORWARD, [], [f"x{j}_0"], 0))
        ops += [
            _step(f"f{j}_{i}", Phase.FORWARD, [f"x{j}_{i}"], [f"x{j}_{i + 1}"])
            for i in range(length)
        ]
    ends = [f"x{j}_{length}" for j, length in enumerate(lengths)]
    starts = [f"g{j}_{length}" for j, length in enumerate(lengths)]
    idle = [f"done{j}" for j, length in enumerate(lengths) if not length]
    ops.append(_step("turn", Phase.LOSS, ends, [*starts, *idle]))
    for j, length in enumerate(lengths):
        for i in range(length - 1, -1, -1):
            done = [f"done{j}"] if i == 0 else []
            reads = [f"g{j}_{i + 1}", f"x{j}_{i}"]
            ops.append(_step(f"b{j}_{i}", Phase.BACKWARD, reads, [f"g{j}_{i}", *done], taken=1))
    values = tuple(
        Value(name, 0 if name.startswith("done") else 1) for op in ops for name in op.writes
    )
    name = f"join{'_'.join(map(str, lengths))}"
    return Graph(name, values, tuple(ops), tuple(f"done{j}" for j in range(len(lengths))))


def _step(
    name: str, phase: Phase, reads: list[str], writes: list[str], taken: int | None = None
) -> Op:
    """An op of cost one whose first ``taken`` reads (None: all) can be overwritten."""
    ways = (
        Implementation("default", tuple(reads), 1),
        Implementation("in_place", tuple(reads), 1, 0, tuple(reads[:taken])),
    )
    return Op(name, phase, tuple(writes), ways)
