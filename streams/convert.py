"""From event streams to graphs and back.

A log's Graph lets every static strategy plan for what a dynamic model did; a Graph's stream lets
an online strategy play it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from math import isfinite

import numpy as np

from rematbench.base.errors import GraphError
from rematbench.graphs.ir import Graph, Op, Phase, Value, simple_op
from rematbench.graphs.plan import with_frees
from rematbench.streams.events import Call, Constant, Event, EventStream, Release, Result
from rematbench.streams.ids import Resolved, StreamOp, resolve

_EXACT_COST = 2**50  # three times as much still is exact in a double
_SCALED_COST = 2**40


def graph_of_stream(stream: EventStream | Resolved) -> Graph:
    """The graph of a log.

    A storage is a value, a constant a resident one. Aliases are folded into their storage: who
    reads a view reads the storage, and the cost of the view is added to the op that makes the
    storage (views of constants, which nobody ever makes again, cost nothing). Mutations write
    new values. A value lives until its last read, or to the end where the log does not release
    it (simrd's output condition). The last op before the annotation BACKWARD is the loss;
    without one, all ops are forward ops.

    Raises:
        GraphError: the stream is malformed, or keeps nothing.
    """
    source = stream if isinstance(stream, Resolved) else resolve(stream)
    names = _value_names(source)
    constants = {op.outputs[0] for op in source.ops if op.name is None}
    values = [Value(names[i], s.bytes, s.root in constants) for i, s in enumerate(source.storages)]
    kept = dict.fromkeys(source.tensors[t].storage for t in source.kept())
    outputs = [names[s] for s in kept if source.storages[s].root not in constants]
    if not outputs:
        raise GraphError(
            f"{source.stream.path or source.stream.name}: every result is released; drop the "
            "RELEASE of what the step is for (the loss, the gradients)"
        )
    ops = _graph_ops(source, names)
    return Graph(source.stream.name, tuple(values), ops, tuple(outputs), source.stream.cost_unit)


def _value_names(source: Resolved) -> list[str]:
    """A storage has the first name of its root, numbered where a mutation reuses it."""
    seen: Counter[str] = Counter()
    found = []
    for storage in source.storages:
        name = source.names[storage.root]
        found.append(f"{name}.{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def _graph_ops(source: Resolved, names: list[str]) -> tuple[Op, ...]:
    made: dict[int, list[int]] = {}  # op -> its new storages
    costs: Counter[int] = Counter()
    for i, op in enumerate(source.ops):
        new = _new_storages(source, op)
        if new:
            costs[i] += op.cost
        else:
            viewed = source.storages[source.tensors[op.outputs[0]].storage]
            costs[source.tensors[viewed.root].op] += op.cost
        if new and op.name is not None:
            made[i] = new
    phases = _phases(source, list(made))
    ops = []
    for i, new in made.items():
        op = source.ops[i]
        reads = dict.fromkeys(names[source.tensors[t].storage] for t in op.arguments)
        writes = [names[s] for s in new]
        cost, space = costs[i], op.workspace_bytes
        ops.append(simple_op(f"{op.name}.{i}", phases[i], reads, writes, cost, space, op.name))
    return tuple(ops)


def _phases(source: Resolved, ops: list[int]) -> dict[int, Phase]:
    """The phase of each op: what is marked as backward, the last op before that, and the rest."""
    border = len(source.ops) if source.backward_op is None else source.backward_op
    phases = {i: Phase.FORWARD if i < border else Phase.BACKWARD for i in ops}
    before = [i for i in ops if i < border]
    if before and source.backward_op is not None:
        phases[before[-1]] = Phase.LOSS
    return phases


def _new_storages(source: Resolved, op: StreamOp) -> list[int]:
    found = ((source.tensors[t].storage, t) for t in op.outputs)
    return [storage for storage, t in found if source.storages[storage].root == t]


@dataclass(frozen=True, eq=False)
class GraphStream:
    """A graph as a stream.

    Attributes:
        stream: a constant per resident value, then a call per needed op in program order, and a
            release after the last read of each value that is no output.
        computes: per call, its implementation's number in the graph.
        residents: how many constants there are.
    """

    stream: EventStream
    computes: tuple[int, ...]
    residents: int


def stream_of_graph(graph: Graph) -> GraphStream:
    """The stream of checkpoint-all on ``graph``.

    Each op runs in its first implementation that overwrites nothing, since a stream knows of
    no storage that changes hands. Costs become whole numbers: as they are where they are whole
    and not too large, else in units of 2^-40 of their sum.

    Raises:
        GraphError: an op has only implementations that overwrite what they read.
    """
    chosen = _pure_implementations(graph)
    tables = graph.tables
    costs, unit = _whole_costs(graph)
    events: list[Event] = [Constant(v.name, v.bytes) for v in graph.values if v.resident]
    residents = len(events)
    codes = with_frees(graph, chosen[graph.needed_ops()]).tolist()
    for code in codes:
        if code < 0:
            events.append(Release(graph.values[~code].name))
            continue
        op = graph.ops[tables.op_of[code]]
        results = [Result(name, graph.values[graph.value_index[name]].bytes) for name in op.writes]
        reads = tuple(graph.values[v].name for v in tables.reads[code].tolist())
        events.append(
            Call(op.name, reads, tuple(results), costs[code], int(tables.workspace[code]))
        )
    computes = tuple(code for code in codes if code >= 0)
    return GraphStream(EventStream(tuple(events), graph.name, unit), computes, residents)


def _whole_costs(graph: Graph) -> tuple[list[int], str]:
    """The cost of each implementation as a whole number, and the unit of these."""
    costs = [float(cost) for cost in graph.tables.cost]
    total = sum(costs)
    if all(cost.is_integer() for cost in costs) and total < _EXACT_COST:
        return [int(cost) for cost in costs], graph.cost_unit
    scale = _SCALED_COST / total
    unit = f"{1 / scale:g} {graph.cost_unit}"
    if not isfinite(scale):  # of costs so small that only their ratios are numbers
        costs, scale = [cost / total for cost in costs], _SCALED_COST
        unit = f"{total / _SCALED_COST:g} {graph.cost_unit}"
    return [round(cost * scale) for cost in costs], unit


def _pure_implementations(graph: Graph) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    chosen = np.array(graph.tables.op_first[:-1])
    for number, op in enumerate(graph.ops):
        pure = (
            k
            for k, implementation in enumerate(op.implementations)
            if not implementation.overwrites
        )
        found = next(pure, None)
        if found is None:
            raise GraphError(
                f"graph {graph.name!r}: op {op.label} always overwrites what it reads, which a "
                "stream cannot tell; give it an implementation that does not"
            )
        chosen[number] += found
    return chosen
