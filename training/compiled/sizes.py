"""One graph at many sizes: what is known of some of them serves for the next.

Batches of other lengths give graphs of the same ops, whose values have other bytes. A plan is the
same list of ops for each: the plan of another size is tried on a new one, and costs are
interpolated between sizes that were measured.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from rematbench.costmodel.costs import with_costs
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan, has_copies
from rematbench.training.compiled.options import Options

MOST_SIZES = 128
"""Sizes of one graph of which plans are kept; the oldest go."""
MOST_GRAPHS = 64
"""Graphs of which sizes are kept."""


@dataclass(frozen=True)
class Size:
    """A graph at one size.

    Attributes:
        graph: with costs.
        codes: the plan's computes, as numbers of implementations; of one that copies, all.
        overhead: the plan's cost over ordinary training's, minus 1.
        measured: were costs measured, and not interpolated?
        bytes: of each value.
    """

    graph: Graph
    codes: IntArray
    overhead: float
    measured: bool
    bytes: IntArray

    def plan(self, graph: Graph) -> Plan:
        """The same plan for the graph at another size."""
        if has_copies(graph, self.codes):
            return Plan.from_codes(graph, self.codes)
        return Plan.of_computes(graph, self.codes)


@dataclass
class KnownSizes:
    """The sizes of one graph that are known, the latest last."""

    sizes: list[Size] = field(default_factory=list)

    def add(self, graph: Graph, plan: Plan, overhead: float, measured: bool) -> None:
        """Keep what was planned for a size."""
        own, codes, same = bytes_of(graph), plan.codes(graph), self.same(graph)
        measured = measured or (same is not None and same.measured)
        others = [each for each in self.sizes if not np.array_equal(each.bytes, own)]
        kept = codes.copy() if has_copies(graph, codes) else codes[codes >= 0].copy()
        new = Size(graph, kept, overhead, measured, own)
        self.sizes = [*others, new][-MOST_SIZES:]  # at once: two threads may come here

    def same(self, graph: Graph) -> Size | None:
        """This very size, where it is known."""
        own = bytes_of(graph)
        return next((each for each in self.sizes if np.array_equal(each.bytes, own)), None)

    def larger(self, graph: Graph) -> Iterator[Size]:
        """Sizes whose values are all as large at least: their plans need less, and fit here."""
        own = bytes_of(graph)
        return (each for each in self.sizes if bool((each.bytes >= own).all()))

    def smaller(self, graph: Graph) -> Iterator[Size]:
        """Sizes whose values are all as small at least."""
        own = bytes_of(graph)
        return (each for each in self.sizes if bool((each.bytes <= own).all()))

    def nearest(self, graph: Graph) -> list[Size]:
        """All sizes, by the difference of their bytes."""
        own = int(bytes_of(graph).sum())
        return sorted(self.sizes, key=lambda each: abs(int(each.bytes.sum()) - own))

    def costed(self, graph: Graph) -> Graph | None:
        """The graph with costs between those of two sizes that were measured.

        Workspaces are the larger size's. None where there are no two around it.
        """
        same = self.same(graph)
        if same is not None:
            return _between(graph, same, same)
        above = [each for each in self.larger(graph) if each.measured]
        below = [each for each in self.smaller(graph) if each.measured]
        if not above or not below:
            return None
        near = min(above, key=lambda each: int(each.bytes.sum()))
        return _between(graph, max(below, key=lambda each: int(each.bytes.sum())), near)


def _between(graph: Graph, small: Size, large: Size) -> Graph:
    """Costs by the bytes of what each op reads and writes."""
    costs = {}
    ends = zip(graph.ops, small.graph.ops, large.graph.ops, strict=True)
    for position, (op, low, high) in enumerate(ends):
        own, least, most = (_moved(each, position) for each in (graph, small.graph, large.graph))
        share = (own - least) / (most - least) if most > least else 1.0
        pairs = zip(op.implementations, low.implementations, high.implementations, strict=True)
        for here, a, b in pairs:
            cost = a.cost + share * (b.cost - a.cost)
            costs[op.name, here.name] = cost, max(a.workspace_bytes, b.workspace_bytes)
    return with_costs(graph, costs, large.graph.cost_unit)


def _moved(graph: Graph, position: int) -> int:
    op, index = graph.ops[position], graph.value_index
    names = {*op.writes, *op.implementations[0].reads}
    return sum(graph.values[index[name]].bytes for name in names)


def bytes_of(graph: Graph) -> IntArray:
    """Of each value."""
    return np.array([value.bytes for value in graph.values], dtype=np.int64)


def family_of(graph: Graph, options: Options) -> KnownSizes:
    """What is known of a graph's ops, at any size, under the same options."""
    key = _key(graph, options)
    found = _families.setdefault(key, KnownSizes())
    _families.move_to_end(key)
    if len(_families) > MOST_GRAPHS:
        _families.popitem(last=False)
    return found


_families: OrderedDict[str, KnownSizes] = OrderedDict()


def forget() -> None:
    """Plan every size anew."""
    _families.clear()


def _key(graph: Graph, options: Options) -> str:
    """Ops, what they read and write by number, and what decides a plan besides."""
    index = graph.value_index
    ops = [
        (
            op.operator,
            op.phase.value,
            op.random,
            [index[name] for name in op.writes],
            [
                [index[name] for name in implementation.reads]
                for implementation in op.implementations
            ],
        )
        for op in graph.ops
    ]
    fixed = [[value.resident for value in graph.values], [index[name] for name in graph.outputs]]
    words = (str(options.budget), options.reserve, options.costmodel, options.lower)
    text = json.dumps([ops, fixed, words, options.key()], default=str)
    return hashlib.sha256(text.encode()).hexdigest()
