"""A training graph as a chain of stages between its cut points, measured for the program.

A cut comes after every forward op where one value alone goes on; small values that many stages
read (a mask, position codes) do not count: they stay from their first computation to their last
read, and their bytes come off the budget, as residents do. What follows the last cut is the stage
of the loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rematbench.graphs.errors import NotApplicable
from rematbench.graphs.ir import Graph, Phase
from rematbench.graphs.plan import Plan, with_frees
from rematbench.graphs.structure import forward_ops
from rematbench.strategies.chain_dp.chain import Chain
from rematbench.strategies.chain_dp.table import Kind
from rematbench.strategies.stages import missing, needed

# A value below this share of what crosses a cut beside it may be held throughout instead ...
_SMALL = 0.05
# ... if it crosses this many cuts; a value that crosses fewer rather moves the cuts.
_SHARED = 3


@dataclass(frozen=True)
class Segments:
    """A graph cut into stages; the last one holds the loss.

    Attributes:
        graph: the graph.
        forward: forward ops that the loss depends on, per stage; the loss itself in the last.
        aside: forward ops per stage that only serve outputs of the graph (running statistics).
        held: values that stay once they are computed.
        back: backward ops per stage.
    """

    graph: Graph
    forward: tuple[tuple[int, ...], ...]
    aside: tuple[tuple[int, ...], ...]
    held: frozenset[int]
    back: tuple[tuple[int, ...], ...]

    @cached_property
    def reads(self) -> list[list[int]]:
        """Values that each op reads."""
        tables = self.graph.tables
        return [tables.reads[int(first)].tolist() for first in tables.op_first[:-1]]

    @cached_property
    def writes(self) -> list[list[int]]:
        """Values that each op writes."""
        return [self.graph.tables.writes[op].tolist() for op in range(len(self.graph.ops))]

    @cached_property
    def fixed_bytes(self) -> int:
        """Residents, and what is held throughout: all that comes off the budget."""
        aside = {v for ops in self.aside for op in ops for v in self.writes[op]}
        return self.graph.resident_bytes + self._bytes(self.held | aside)

    def _bytes(self, values: Iterable[int]) -> int:
        size = self.graph.tables.value_bytes
        return sum(int(size[v]) for v in values)

    @cached_property
    def outputs(self) -> list[set[int]]:
        """Values that cross the cut after each stage."""
        stage_of = {
            v: s for s, ops in enumerate(self.forward) for op in ops for v in self.writes[op]
        }
        found: list[set[int]] = [set() for _ in self.forward]
        for s, ops in enumerate(self.forward):
            for v in {v for op in ops for v in self.reads[op]} - self.held:
                for before in range(stage_of.get(v, s), s):
                    found[before].add(v)
        return found

    @cached_property
    def saved(self) -> list[set[int]]:
        """Values of each stage that its own backward ops read."""
        own = [{v for op in ops for v in self.writes[op]} - self.held for ops in self.forward]
        return [
            inner & {v for op in ops for v in self.reads[op]}
            for inner, ops in zip(own, self.back, strict=True)
        ]

    def _closure(self, stage: int, wanted: Collection[int]) -> tuple[int, ...]:
        """Ops of a stage that lead to ``wanted`` from its input, in program order."""
        found, missing = [], set(wanted)
        for op in reversed(self.forward[stage]):
            if missing & (set(self.writes[op]) - self.held):
                found.append(op)
                missing |= set(self.reads[op])
        return tuple(reversed(found))

    @cached_property
    def kept_ops(self) -> list[tuple[int, ...]]:
        """Per stage, for its output and all that backward reads."""
        both = zip(self.outputs, self.saved, strict=True)
        return [self._closure(s, out | saved) for s, (out, saved) in enumerate(both)]

    @cached_property
    def plain_ops(self) -> list[tuple[int, ...]]:
        """Per stage, for its output."""
        return [self._closure(s, out) for s, out in enumerate(self.outputs)]

    @cached_property
    def base_ops(self) -> list[tuple[int, ...]]:
        """Per stage, for what backward reads."""
        return [self._closure(s, saved) for s, saved in enumerate(self.saved)]

    @cached_property
    def chain(self) -> Chain:
        """The stages in numbers."""
        count = len(self.forward)
        gradients = self._gradients()
        output = [self._bytes(out) for out in self.outputs]
        kept = [self._bytes(a | b) for a, b in zip(self.outputs, self.saved, strict=True)]
        peaks: dict[str, list[int]] = {}
        for s in range(count):
            before = self.outputs[s - 1] if s else set()
            both, out, saved = self.outputs[s] | self.saved[s], self.outputs[s], self.saved[s]
            after = gradients[s - 1] if s else {v for v in gradients[0] if self._leaves(v)}
            loss = s == count - 1
            back = (*self.forward[s], *self.back[s]) if loss else self.back[s]
            start = gradients[s] if loss else gradients[s] | saved
            for name, ops, live, kept_values, outer in (
                ("kept", () if loss else self.kept_ops[s], set(), both, before),
                ("plain", () if loss else self.plain_ops[s], set(), out, before),
                ("moved", () if loss else self.plain_ops[s], before, out, set()),
                ("base", () if loss else self.base_ops[s], set(), saved, before),
                ("back", back, start, after, before),
            ):
                peaks.setdefault(name, []).append(self._peak(ops, live, kept_values, outer))
        loss_cost = self._cost(self.forward[-1])
        whole = {"int": np.int64, "float": np.float64}
        as_int = {name: np.array(found, dtype=whole["int"]) for name, found in peaks.items()}
        cost = {
            name: np.array([*(self._cost(ops) for ops in lists[:-1]), 0.0])
            for name, lists in (
                ("kept", self.kept_ops),
                ("plain", self.plain_ops),
                ("base", self.base_ops),
            )
        }
        back_cost = np.array([self._cost(ops) for ops in self.back])
        back_cost[-1] += loss_cost
        return Chain(
            input_bytes=0,
            output=np.array(output, dtype=np.int64),
            kept=np.array(kept, dtype=np.int64),
            saved=np.array([self._bytes(values) for values in self.saved], dtype=np.int64),
            gradient=np.array([self._bytes(values) for values in gradients], dtype=np.int64),
            kept_time=cost["kept"],
            kept_peak=as_int["kept"],
            plain_time=cost["plain"],
            plain_peak=as_int["plain"],
            moved_peak=as_int["moved"],
            base_time=cost["base"],
            base_peak=as_int["base"],
            back_time=back_cost,
            back_peak=as_int["back"],
        )

    def _leaves(self, value: int) -> bool:
        return value in set(self.graph.tables.outputs.tolist())

    def _cost(self, ops: Iterable[int]) -> float:
        return sum(self.graph.ops[op].cost for op in ops)

    def _gradients(self) -> list[set[int]]:
        """Values of loss and backward ops that are live before going back over each stage."""
        count = len(self.forward)
        groups = [*self.back[:-1], (self.forward[-1][-1], *self.back[-1])]
        needs: set[int] = set(self.graph.tables.outputs.tolist())
        live: list[set[int]] = [set() for _ in range(count)]
        read_later = [set(needs)]
        for ops in self.back[:-1]:
            needs = needs | {v for op in ops for v in self.reads[op]}
            read_later.append(needs)
        written: set[int] = set()
        for s in reversed(range(count)):
            live[s] = written & read_later[min(s + 1, count - 1)]
            written = written | {v for op in groups[s] for v in self.writes[op]}
        return live

    def _peak(self, ops: Sequence[int], live: set[int], kept: set[int], outer: set[int]) -> int:
        """Most bytes while ``ops`` run, from ``live`` to ``kept``; ``outer`` and held uncounted."""
        tables = self.graph.tables
        size, ignored = tables.value_bytes, self.held | outer
        last: dict[int, int] = {}
        for i, op in enumerate(ops):
            last |= dict.fromkeys((*self.reads[op], *self.writes[op]), i)
        outputs = set(tables.outputs.tolist())
        now = {v for v in live if v in last or v in kept} - ignored
        total = peak = self._bytes(now)
        for i, op in enumerate(ops):
            fresh = [v for v in self.writes[op] if v not in ignored]
            running = total + self._bytes(fresh) + int(tables.workspace[tables.op_first[op]])
            peak = max(peak, running)
            now |= set(fresh)
            gone = [
                v for v in {*self.reads[op], *fresh}
                if v in now and last[v] == i and v not in kept and v not in outputs
            ]  # fmt: skip
            now -= set(gone)
            total = sum(int(size[v]) for v in now) if fresh or gone else total
        return peak

    def plan(self, schedule: Iterable[tuple[Kind, int]]) -> Plan:
        """A schedule of stages as a plan, with the earliest frees."""
        writer = _Writer(self)
        for kind, stage in schedule:
            writer.run(kind, stage)
        codes = with_frees(self.graph, np.array(writer.computes, dtype=np.int64))
        return Plan.from_codes(self.graph, codes)


class _Writer:
    """Collects computes (implementation numbers), stage by stage."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.first = segments.graph.tables.op_first.tolist()
        self.computes: list[int] = []
        self.done: list[bool] = segments.graph.tables.resident.tolist()
        self.visited: set[int] = set()

    def run(self, kind: Kind, stage: int) -> None:
        parts = self.segments
        if kind == "back":
            last = stage == len(parts.forward) - 1
            if last:
                self._emit((*parts.forward[stage], *parts.aside[stage]))
            self._emit(parts.back[stage])
            return
        lists = {"all": parts.kept_ops, "plain": parts.plain_ops, "base": parts.base_ops}
        ops = set(lists[kind][stage])
        aside: tuple[int, ...] = ()
        if stage not in self.visited:
            self.visited.add(stage)
            held = [op for op in parts.forward[stage] if parts.held & set(parts.writes[op])]
            ops |= set(held)
            aside = parts.aside[stage]
        self._emit((*sorted(ops), *aside))

    def _emit(self, ops: Iterable[int]) -> None:
        for op in ops:
            # What is outside the chain's view (a skip over stages) is computed when it is read.
            if not all(self.done[v] for v in self.segments.reads[op]):
                for each in missing(self.segments.graph, op, np.array(self.done)):
                    self._compute(each)
            self._compute(op)

    def _compute(self, op: int) -> None:
        self.computes.append(self.first[op])
        for v in self.segments.writes[op]:
            self.done[v] = True


