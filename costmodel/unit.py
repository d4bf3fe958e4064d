"""Every op costs one, as in Chen's, Griewank's and Beaumont's analyses."""

from __future__ import annotations

from costmodel import with_costs
from graphs.ir import Graph


def unit(graph: Graph) -> Graph:
    """``graph`` with cost 1 for every op; workspaces stay as they are."""
    costs = {op.name: (1.0, op.implementations[0].workspace_bytes) for op in graph.ops}
    return with_costs(graph, costs, "unit")
