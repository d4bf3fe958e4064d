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
from typing import Any

import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.engines.chain.chain import Chain
from rematbench.engines.chain.table import Operation
from rematbench.engines.plans.stages import missing, needed
from rematbench.graphs.ir import Graph, Phase
from rematbench.graphs.plan import Plan
from rematbench.graphs.structure import forward_ops

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
        return self.graph.tables.inputs.lists()

    @cached_property
    def writes(self) -> list[list[int]]:
        """Values that each op writes."""
        return self.graph.tables.writes.lists()

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
        gradients = self.gradients
        kept = [out | saved for out, saved in zip(self.outputs, self.saved, strict=True)]
        sizes = {
            "output": [self._bytes(out) for out in self.outputs],
            "kept": [self._bytes(both) for both in kept],
            "saved": [self._bytes(saved) for saved in self.saved],
            "gradient": [self._bytes(values) for values in gradients],
        }
        last = len(self.forward) - 1
        before: set[int] = set()
        for s, out in enumerate(self.outputs):
            after = gradients[s - 1] if s else self.ends
            if s == last:  # its forward ops are part of going back over it
                runs = dict.fromkeys(("kept", "plain", "moved", "base"), 0)
                runs["back"] = self._peak((*self.forward[s], *self.back[s]), set(), after, before)
            else:
                runs = {
                    "kept": self._peak(self.kept_ops[s], set(), kept[s], before),
                    "plain": self._peak(self.plain_ops[s], set(), out, before),
                    "moved": self._peak(self.plain_ops[s], before, out, set()),
                    "base": self._peak(self.base_ops[s], set(), self.saved[s], before),
                    "back": self._peak(self.back[s], gradients[s] | self.saved[s], after, before),
                }
            for name, peak in runs.items():
                sizes.setdefault(f"{name}_peak", []).append(peak)
            before = out
        lists = {"kept": self.kept_ops, "plain": self.plain_ops, "base": self.base_ops}
        times = {f"{name}_time": [*map(self._cost, ops[:-1]), 0.0] for name, ops in lists.items()}
        loss = self._cost(self.forward[-1])
        times["back_time"] = [*map(self._cost, self.back[:-1]), loss + self._cost(self.back[-1])]
        arrays: dict[str, Any] = {
            **{name: np.array(found, dtype=np.int64) for name, found in sizes.items()},
            **{name: np.array(found, dtype=np.float64) for name, found in times.items()},
        }
        return Chain(input_bytes=0, **arrays)

    @cached_property
    def ends(self) -> set[int]:
        return set(self.graph.tables.outputs.tolist())

    def _cost(self, ops: Iterable[int]) -> float:
        return sum(self.graph.ops[op].cost for op in ops)

    @cached_property
    def gradients(self) -> list[set[int]]:
        """Values of loss and backward ops that are live before going back over each stage."""
        groups = [*self.back[:-1], (self.forward[-1][-1], *self.back[-1])]
        wanted = [self.ends]  # by the stages up to each
        for ops in groups[:-1]:
            wanted.append(wanted[-1] | {v for op in ops for v in self.reads[op]})
        live: list[set[int]] = []
        written: set[int] = set()
        for s in reversed(range(len(groups))):
            live.append(written & wanted[min(s + 1, len(groups) - 1)])
            written = written | {v for op in groups[s] for v in self.writes[op]}
        return live[::-1]

    def _peak(self, ops: Sequence[int], live: set[int], kept: set[int], outer: set[int]) -> int:
        """Most bytes while ``ops`` run, from ``live`` to ``kept``; ``outer`` and held uncounted."""
        tables = self.graph.tables
        ignored = self.held | outer
        last: dict[int, int] = {}
        for i, op in enumerate(ops):
            last |= dict.fromkeys((*self.reads[op], *self.writes[op]), i)
        now = {v for v in live if v in last or v in kept} - ignored
        total = peak = self._bytes(now)
        for i, op in enumerate(ops):
            fresh = [v for v in self.writes[op] if v not in ignored]
            running = total + self._bytes(fresh) + int(tables.workspace[tables.op_first[op]])
            peak = max(peak, running)
            now |= set(fresh)
            gone = [
                v for v in {*self.reads[op], *fresh}
                if v in now and last[v] == i and v not in kept and v not in self.ends
            ]  # fmt: skip
            now -= set(gone)
            total += self._bytes(fresh) - self._bytes(gone)
        return peak

    def plan(self, schedule: Iterable[tuple[Operation, int, int]]) -> Plan:
        """A schedule of stages as a plan, with the earliest frees."""
        writer = ComputeList(self)
        for kind, stage, _ in schedule:
            writer.run(kind, stage)
        return Plan.of_computes(self.graph, writer.computes)