def segments_of(graph: Graph, most: int) -> Segments:
    """Cut a training graph into at most ``most`` stages, beside that of the loss.

    Raises:
        NotApplicable: no loss op, or fewer than two stages before the loss.
    """
    if graph.loss_index is None:
        raise NotApplicable("the graph has no loss op, so that there is no backward pass to plan")
    ops = forward_ops(graph).tolist()
    cuts, held = _cuts(graph, ops)
    if len(cuts) < 2:
        raise NotApplicable(
            f"no two values of graph {graph.name!r} carry its forward pass alone, so that it is "
            "one stage, with nothing to schedule; use kusumoto, linearized_greedy or checkmate_ilp"
        )
    if len(cuts) > most:  # the last stays, so that the loss has as little as possible
        cuts = [cuts[i] for i in np.linspace(0, len(cuts) - 1, most).round().astype(int)]
    return _assemble(graph, ops, cuts, held)


def _cuts(graph: Graph, ops: Sequence[int]) -> tuple[list[int], frozenset[int]]:
    """Positions in ``ops`` after which to cut, and the values to hold throughout."""
    tables, loss = graph.tables, graph.loss_index
    assert loss is not None
    place = {op: i for i, op in enumerate(ops)}
    last: dict[int, int] = {}
    for i, op in enumerate((*ops, loss)):
        for v in tables.reads[int(tables.op_first[op])].tolist():
            if int(tables.writer[v]) in place:
                last[v] = i
    outputs = set(tables.outputs.tolist())
    held = {v for v in last if v in outputs}
    size = tables.value_bytes.tolist()
    crossing: list[list[int]] = [[] for _ in ops]
    for v, end in last.items():
        if v not in held:
            for i in range(place[int(tables.writer[v])], end):
                crossing[i].append(v)
    small: dict[int, list[int]] = {}  # per small value, the cuts that it crosses
    cuts: set[int] = set()
    for i, values in enumerate(crossing):
        largest = max((size[v] for v in values), default=0)
        main = [v for v in values if size[v] > _SMALL * largest]
        if len(main) <= 1 or len(values) == 1:
            cuts.add(i)
            for v in set(values) - set(main or values):
                small.setdefault(v, []).append(i)
    for v, crossed in small.items():
        if len(crossed) >= _SHARED:
            held.add(v)
        else:
            cuts -= set(crossed)
    return sorted(cuts), frozenset(held)


