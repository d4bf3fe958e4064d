"""The forward network that Feng & Huang plan on, taken from a training graph.

A vertex is a forward op that the loss depends on; its bytes are those of its outputs that some op
reads, so that what only leaves the step (new running statistics) does not count. Parameters are
no vertices. The batch input is the source; its bytes never count.
"""

from __future__ import annotations

from dataclasses import dataclass

from rematbench.base.errors import NotApplicable
from rematbench.graphs.ir import Graph
from rematbench.graphs.structure import forward_ops
from rematbench.strategies.feng_huang.segments import Edge

# Of an op with several outputs, those below this share of its bytes (running statistics that
# the next call of a shared layer reads) are kept instead of tying two segments together.
_SIDE_OUTPUT_SHARE = 0.01

_Edges = list[tuple[int, int]]
_Values = list[tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Network:
    """A graph with one source (vertex 0) and one target (the last vertex).

    Attributes:
        costs: bytes per vertex.
        edges: pairs (from, to), from < to.
        values: per vertex, the values to keep if it is a checkpoint (indices in the graph).
        kept: values that are always kept: small side outputs and constants.
        kept_bytes: of ``kept``; part of every objective.
    """

    costs: tuple[int, ...]
    edges: tuple[Edge, ...]
    values: tuple[tuple[int, ...], ...]
    kept: tuple[int, ...]
    kept_bytes: int

    @property
    def is_linear(self) -> bool:
        """Is it a chain?"""
        return set(self.edges) == {(v, v + 1) for v in range(len(self.costs) - 1)}


@dataclass(frozen=True, slots=True)
class _ForwardNetwork:
    """Forward ops that the loss depends on: per op its residents, its reads, counted outputs."""

    residents: dict[int, set[int]]
    reads: dict[int, set[int]]
    outputs: dict[int, list[int]]

    def written(self, op: int, kept: set[int]) -> tuple[int, ...]:
        """What an op writes, apart from what is kept aside."""
        return tuple(v for v in self.outputs[op] if v not in kept)


def forward_network(graph: Graph) -> Network:
    """Vertices and edges of the forward part of ``graph``.

    A resident that is the only one read in the forward part is the source, with an edge to each
    of its readers. Among several residents most are parameters, so that only ops without any
    other read start at the source, apart from constants: ops that depend on no resident, and
    later ones whose readers all read something else too (a position embedding, a mask).

    Raises:
        NotApplicable: no forward op leads to the loss.
    """
    forward = _forward(graph)
    if not forward.reads:
        raise NotApplicable(f"graph {graph.name!r} has no forward op that the loss depends on")
    residents = set().union(*forward.residents.values())
    constants = _constants(graph, forward) if len(residents) > 1 else set()
    kept = {v for op in constants for v in forward.outputs[op]} | _side_outputs(graph, forward)
    ops = [op for op in forward.reads if op not in constants]
    number = {op: i for i, op in enumerate(ops)}
    reads = [forward.reads[op] - kept for op in ops]
    edges = [(number[int(graph.tables.writer[v])], i) for i, read in enumerate(reads) for v in read]
    values = [forward.written(op, kept) for op in ops]
    entries = [i for i, read in enumerate(reads) if not read]
    if residents or len(entries) > 1:
        starts = [number[op] for op in ops if len(residents) == 1 and forward.residents[op]]
        edges, values = _with_source(edges, values, {*entries, *starts})
    edges, values = _with_sink(edges, values)
    size = graph.tables.value_bytes
    costs = tuple(int(size[list(written)].sum()) for written in values)
    kept_bytes = int(size[sorted(kept)].sum())
    return Network(costs, tuple(sorted(set(edges))), tuple(values), tuple(sorted(kept)), kept_bytes)


def _with_source(edges: _Edges, values: _Values, starts: set[int]) -> tuple[_Edges, _Values]:
    """The network behind a source of its own, vertex 0, which leads to ``starts``."""
    moved = [(u + 1, v + 1) for u, v in edges]
    return moved + [(0, v + 1) for v in starts], [(), *values]


def _with_sink(edges: _Edges, values: _Values) -> tuple[_Edges, _Values]:
    """The network with one sink, of its own where there are several."""
    sinks = sorted({*range(len(values))} - {u for u, _ in edges})
    if len(sinks) < 2:
        return edges, values
    return edges + [(sink, len(values)) for sink in sinks], [*values, ()]


def _forward(graph: Graph) -> _ForwardNetwork:
    tables = graph.tables
    forward = _ForwardNetwork({}, {}, {})
    for op in forward_ops(graph).tolist():
        reads, written = tables.inputs[op], tables.writes[op]
        forward.residents[op] = set(reads[tables.resident[reads]].tolist())
        forward.reads[op] = set(reads[~tables.resident[reads]].tolist())
        counted = written[tables.is_read[written]]
        forward.outputs[op] = (counted if len(counted) else written).tolist()
    return forward


def _constants(graph: Graph, forward: _ForwardNetwork) -> set[int]:
    writer = graph.tables.writer
    readers: dict[int, list[int]] = {op: [] for op in forward.reads}
    for op, reads in forward.reads.items():
        for v in reads:
            readers[int(writer[v])].append(op)
    constants: set[int] = set()
    first = next(iter(forward.reads))
    for op, reads in forward.reads.items():
        inner = all(int(writer[v]) in constants for v in reads)
        if inner and not forward.residents[op]:
            constants.add(op)
    for op, reads in forward.reads.items():
        aside = all(
            any(int(writer[v]) not in constants | {op} for v in forward.reads[reader])
            for reader in readers[op]
        )
        if op != first and not reads and readers[op] and aside:
            constants.add(op)
    return constants


def _side_outputs(graph: Graph, forward: _ForwardNetwork) -> set[int]:
    size = graph.tables.value_bytes
    read = set().union(*forward.reads.values())
    return {
        v
        for outputs in forward.outputs.values()
        for v in outputs
        if v in read and size[v] < _SIDE_OUTPUT_SHARE * size[outputs].sum()
    }
