"""What one call of a compiled graph takes of a budget that several calls share."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import Trace
from rematbench.tracing.halves import Halves
from rematbench.tracing.releases import RELEASE
from rematbench.validator.halves import border_of


@dataclass(frozen=True, slots=True)
class Share:
    """The bytes of one call.

    Attributes:
        parameters: parameters and buffers.
        inputs: other residents.
        kept: what stays between its halves, results included.
        forward, backward: the most that is live while a half runs, residents apart.
        gradients: of parameters, which stay after its backward pass.
    """

    parameters: int
    inputs: int
    kept: int
    forward: int
    backward: int
    gradients: int

    @property
    def peak(self) -> int:
        """Of a call that is alone."""
        return self.parameters + self.inputs + max(self.forward, self.backward)


def share_of(halves: Halves, plan: Plan, trace: Trace) -> Share:
    """What a plan takes.

    Args:
        trace: of the plan.
    """
    captured, graph = halves.captured, halves.captured.graph
    kinds = captured.kinds
    sizes = {value.name: value.bytes for value in graph.values}
    owned = sum(sizes[v] for v, kind in kinds.items() if kind in ("parameter", "buffer"))
    split = border_of(halves, plan)
    given = _tangents(halves)
    tangents = sum(given.values())
    residents = graph.resident_bytes
    before, after = trace.bytes_during[: split + 1], trace.bytes_during[split:]
    after = after + _let_go(graph, trace.codes[split:], given)
    trained = {
        captured.value_of[tensor]
        for resident in captured.residents
        if resident.kind == "parameter"
        and (tensor := captured.gradients.get(str(resident.target))) is not None
    }
    return Share(
        parameters=owned,
        inputs=residents - owned,
        kept=int(trace.bytes_after[split]) - residents - tangents,
        forward=int(before.max(initial=residents)) - residents,
        backward=int(after.max(initial=residents)) - residents,
        gradients=sum(sizes[v] for v in trained),
    )


def held_tangents(halves: Halves) -> int:
    """Bytes of tangents, where PyTorch holds them until a backward half is over."""
    return sum(_tangents(halves).values()) if RELEASE.holds_tangents else 0


def _tangents(halves: Halves) -> dict[str, int]:
    """Bytes of the values that a backward half is given besides what was saved."""
    captured = halves.captured
    values = {value.name: value.bytes for value in captured.graph.values}
    return {v: values[v] for v in (captured.value_of[t] for t in halves.tangents)}


def _let_go(graph: Graph, codes: IntArray, values: Collection[str]) -> IntArray:
    """Bytes of tangents that statements up to each have freed, where PyTorch holds them still."""
    if not RELEASE.holds_tangents:
        return np.zeros(len(codes), dtype=np.int64)
    gone = np.zeros(len(graph.values), dtype=np.int64)
    places = [graph.value_index[name] for name in values]
    gone[places] = graph.tables.value_bytes[places]
    frees = (codes < 0) & (codes >= -len(gone))
    return np.cumsum(np.where(frees, gone[np.where(frees, ~codes, 0)], 0))