def _assemble(
    graph: Graph, ops: Sequence[int], cuts: Sequence[int], held: frozenset[int]
) -> Segments:
    loss = graph.loss_index
    assert loss is not None
    ends = [cut + 1 for cut in cuts]
    parts = [list(ops[a:b]) for a, b in zip([0, *ends], [*ends, len(ops)], strict=True)]
    parts[-1].append(loss)
    stage_of = {op: s for s, part in enumerate(parts) for op in part}
    aside: list[list[int]] = [[] for _ in parts]
    wanted = needed(graph).tolist()
    backward = [op for op in wanted if graph.ops[op].phase is Phase.BACKWARD]
    for op in wanted:
        if op not in stage_of and graph.ops[op].phase is not Phase.BACKWARD:
            stage_of[op] = max((stage_of[w] for w in _writers(graph, op)), default=0)
            aside[stage_of[op]].append(op)
    forward = tuple(tuple(part) for part in parts)
    start = Segments(graph, forward, tuple(map(tuple, aside)), held, tuple(() for _ in parts))
    back: list[list[int]] = [[] for _ in parts]
    at: dict[int, int] = {}
    for op in backward:
        at[op] = _stage_of_backward(start, stage_of, at, op)
        back[at[op]].append(op)
    return Segments(graph, forward, start.aside, held, tuple(map(tuple, back)))


def _writers(graph: Graph, op: int) -> Iterator[int]:
    tables = graph.tables
    for w in tables.writer[tables.reads[int(tables.op_first[op])]].tolist():
        if w >= 0:
            yield w


def _stage_of_backward(
    parts: Segments, stage_of: dict[int, int], at: dict[int, int], op: int
) -> int:
    """The stage with which a backward op runs: the earliest in time that has what it reads.

    Inner values are there at their own stage only, an output as the next stage's input as well.
    """
    graph, last = parts.graph, len(parts.forward) - 1
    ready, inner, crossing = last, set(), set()
    for v in parts.reads[op]:
        writer = int(graph.tables.writer[v])
        if writer in at:
            ready = min(ready, at[writer])
        elif writer in stage_of and v not in parts.held and writer != graph.loss_index:
            s = stage_of[writer]
            (crossing if v in parts.outputs[s] else inner).add(s)
    if inner:
        return min(ready, max(inner))
    if crossing:
        return min(ready, min(last, max(crossing) + (len(crossing) == 1)))
    return ready
