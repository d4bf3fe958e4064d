"""The evicted components of DTR-EqClass: union-find, with simrd's approximation of splits.

An eviction makes a node and joins it with the components of all evicted neighbours. When a
storage comes back, its cost leaves its component, but the connections that it made stay
(section 4.2).
"""

from __future__ import annotations

from typing import Any

from rematbench.base.kernels import inner_kernel
from rematbench.engines.eviction.state import RuntimeState
from rematbench.graphs.ir import IntArray


@inner_kernel
def new_node(s: RuntimeState, g: int, cost: int) -> None:
    """Give storage ``g`` a component of its own."""
    node = s.nodes[s.now.nodes]
    node.parent, node.cost, node.mark = -1, cost, 0
    s.storages[g].node = s.now.nodes
    s.now.nodes += 1


@inner_kernel
def _root(s: RuntimeState, node: int) -> Any:
    """The root above ``node``; the whole path points at it afterwards."""
    root, nodes = node, s.nodes
    while nodes[root].parent >= 0:
        s.now.accesses += 1
        root = nodes[root].parent
    s.now.accesses += 1
    while node != root:
        above = nodes[node].parent
        nodes[node].parent = root
        node = above
    return root


@inner_kernel
def _evicted_neighbours(s: RuntimeState, g: int) -> int:
    """Put the evicted neighbours of ``g`` into ``todo``, in order; returns how many."""
    own = s.storages[g]
    s.now.accesses += own.reads + own.readers
    s.now.epoch += 1
    count = 0
    for start, length in ((own.parents, own.nparents), (own.children, own.nchildren)):
        for k in range(start, start + length):
            other = s.storages[s.flat[k]]
            if s.resident[s.flat[k]] == 0 and other.mark != s.now.epoch:
                other.mark = s.now.epoch
                s.todo[count] = s.flat[k]
                count += 1
    return count


@inner_kernel
def component_cost(s: RuntimeState, g: int) -> Any:
    """The cost of all evicted components next to ``g``."""
    cost = 0
    for i in range(_evicted_neighbours(s, g)):
        root = s.nodes[_root(s, s.storages[s.todo[i]].node)]
        if root.mark != s.now.epoch:
            root.mark = s.now.epoch
            cost += root.cost
    return cost


@inner_kernel
def components_evict(s: RuntimeState, g: int) -> None:
    """Storage ``g`` was evicted: join it with the components around it."""
    new_node(s, g, s.storages[g].cost)
    own = s.storages[g].node
    for i in range(_evicted_neighbours(s, g)):
        left, right = _root(s, s.storages[s.todo[i]].node), _root(s, own)
        if left != right:
            s.nodes[left].parent = right
            s.nodes[right].cost += s.nodes[left].cost


@inner_kernel
def components_compute(s: RuntimeState, fresh: IntArray, count: int) -> None:
    """The storages ``fresh[:count]`` are resident again."""
    for i in range(count):
        storage = s.storages[fresh[i]]
        _root(s, storage.node)  # simrd walks the path twice, and counts both
        s.nodes[_root(s, storage.node)].cost -= storage.cost
        storage.node = -1
