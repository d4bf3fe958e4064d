"""The roofline model: an op takes as long as the longer of its arithmetic and its traffic."""

from __future__ import annotations

from rematbench.costmodel.costs import with_costs
from rematbench.costmodel.flops import arithmetic, bytes_moved, estimated_workspace
from rematbench.costmodel.machines import machine_called
from rematbench.graphs.ir import Graph
from rematbench.tracing.captured import Captured


def roofline(captured: Captured, preset: str) -> Graph:
    """The captured graph with modelled seconds on the machine called ``preset``.

    Alternatives have estimated workspaces, which count as traffic; defaults have none.

    Raises:
        ConfigError: an unknown machine.
    """
    machine = machine_called(preset)
    costs = {}
    for op in captured.graph.ops:
        for implementation in op.implementations:
            workspace = estimated_workspace(op, implementation)
            computing = (arithmetic(captured, op.name, implementation.name) or 0.0) / machine.flops
            traits = captured.traits.get((op.name, implementation.name))
            passes = 1 if traits is None else traits.passes
            # A workspace is written and read once per pass.
            moved = bytes_moved(captured, captured.code[op.name][implementation.name][0])
            moved += 2 * workspace * passes
            costs[op.name, implementation.name] = (
                max(computing, moved / machine.bandwidth),
                workspace,
            )
    return with_costs(captured.graph, costs, "second")
