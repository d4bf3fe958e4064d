"""Cost models of graphs that were not captured, but whose costs count floating-point operations."""

from __future__ import annotations

from rematbench.costmodel.costs import with_costs
from rematbench.costmodel.machines import machine_called
from rematbench.graphs.ir import Graph


def roofline_of_flops(graph: Graph, preset: str) -> Graph:
    """Modelled seconds on the machine called ``preset``, of a graph whose costs are in flop.

    An op takes as long as the longer of its arithmetic and its traffic: what it reads and writes,
    each storage as a whole, and its workspace twice.

    Raises:
        ConfigError: an unknown machine.
    """
    machine = machine_called(preset)
    size = {value.name: value.bytes for value in graph.values}
    costs = {}
    for op in graph.ops:
        for implementation in op.implementations:
            moved = (
                sum(size[name] for name in {*implementation.reads, *op.writes})
                + 2 * implementation.workspace_bytes
            )
            seconds = max(implementation.cost / machine.flops, moved / machine.bandwidth)
            costs[op.name, implementation.name] = (seconds, implementation.workspace_bytes)
    return with_costs(graph, costs, "second")
