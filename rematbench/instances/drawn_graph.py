"""A graph as a small picture: its ops by time, and what waits between them, as arcs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.simulate import Trace

WIDE, ARCS, STRIP, BYTES = 720, 150, 8, 70
"""Of the picture: its width; the heights of the arcs, of the phases, of the bytes below."""
MOST = 400
"""Arcs at most: those of the most bytes."""
_KINDS = ("within", "across", "back")
_WIDTHS = (0.6, 1.4, 2.6)


@dataclass(frozen=True, slots=True)
class DrawnGraph:
    """A picture, and what it shows in words."""

    picture: str
    about: str


def drawn_graph(graph: Graph, trace: Trace) -> DrawnGraph:
    """Ops from left to right; an arc from who writes a value to who reads it, if not the next op.

    What falls on the same pixels is one arc, and of many those of the most bytes are drawn.

    Args:
        trace: of ordinary training, whose bytes by time are drawn below.
    """
    count = len(graph.ops)
    writer, reader, size = _skips(graph)
    left, right = _column(writer, count), _column(reader, count)
    kind = _kind(graph, writer, reader)
    arcs, first = np.unique(np.stack([left, right, kind], axis=1), axis=0, return_inverse=True)
    weight = np.zeros(len(arcs))
    np.maximum.at(weight, first.reshape(-1), size)
    order = np.lexsort((np.arange(len(arcs)), -weight))[:MOST]
    paths = _arcs(arcs[order], weight[order])
    bottom = ARCS + STRIP + 4 + BYTES
    text = (
        f'<svg class="graph" viewBox="0 0 {WIDE} {bottom + 1}" role="img" '
        f'aria-label="the graph">{paths}{_phases(graph)}{_bytes(trace, bottom)}</svg>'
    )
    return DrawnGraph(text, _about(len(writer), len(arcs), len(order), count))


def _about(edges: int, arcs: int, drawn: int, ops: int) -> str:
    if not edges:
        return f"{ops} ops, each of which reads only what the one before it writes."
    text = f"{ops} ops; {edges} reads of a value that was written more than one op before"
    if drawn < arcs:
        return f"{text}, as {arcs} arcs; drawn are the {drawn} of the most bytes."
    if arcs < edges:
        return f"{text}, as {arcs} arcs: those between the same two pixels are one."
    return f"{text}, each an arc."


def _skips(graph: Graph) -> tuple[IntArray, IntArray, IntArray]:
    """Who writes, who reads, and how many bytes, of each read that skips an op."""
    tables = graph.tables
    value, reader = tables.inputs.items, tables.inputs.row_of
    writer = tables.writer[value]
    chosen = (writer >= 0) & (reader - writer > 1)
    return writer[chosen], reader[chosen], tables.value_bytes[value[chosen]]


def _kind(graph: Graph, writer: IntArray, reader: IntArray) -> IntArray:
    """Number in :data:`_KINDS`: within the forward pass, from it on, within the backward pass."""
    backward = graph.tables.backward
    return np.where(backward[writer], 2, np.where(backward[reader], 1, 0)).astype(np.int64)


def _column(op: IntArray, count: int) -> IntArray:
    return np.asarray((2 * op + 1) * WIDE // (2 * max(1, count)), dtype=np.int64)


def _arcs(arcs: IntArray, weight: NDArray[np.float64]) -> str:
    """Half ellipses, those of one kind and width as one path."""
    if not len(arcs):
        return ""
    place = np.searchsorted(weight.max() * np.array([0.1, 0.5]), weight, side="right")
    text = []
    for number, kind in enumerate(_KINDS):
        for step, width in enumerate(_WIDTHS):
            mine = arcs[(arcs[:, 2] == number) & (place == step)]
            path = "".join(_arc(left, right) for left, right, _ in mine.tolist())
            if path:
                text.append(f'<path class="{kind}" stroke-width="{width}" d="{path}"/>')
    return "".join(text)


def _arc(left: int, right: int) -> str:
    across = max(1, right - left) / 2
    tall = min(ARCS - 4.0, 6 + across * 2 * (ARCS - 10) / WIDE)
    return f"M{left} {ARCS}a{across:g} {tall:.0f} 0 0 1 {2 * across:g} 0"


def _phases(graph: Graph) -> str:
    """The forward pass, the loss and the backward pass as a strip."""
    tables, count = graph.tables, len(graph.ops)
    phase = np.where(tables.forward, 0, np.where(tables.backward, 2, 1))
    begins = np.concatenate([[0], np.flatnonzero(np.diff(phase)) + 1]).tolist()
    runs = list(zip(begins, [*begins[1:], count], strict=True))
    if len(runs) > WIDE:
        return ""
    text = []
    for begin, end in runs:
        x, after = begin * WIDE / max(1, count), end * WIDE / max(1, count)
        name = ("forward", "loss", "backward")[int(phase[begin])]
        wide = max(1.0, after - x)
        text.append(f'<rect class="{name}" x="{x:.1f}" y="{ARCS + 2}" width="{wide:.1f}" ')
        text.append(f'height="{STRIP}"/>')
    return "".join(text)


def _bytes(trace: Trace, bottom: int) -> str:
    """Live bytes, statement by statement."""
    at = np.arange(len(trace.codes)) * WIDE // max(1, len(trace.codes))
    highest = np.zeros(WIDE)
    np.maximum.at(highest, at, trace.bytes_during)
    used = np.unique(at)
    levels = np.rint(bottom - highest / max(1, trace.peak_bytes) * BYTES).astype(int)
    line = "".join(f"L{x} {levels[x]}" for x in used.tolist())
    return f'<path class="bytes" d="M0 {bottom}{line}L{WIDE} {bottom}z"/>'
