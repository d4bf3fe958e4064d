"""What cost models have in common: a table of costs put into a graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from rematbench.graphs.ir import Graph

Costs = Mapping[tuple[str, str], tuple[float, int]]
"""(cost, workspace bytes) by names of op and implementation."""


def with_costs(graph: Graph, costs: Costs, unit: str) -> Graph:
    """``graph`` with other costs and workspaces, for every implementation of every op."""
    ops = []
    for op in graph.ops:
        implementations = []
        for implementation in op.implementations:
            cost, workspace = costs[op.name, implementation.name]
            implementations.append(replace(implementation, cost=cost, workspace_bytes=workspace))
        ops.append(replace(op, implementations=tuple(implementations)))
    return replace(graph, ops=tuple(ops), cost_unit=unit)
