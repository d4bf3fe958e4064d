"""What plans that copy activations have in common: which graphs allow it, and which gaps matter."""

from __future__ import annotations

import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.engines.bridges.bound import overwrites
from rematbench.engines.bridges.gaps import Sequence
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import Graph
from rematbench.graphs.planning import Problem


def copyable(problem: Problem) -> Graph:
    """The graph, if its values can go to the host between forward and backward pass.

    Raises:
        NotApplicable: there is no link both ways, no backward pass, or an op in place.
    """
    graph = problem.graph
    if not problem.link.both:
        raise NotApplicable("there is no link to the host; give link=pcie4, say")
    if graph.loss_index is None:
        raise NotApplicable("the graph has no loss op, so that there is no backward pass")
    if overwrites(graph):
        raise NotApplicable("an op overwrites what it reads, which is not planned with copies")
    return graph


def across_loss(sequence: Sequence) -> BoolArray:
    """Which gaps of forward values lead over the loss."""
    graph = sequence.graph
    ops = graph.tables.op_of[sequence.computes]
    loss = int(np.flatnonzero(ops == graph.loss_index)[0])
    forward = graph.tables.forward[graph.tables.writer[sequence.value]]
    return np.asarray(forward & (sequence.begin < loss) & (sequence.end > loss))
