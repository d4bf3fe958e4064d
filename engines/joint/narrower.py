"""The same problem with fewer implementations, so that more of them never make a plan dearer.

A search stops at a gap, or when its time is up, and among more implementations it may stop at a
plan that is dearer than what it would have found among fewer. So it looks there, too: each variant
that its own contains, with convolutions by parts and without, is planned as if the others had
never been there, for as long as it may have a cheaper plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from functools import reduce

from rematbench.base.clock import planning_seconds
from rematbench.engines.anytime import Progress
from rematbench.engines.joint.implementations import JOINT, VARIANTS
from rematbench.graphs.ir import Graph, Implementation, Op
from rematbench.graphs.kinds import Kind, kinds_of

Kinds = frozenset[Kind]


@dataclass(frozen=True)
class Narrower:
    """A choice of fewer kinds of implementations.

    Attributes:
        kinds: those that are allowed.
        joint: do convolution algorithms count while searching?
    """

    kinds: Kinds
    joint: bool


def narrower(graph: Graph, variant: str, contained: Collection[str]) -> list[Narrower]:
    """What is contained in a variant on a graph, each once, the widest first.

    Args:
        contained: variants in it.
    """
    implementations = [
        kinds_of(implementation.name) for op in graph.ops for implementation in op.implementations
    ]
    if len(implementations) == len(graph.ops):
        return []
    present: Kinds = reduce(frozenset.union, implementations, frozenset())
    seen = {Narrower(VARIANTS[variant] & present, variant in JOINT)}
    found = []
    for name in sorted({*contained, variant}, key=lambda name: (name != variant, name)):
        for kinds in (VARIANTS[name], VARIANTS[name] - {Kind.PARTS}):
            each = Narrower(kinds & present, name in JOINT)
            if each not in seen:
                seen.add(each)
                found.append(each)
    return sorted(found, key=lambda each: -len(each.kinds))


def narrowed(graph: Graph, kinds: Kinds) -> Graph:
    """The graph with the implementations of some kinds, and without ops that only others read."""
    ops = [replace(op, implementations=tuple(_allowed(op, kinds))) for op in graph.ops]
    read_before = {value for op in graph.ops for value in _read(op)}
    read, kept = {*graph.outputs}, list[Op]()
    for op in reversed(ops):  # readers come after what they read
        if read.intersection(op.writes) or not read_before.intersection(op.writes):
            kept.append(op)
            read.update(_read(op))
    gone = {value for op in graph.ops for value in op.writes}
    gone -= {value for op in kept for value in op.writes}
    values = tuple(value for value in graph.values if value.name not in gone)
    return replace(graph, values=values, ops=tuple(reversed(kept)))


def _allowed(op: Op, kinds: Kinds) -> Iterator[Implementation]:
    default, *others = op.implementations
    yield default
    yield from (
        implementation for implementation in others if kinds_of(implementation.name) <= kinds
    )


def _read(op: Op) -> set[str]:
    return {value for implementation in op.implementations for value in implementation.reads} - {
        *op.writes
    }


class Beneath(Progress):
    """Of a search for plans cheaper than another's; it is over when there are none.

    Args:
        other: the other search.
    """

    def __init__(self, other: Progress) -> None:
        super().__init__(planning_seconds(), other.gap, lambda _: None)
        self._other = other

    def closed(self, bound: float | None = None) -> bool:
        """Is the gap good enough, or can nothing cheaper be found?"""
        best = self.bound if bound is None else bound
        return self._other.interrupted or best >= self._other.cost or super().closed(bound)

    def rest(self) -> bool:
        """An interrupt is the other's."""
        return self._other.rest()
