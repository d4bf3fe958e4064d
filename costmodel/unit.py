"""Every op costs one, as in Chen's, Griewank's and Beaumont's analyses."""

from __future__ import annotations

from rematbench.costmodel.costs import with_costs
from rematbench.graphs.ir import Graph


def unit(graph: Graph) -> Graph:
    """``graph`` with cost 1 for every op, however implemented; workspaces stay as they are."""
    costs = {
        (op.name, implementation.name): (1.0, implementation.workspace_bytes)
        for op in graph.ops
        for implementation in op.implementations
    }
    return with_costs(graph, costs, "unit")
