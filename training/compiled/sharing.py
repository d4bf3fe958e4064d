"""What one call of a compiled graph takes of a budget that several calls share."""

from __future__ import annotations

from dataclasses import dataclass

from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import Trace
from rematbench.tracing.halves import Halves
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
    tangents = sum(sizes[v] for v in {captured.value_of[t] for t in halves.tangents})
    residents = graph.resident_bytes
    before = trace.bytes_during[: split + 1]
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
        backward=int(trace.bytes_during[split:].max(initial=residents)) - residents,
        gradients=sum(sizes[v] for v in trained),
    )
