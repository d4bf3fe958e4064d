"""Shape of a forward graph: what the loss depends on, chains, articulation points."""

from __future__ import annotations

import networkx as nx
import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.graphs.ir import Graph, IntArray

_INPUT = -1


def forward_ops(graph: Graph) -> IntArray:
    """Indices of the forward ops that the loss depends on, in program order.

    Counters and running statistics that only feed buffers are left out. In a forward-only graph
    these are the ops that the outputs depend on.
    """
    tables = graph.tables
    last, wanted = len(graph.ops), tables.is_output.copy()
    if tables.loss >= 0:
        last, wanted[:] = tables.loss, False
        wanted[tables.inputs[last]] = True
    found = []
    for op in range(last - 1, -1, -1):
        if tables.forward[op] and wanted[tables.writes[op]].any():
            found.append(op)
            wanted[tables.inputs[op]] = True
    return np.array(found[::-1], dtype=np.int64)


def read_bytes(graph: Graph) -> IntArray:
    """Per op, the bytes of its values that some op reads.

    What only leaves the step (new running statistics) does not count.
    """
    tables, found = graph.tables, np.zeros(len(graph.ops), dtype=np.int64)
    counted = tables.is_read & ~tables.resident
    np.add.at(found, tables.writer[counted], tables.value_bytes[counted])
    return found


def forward_graph(graph: Graph) -> nx.DiGraph:
    """The forward ops that the loss depends on, with an edge from writer to reader.

    The loss op is the last node, where there is one.
    """
    tables = graph.tables
    nodes = forward_ops(graph).tolist()
    if graph.loss_index is not None:
        nodes.append(graph.loss_index)
    found = nx.DiGraph()
    found.add_nodes_from(nodes)
    for op in nodes:
        writers = tables.writer[tables.inputs[op]]
        found.add_edges_from((w, op) for w in writers.tolist() if w in found and w != op)
    return found


def chain(graph: Graph) -> IntArray:
    """The forward ops of a linear forward graph, in order.

    Raises:
        NotApplicable: the forward graph branches; names the first op that does.
    """
    net = forward_graph(graph)
    for op in net:
        many = "is read by several ops" if net.out_degree(op) > 1 else "reads several ops"
        if net.out_degree(op) > 1 or net.in_degree(op) > 1:
            raise NotApplicable(
                f"needs a linear forward graph, but op {graph.ops[op].label} {many}; "
                "use the articulation-point (ap_) or linearized_ variant"
            )
    if net and not nx.is_weakly_connected(net):
        raise NotApplicable("needs a linear forward graph, but this one falls into several parts")
    return forward_ops(graph)


def is_linear(graph: Graph) -> bool:
    """Is the forward graph one chain?"""
    try:
        chain(graph)
    except NotApplicable:
        return False
    return True


def articulation_points(graph: Graph) -> IntArray:
    """Forward ops whose removal disconnects the undirected forward graph, in program order.

    The input before the first op and the loss after the last are nodes of that graph, so that
    on a chain every op is an articulation point (Checkmate, appendix B.1).
    """
    net = forward_graph(graph)
    ops = [op for op in net if op != graph.loss_index]
    if not ops:
        return np.zeros(0, dtype=np.int64)
    undirected = net.to_undirected()
    undirected.add_edge(_INPUT, ops[0])
    if graph.loss_index is None:
        undirected.add_edge(len(graph.ops), ops[-1])
    points = set(nx.articulation_points(undirected)) & set(ops)
    return np.array(sorted(points), dtype=np.int64)