class ComputeList:
    """Collects computes (implementation numbers), stage by stage."""

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.first = segments.graph.tables.op_first.tolist()
        self.computes: list[int] = []
        self.done: list[bool] = segments.graph.tables.resident.tolist()
        self.visited: set[int] = set()

    def run(self, kind: Operation, stage: int) -> None:
        """An operation of the chain program."""
        parts = self.segments
        if kind == "back":
            last = stage == len(parts.forward) - 1
            if last:
                self.emit((*parts.forward[stage], *parts.aside[stage]))
            self.emit(parts.back[stage])
            return
        lists = {"keep": parts.kept_ops, "plain": parts.plain_ops, "base": parts.base_ops}
        self.forward(stage, lists[kind][stage])

    def forward(self, stage: int, ops: Iterable[int]) -> None:
        """Forward ops of a stage, with what is only computed at the first visit."""
        parts, chosen = self.segments, set(ops)
        aside: tuple[int, ...] = ()
        if stage not in self.visited:
            self.visited.add(stage)
            chosen |= {op for op in parts.forward[stage] if parts.held & set(parts.writes[op])}
            aside = parts.aside[stage]
        self.emit((*sorted(chosen), *aside))

    def emit(self, ops: Iterable[int]) -> None:
        """Ops in this order."""
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
            "one stage, with nothing to schedule; use kusumoto, linearized_greedy or anytime"
        )
    if len(cuts) > most:  # the last stays, so that the loss has as little as possible
        cuts = [cuts[i] for i in np.linspace(0, len(cuts) - 1, most).round().astype(int)]
    return _assemble(graph, ops, cuts, held)


def _cuts(graph: Graph, ops: Sequence[int]) -> tuple[list[int], frozenset[int]]:
    """Positions in ``ops`` after which to cut, and the values to hold throughout."""
    size = graph.tables.value_bytes.tolist()
    crossing, held = _crossing(graph, ops)
    small: dict[int, list[int]] = {}  # per small value, the cuts that it crosses
    cuts: dict[int, int] = {}  # the value that goes on
    for i, values in enumerate(crossing):
        largest = max((size[v] for v in values), default=0)
        main = [v for v in values if size[v] > _SMALL * largest]
        if len(main) <= 1 or len(values) == 1:
            cuts[i] = (main or values or [-1])[0]
            for v in set(values) - set(main or values):
                small.setdefault(v, []).append(i)
    for v, crossed in small.items():
        if len(crossed) >= _SHARED:
            held.add(v)
        else:
            cuts = {i: main for i, main in cuts.items() if i not in crossed}
    return _useful(graph, cuts), frozenset(held)


def _crossing(graph: Graph, ops: Sequence[int]) -> tuple[list[list[int]], set[int]]:
    """Per op, the values that are read after it; and those read that are outputs of the graph."""
    tables = graph.tables
    place = {op: i for i, op in enumerate(ops)}
    last: dict[int, int] = {}
    for i, op in enumerate((*ops, tables.loss)):
        for v in tables.inputs[op].tolist():
            if int(tables.writer[v]) in place:
                last[v] = i
    held = {v for v in last if tables.is_output[v]}
    crossing: list[list[int]] = [[] for _ in ops]
    for v, end in last.items():
        if v not in held:
            for i in range(place[int(tables.writer[v])], end):
                crossing[i].append(v)
    return crossing, held


def _useful(graph: Graph, cuts: dict[int, int]) -> list[int]:
    """Cuts without those at values to start again from only, next to one that is no larger.

    What backward does not read (a batch norm's output before its ReLU) is better dropped at once.
    """
    tables = graph.tables
    read = set(tables.inputs.picked(np.flatnonzero(tables.backward)).items.tolist())
    places = sorted(cuts)
    size = [int(tables.value_bytes[cuts[i]]) if cuts[i] >= 0 else 0 for i in places]
    return [
        i
        for at, i in enumerate(places)
        if cuts[i] in read
        or size[at] < min([*size[max(at - 1, 0) : at], *size[at + 1 : at + 2]], default=0)
    ]


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
    for w in tables.writer[tables.inputs[op]].tolist():
        if w >= 0:
            yield w


def _stage_of_backward(
    parts: Segments, stage_of: dict[int, int], at: dict[int, int], op: int
) -> int:
    """The stage with which a backward op runs: the earliest in time that has what it reads.

    Inner values are there at their own stage only, an output as the next stage's input as well.
    """
    graph, last = parts.graph, len(parts.forward) - 1
    ready = last
    inner: set[int] = set()
    crossing: set[int] = set()
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
