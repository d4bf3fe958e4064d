"""A stage of a chain as a training graph of its own, for the integer program.

What comes from outside takes no memory here: the chain program counts it. In the place of all
that follows the stage there is one op, which reads the stage's output and writes the gradients
that come back; its workspace is what limits the bytes that stay meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from rematbench.engines.chain.segments import Segments
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value

REST = "the rest"
"""The op that stands for all that follows, and its token."""


@dataclass(frozen=True)
class Stage:
    """A stage.

    Attributes:
        stage: its number in the chain.
        graph: with :data:`REST` in the middle, or the loss in the last stage.
        ops: what its ops are in the whole graph; -1 for :data:`REST`.
        returned_bytes: of the gradients that come back.
        beside_bytes: of backward values that are live all the while and not in ``graph``.
    """

    stage: int
    graph: Graph
    ops: tuple[int, ...]
    returned_bytes: int
    beside_bytes: int

    @property
    def is_last(self) -> bool:
        """Does it hold the loss?"""
        return -1 not in self.ops

    @cached_property
    def shape(self) -> tuple[object, ...]:
        """The same for blocks that differ in names only."""
        return (*shape_of(self.graph), self.is_last)

    def limited(self, staying: int, budget: int) -> Graph:
        """The graph in which ``staying`` bytes may stay where ``budget`` bytes are allowed."""
        if self.is_last:
            return self.graph
        free_bytes = max(0, budget - staying - self.returned_bytes)
        rest = self.graph.loss_index
        assert rest is not None
        op = self.graph.ops[rest]
        implementation = replace(op.implementations[0], workspace_bytes=free_bytes)
        ops = list(self.graph.ops)
        ops[rest] = replace(op, implementations=(implementation,))
        return replace(self.graph, ops=tuple(ops))


def shape_of(graph: Graph) -> tuple[object, ...]:
    """All of a graph but its names: values are numbered as they come."""
    number: dict[str, int] = {}

    def numbers(names: Iterable[str]) -> tuple[int, ...]:
        return tuple(number.setdefault(name, len(number)) for name in names)

    ops = tuple(
        (
            op.phase.value,
            numbers(op.writes),
            tuple(
                (numbers(i.reads), i.cost, i.workspace_bytes, numbers(i.overwrites))
                for i in op.implementations
            ),
        )
        for op in graph.ops
    )
    known = {value.name: value for value in graph.values}
    sizes = tuple((known[name].bytes, known[name].resident) for name in number)
    return ops, sizes, numbers(graph.outputs)


def block_of(parts: Segments, stage: int) -> Stage:
    """A stage of a chain, with a backward pass.

    Args:
        stage: one whose backward ops are not none.
    """
    maker = _Maker(parts, stage)
    is_last = stage == len(parts.forward) - 1
    forward = [op for op in parts.forward[stage] if not maker.is_held(op)]
    back = parts.back[stage]
    coming = set() if is_last else parts.gradients[stage]
    read = {v for op in back for v in parts.reads[op]}
    returned = sorted(coming & read)
    ops = [*forward, *back] if is_last else [*forward, -1, *back]
    made = [maker.rest(returned) if op < 0 else maker.op(op) for op in ops]
    after = parts.gradients[stage - 1] if stage else parts.ends
    own = {v for op in ops if op >= 0 for v in parts.writes[op]} | set(returned)
    names = [maker.name(v) for v in sorted(after & own)]
    names += [] if is_last else [REST]
    size = parts.graph.tables.value_bytes
    graph = Graph(
        f"{parts.graph.name}, stage {stage}",
        maker.values(own),
        tuple(made),
        tuple(names),
        parts.graph.cost_unit,
    )
    beside = sum(int(size[v]) for v in coming - set(returned))
    return Stage(stage, graph, tuple(ops), sum(int(size[v]) for v in returned), beside)


class _Maker:
    """Ops and values of a block's graph."""

    def __init__(self, parts: Segments, stage: int) -> None:
        self.parts, self.stage = parts, stage
        self.seen: dict[int, None] = {}

    def name(self, value: int) -> str:
        self.seen.setdefault(value)
        return self.parts.graph.values[value].name

    def is_held(self, op: int) -> bool:
        """Does it only make what is held throughout?"""
        return set(self.parts.writes[op]) <= self.parts.held

    def op(self, number: int) -> Op:
        op = self.parts.graph.ops[number]
        for v in (*self.parts.reads[number], *self.parts.writes[number]):
            self.seen.setdefault(v)
        implementations = op.implementations[:1]
        return Op(op.name, op.phase, op.writes, implementations, random=op.random)

    def rest(self, returned: Iterable[int]) -> Op:
        out = sorted(self.parts.outputs[self.stage])
        writes = (*map(self.name, returned), REST)
        implementation = Implementation("default", tuple(map(self.name, out)), 0.0)
        return Op(REST, Phase.LOSS, writes, (implementation,))

    def values(self, own: set[int]) -> tuple[Value, ...]:
        """What is seen; from outside, or held throughout, without bytes."""
        found = []
        for v in self.seen:
            value = self.parts.graph.values[v]
            inside = v in own
            size = value.bytes if inside and v not in self.parts.held else 0
            found.append(Value(value.name, size, resident=not inside))
        if self.stage < len(self.parts.forward) - 1:
            found.append(Value(REST, 0))
        return tuple(found)
