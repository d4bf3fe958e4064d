"""Families of lower sets of a graph, with what the formulas need of each (Kusumoto et al., 3.1).

A lower set holds all predecessors of its members. Its boundary: members that a node outside reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rematbench.base.errors import ConfigError
from rematbench.graphs.ir import IntArray, Rows

FamilyName = Literal["exact", "approximate"]


@dataclass(frozen=True)
class Dag:
    """Intermediate values of a forward pass, one node each.

    Attributes:
        bytes: per node.
        cost: per node.
        before, after: per node, the nodes that it reads and that read it, as bits.
    """

    bytes: tuple[int, ...]
    cost: tuple[float, ...]
    before: tuple[int, ...]
    after: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.bytes)

    @property
    def everything(self) -> int:
        """All nodes."""
        return (1 << len(self)) - 1

    def order(self) -> list[int]:
        """The nodes, each after what it reads.

        Raises:
            ConfigError: the edges have a cycle.
        """
        waiting = [before.bit_count() for before in self.before]
        ready = [v for v, count in enumerate(waiting) if not count]
        for v in ready:
            for w in bits(self.after[v]):
                waiting[w] -= 1
                if not waiting[w]:
                    ready.append(w)
        if len(ready) < len(self):
            stuck = next(v for v, count in enumerate(waiting) if count)
            raise ConfigError(f"edges: node {stuck} depends on a cycle; give an acyclic graph")
        return ready


def bits(members: int) -> list[int]:
    """The members of a set."""
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found


def dag(
    n: int, edges: Iterable[Sequence[int]], sizes: Sequence[int], costs: Sequence[float]
) -> Dag:
    """A graph from plain numbers; repeated edges count once.

    Raises:
        ConfigError: lengths that do not fit, an edge to nowhere, a negative or odd number.
    """
    if type(n) is not int or n < 1:
        raise ConfigError(f"n is {n!r}; give a number of nodes, 1 or more")
    for name, values in (("bytes", sizes), ("cost", costs)):
        if len(values) != n:
            raise ConfigError(f"{name} has {len(values)} entries; give {n}, one per node")
        for value in values:
            if not _good(value, whole=name == "bytes"):
                kind = "whole numbers" if name == "bytes" else "finite numbers"
                raise ConfigError(f"{name} has {value!r}; give {kind}, 0 or more")
    before, after = [0] * n, [0] * n
    for u, v in edges:
        if not (0 <= u < n and 0 <= v < n and u != v):
            raise ConfigError(f"edge {(u, v)}: give two different nodes from 0 to {n - 1}")
        before[v] |= 1 << u
        after[u] |= 1 << v
    found = Dag(tuple(sizes), tuple(costs), tuple(before), tuple(after))
    found.order()
    return found


def _good(value: Any, whole: bool) -> bool:
    number = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value) and value >= 0


class Family(NamedTuple):
    """Lower sets by rising number of nodes, from the empty one to all of the graph.

    Attributes:
        words: the sets as bits, 64 nodes a word; shape (sets, words).
        boundary: members of each boundary.
        boundary_bytes, boundary_cost: sums over it.
        bytes, cost: sums over the set.
        readers: bytes that the formula adds for what reads the set: the gradients of its readers,
            and the readers' other inputs.
        node_bytes, node_cost: of each node.
    """

    words: NDArray[np.uint64]
    boundary: Rows
    boundary_bytes: IntArray
    boundary_cost: NDArray[np.float64]
    bytes: IntArray
    cost: NDArray[np.float64]
    readers: IntArray
    node_bytes: IntArray
    node_cost: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.words)

    @property
    def sets(self) -> tuple[int, ...]:
        """The sets as bits of whole numbers."""
        return tuple(int.from_bytes(row.tobytes(), "little") for row in self.words)


def lower_sets(graph: Dag, most: int) -> list[int] | None:
    """All lower sets, or None where there are more than ``most``."""
    found = {0}
    level = [0]
    while level:
        following: set[int] = set()
        for members in level:
            for v, before in enumerate(graph.before):
                if not members >> v & 1 and before & ~members == 0:
                    following.add(members | 1 << v)
        found |= following
        if len(found) > most:
            return None
        level = list(following)
    return list(found)


def ancestor_sets(graph: Dag) -> list[int]:
    """Each node with all that it depends on; nothing, and everything."""
    closed = [0] * len(graph)
    for v in graph.order():
        closed[v] = 1 << v
        for u in bits(graph.before[v]):
            closed[v] |= closed[u]
    return list({0, graph.everything, *closed})


def family_of(graph: Dag, sets: Iterable[int]) -> Family:
    """What the formulas need of these lower sets."""
    ordered = tuple(sorted(sets, key=lambda members: (members.bit_count(), members)))
    boundaries = [[v for v in bits(members) if graph.after[v] & ~members] for members in ordered]

    def size(members: Iterable[int]) -> int:
        return sum(graph.bytes[v] for v in members)

    def cost(members: Iterable[int]) -> float:
        return sum(graph.cost[v] for v in members)

    readers = []
    for members, boundary in zip(ordered, boundaries, strict=True):
        reading = 0
        for v in boundary:
            reading |= graph.after[v] & ~members
        inputs = 0
        for v in bits(reading):
            inputs |= graph.before[v] & ~members
        readers.append(size(bits(reading)) + size(bits(inputs)))
    count = -(-len(graph) // 64)
    raw = b"".join(members.to_bytes(8 * count, "little") for members in ordered)
    return Family(
        words=np.frombuffer(raw, dtype="<u8").astype(np.uint64).reshape(len(ordered), count),
        boundary=Rows.of(boundaries),
        boundary_bytes=np.array([size(b) for b in boundaries], dtype=np.int64),
        boundary_cost=np.array([cost(b) for b in boundaries], dtype=np.float64),
        bytes=np.array([size(bits(members)) for members in ordered], dtype=np.int64),
        cost=np.array([cost(bits(members)) for members in ordered], dtype=np.float64),
        readers=np.array(readers, dtype=np.int64),
        node_bytes=np.array(graph.bytes, dtype=np.int64),
        node_cost=np.array(graph.cost, dtype=np.float64),
    )
