"""What the bytes of a plan's peak are."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import FETCH, FREE, move_of
from rematbench.graphs.simulate import Trace, random_states

STATE = "optimizer_state"
"""The name of the value that stands for what the optimizer holds."""
# Parts of the peak by kind of a resident value.
_PARTS = {"parameter": "parameters", "input": "batch"}
_MODEL = ("parameters", "gradients", "optimizer", "batch", "buffers", "activations", "workspace")
_UNKNOWN = ("residents", "activations", "workspace")


def memory_parts(
    graph: Graph, trace: Trace, kinds: Mapping[str, str] | None, gradients: Collection[str] = ()
) -> dict[str, int]:
    """Bytes that are live at the first statement that reaches the peak; they add up to it.

    Args:
        trace: of a plan of ``graph``.
        kinds: of each resident value, see :attr:`rematbench.tracing.captured.Captured.kinds`; None
            where nobody knows: then ``residents`` is one part, and gradients count among the
            activations.
        gradients: values that are parameter gradients.
    """
    found = dict.fromkeys(_UNKNOWN if kinds is None else _MODEL, 0)
    tables = graph.tables
    copies, workspace = _at_the_peak(graph, trace)
    found["workspace"] = workspace
    gradient = frozenset(gradients)
    for number in np.flatnonzero(copies).tolist():
        value = graph.values[number]
        if value.resident:
            part = "residents" if kinds is None else _part(value.name, kinds)
        else:
            part = "gradients" if value.name in gradient else "activations"
        found[part] += int(copies[number] * tables.value_bytes[number])
    if graph.random_state_bytes and len(trace.codes):
        peak = int(np.argmax(trace.bytes_during))
        saved, aside = random_states(graph, trace.codes)
        found["random_states"] = int(saved[peak] + aside[peak])
    return found


def _part(resident: str, kinds: Mapping[str, str]) -> str:
    return "optimizer" if resident == STATE else _PARTS.get(kinds.get(resident, ""), "buffers")


def _at_the_peak(graph: Graph, trace: Trace) -> tuple[NDArray[np.int64], int]:
    """How many copies of each value are live at the peak, and the workspace there."""
    tables, codes = graph.tables, trace.codes
    if not len(codes):
        return tables.resident.astype(np.int64), 0
    peak = int(np.argmax(trace.bytes_during))
    born = np.full(len(graph.values), -1, dtype=np.int64)
    died = np.full(len(graph.values), -1, dtype=np.int64)
    for position, code in enumerate(codes[:peak].tolist()):
        if code < 0:
            move, value = move_of(code, len(graph.values))
            if move in (FREE, FETCH):
                (died if move == FREE else born)[value] = position
        else:
            taken = tables.overwritten_by[code]
            died[taken[taken >= 0]] = position
            born[tables.writes[int(tables.op_of[code])]] = position
    copies = (tables.resident | (born > died)).astype(np.int64)
    code = int(codes[peak])
    if code < 0:
        move, value = move_of(code, len(graph.values))
        copies[value] |= move == FETCH
        return copies, 0
    written, taken = tables.writes[int(tables.op_of[code])], tables.overwritten_by[code]
    new = written[taken < 0] if len(taken) else written
    np.add.at(copies, new, 1)
    return copies, int(tables.workspace[code])
