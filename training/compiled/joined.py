"""The graphs of a sequence of calls as one graph again, so that any strategy plans it.

Each half is a stretch of ops. Before each, and after the last, one op of our own, the *gap*, stands
for what the caller does there: it reads what the half before it returned, and makes what the next
one is given from elsewhere. A call computes in its own two halves only; of a plan that computes
elsewhere, :meth:`Joined.parts` moves each compute into the next half that may have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.plan import Plan, has_copies, move_of
from rematbench.tracing.captured import Ref
from rematbench.tracing.halves import BORDER, Halves
from rematbench.training.compiled.judging import settled
from rematbench.training.compiled.mended import mended
from rematbench.training.compiled.outside import Outside
from rematbench.training.compiled.record import CallRecord, Event, Recorded

GAP = "gap_"
"""What the names of gaps begin with."""
ALWAYS = "outside"
"""The name of what is held outside all the time."""
GAP_COST = 0.1
"""Of a gap, relative to the mean cost of a half: nothing is gained by running it again."""


@dataclass(frozen=True)
class Joined:
    """A sequence of calls as one graph.

    Attributes:
        graph: all ops, in the order of the events.
        halves: of each call.
        events: the halves in order.
        homes: of each op: its call and number in the call's graph; (-1, event) of a gap.
        origins: of each value that an op of a call writes: the call, and its number there.
        outside: what is held besides; None: that was not measured.
    """

    graph: Graph
    halves: tuple[Halves, ...]
    events: tuple[Event, ...]
    homes: tuple[tuple[int, int], ...]
    origins: Mapping[int, tuple[int, int]]
    outside: Outside | None = None

    def parts(self, plan: Plan) -> list[Plan]:
        """A plan of each call, as its two halves can run it, from a plan of the whole.

        Copies to the host stay in the plan of a single call, and are left out of several calls'.

        Raises:
            InvalidPlan: a statement names what the graph does not have.
        """
        at = {event: place for place, event in enumerate(self.events)}
        found: list[tuple[list[int], list[int]]] = [([], []) for _ in self.halves]
        tables, now = self.graph.tables, -1
        for code in plan.codes(self.graph).tolist():
            if code < 0:
                found[0][now > at[Event(0, False)]].extend(self._move(code))
                continue
            op = int(tables.op_of[code])
            call, number = self.homes[op]
            if call < 0:
                now = max(now, number)
                continue
            own = self.halves[call].captured.graph
            late = own.ops[number].phase is Phase.BACKWARD or now > at[Event(call, False)]
            if now <= at[Event(call, True)]:  # later it is of no use
                local = int(own.tables.op_first[number]) + code - int(tables.op_first[op])
                found[call][late].append(local)
        return [
            settled(halves, _plan(halves.captured.graph, _around(halves, *both)))
            for halves, both in zip(self.halves, found, strict=True)
        ]

    def _move(self, code: int) -> Iterator[int]:
        """A free or a copy of the only call's own value, in its graph; of others nothing."""
        kind, v = move_of(code, len(self.graph.values))
        if v in self.origins and len(self.halves) == 1:
            _, own = self.origins[v]
            yield ~(own + kind * len(self.halves[0].captured.graph.values))

    def whole(self, parts: Sequence[Plan]) -> Plan:
        """The plan of the graph that these plans of the calls come to."""
        first = self.graph.tables.op_first
        places = {home: place for place, home in enumerate(self.homes)}
        values = {origin: v for v, origin in self.origins.items()}
        split = [_split(halves, plan) for halves, plan in zip(self.halves, parts, strict=True)]
        codes: list[int] = []
        for place, event in enumerate(self.events):
            codes.append(int(first[places[-1, place]]))
            own = self.halves[event.call].captured.graph.tables
            for code in split[event.call][event.backward]:
                if code < 0:
                    kind, v = move_of(code, len(own.value_bytes))
                    if (event.call, v) in values:
                        codes.append(~(values[event.call, v] + kind * len(self.graph.values)))
                    continue
                op = int(own.op_of[code])
                codes.append(int(first[places[event.call, op]]) + code - int(own.op_first[op]))
        codes.append(int(first[places[-1, len(self.events)]]))
        return _plan(self.graph, codes)


def _plan(graph: Graph, codes: list[int]) -> Plan:
    """The plan of some computes; or of computes, frees and copies."""
    if has_copies(graph, np.array(codes)):
        return Plan.from_codes(graph, mended(graph, codes))
    return Plan.of_computes(graph, [code for code in codes if code >= 0])


def _around(halves: Halves, before: list[int], after: list[int]) -> list[int]:
    graph = halves.captured.graph
    return [*before, int(graph.tables.op_first[graph.op_index[BORDER]]), *after]


def _split(halves: Halves, plan: Plan) -> tuple[list[int], list[int]]:
    """The statements of a plan before and after the border."""
    graph = halves.captured.graph
    codes: list[int] = plan.codes(graph).tolist()
    border = codes.index(int(graph.tables.op_first[graph.op_index[BORDER]]))
    return codes[:border], codes[border + 1 :]


def joined(name: str, record: CallRecord, strict: bool, outside: Outside | None = None) -> Joined:
    """The one graph of a sequence that is over.

    Args:
        outside: what it holds besides its graphs, as values that gaps make and read.
        strict: what a call was given is read in each gap until its backward half, so that planners
            do not let go of what no other call can compute again.
    """
    return _Joiner(record, outside).joined(name, strict)


class _Joiner:
    """Names every value, and strings the halves together."""

    def __init__(self, record: CallRecord, outside: Outside | None) -> None:
        self.record, self.calls, self.outside = record, record.calls, outside
        self.gathered = record.gathered.keys
        self.stretches = [] if outside is None else outside.stretches()
        self.strict = False
        self.halves = [_halves(call) for call in self.calls]
        self.names: list[dict[str, str]] = [{} for _ in self.calls]
        self.bytes: dict[str, int] = {}
        self.resident: set[str] = set()
        self.outputs: dict[str, None] = {}
        self.stored: dict[int | tuple[int, str], str] = {}
        self.ops: list[Op] = []
        self.homes: list[tuple[int, int]] = []
        self.phase = Phase.FORWARD

    def joined(self, name: str, strict: bool) -> Joined:
        events = self.record.events
        last = {call: place for place, (call, back) in enumerate(events) if back}
        cost = sum(op.cost for halves in self.halves for op in halves.captured.graph.ops)
        handed: list[str] = []
        self._begin(strict)
        for place, event in enumerate(events):
            given = list(self._given(event))
            if event.backward and self.phase is Phase.FORWARD:
                self.phase = Phase.LOSS
            held = self._held(place, last) - set(given)
            self._gap(place, [*handed, *sorted(held)], given, GAP_COST * cost / len(events))
            if self.phase is Phase.LOSS:
                self.phase = Phase.BACKWARD
            self._half(event)
            handed = self._handed(event)
        self._gap(len(events), handed, [], 0.0)
        self.outputs[_tick(len(events))] = None
        graph = self._graph(name)
        text = (tuple(self.halves), tuple(events), tuple(self.homes), self._origins(graph))
        return Joined(graph, *text, self.outside)

    def _begin(self, strict: bool) -> None:
        self.strict = strict
        if self.outside is not None and self.outside.always:
            self.bytes[ALWAYS] = self.outside.always
            self.resident.add(ALWAYS)

    def _origins(self, graph: Graph) -> dict[int, tuple[int, int]]:
        found = {}
        for call, number in self.homes:
            own = self.halves[call].captured.graph
            for v in own.tables.writes[number].tolist() if call >= 0 else ():
                found[graph.value_index[self.names[call][own.values[v].name]]] = call, v
        return found

    def _graph(self, name: str) -> Graph:
        values = [Value(n, size, n in self.resident) for n, size in self.bytes.items()]
        unit = self.halves[0].captured.graph.cost_unit
        outputs = tuple(n for n in self.outputs if n not in self.resident)
        return Graph(name, tuple(values), tuple(self.ops), outputs, unit)

    def _held(self, place: int, last: dict[int, int]) -> set[str]:
        """What calls were given that are not over at an event, for a strict graph."""
        if not self.strict:
            return set()
        return {n for call, names in self._inputs() if place <= last[call] for n in names}

    def _inputs(self) -> Iterator[tuple[int, list[str]]]:
        """Of each call that has begun: what it was given and does not stay for good."""
        for number, names in enumerate(self.names):
            tensors = [r.tensor for r in self.halves[number].captured.residents] if names else []
            found = {names[self._value(number, tensor)] for tensor in tensors}
            yield number, sorted(found - self.resident)

    def _value(self, call: int, tensor: str) -> str:
        return self.halves[call].captured.value_of[tensor]

    def _given(self, event: Event) -> Iterator[str]:
        """Name what a half is given; yields what comes from elsewhere in the gap before it."""
        call, halves = self.calls[event.call], self.halves[event.call]
        own, names = halves.captured.graph, self.names[event.call]
        residents = (r.tensor for r in halves.captured.residents)
        for tensor in halves.tangents if event.backward else residents:
            value = self._value(event.call, tensor)
            if value in names:
                continue
            source = call.links.get(tensor)
            if source is not None:
                names[value] = self.names[source[0]][self._value(*source)]
                continue
            key = call.stores.get(tensor, (call.region.number, tensor))
            new = key not in self.stored
            name = self.stored.setdefault(key, f"given_{len(self.stored)}")
            names[value] = name
            if new:
                size = own.values[own.value_index[value]].bytes
                # What is gathered is counted where it is held, which is not all of the time.
                self.bytes[name] = size * (key not in self.gathered)
                stays = halves.captured.kinds.get(value) in ("parameter", "buffer")
                if stays or key in self.record.alive or isinstance(key, tuple):
                    self.resident.add(name)
                else:
                    yield name

    def _half(self, event: Event) -> None:
        own, names = self.halves[event.call].captured.graph, self.names[event.call]
        for number, op in enumerate(own.ops):
            if op.name == BORDER or (op.phase is Phase.FORWARD) == event.backward:
                continue
            for value in op.writes:
                names[value] = f"{event.call}/{value}"
                self.bytes[names[value]] = own.values[own.value_index[value]].bytes
            self.homes.append((event.call, number))
            self.ops.append(self._renamed(op, event.call))

    def _renamed(self, op: Op, call: int) -> Op:
        names = self.names[call]

        def all_of(values: Iterable[str]) -> tuple[str, ...]:
            return tuple(dict.fromkeys(names[value] for value in values))

        def one(implementation: Implementation) -> Implementation:
            replays = implementation.replays
            return replace(
                implementation,
                reads=all_of(implementation.reads),
                overwrites=all_of(implementation.overwrites),
                replays=None if replays is None else f"{call}/{replays}",
            )

        found = tuple(map(one, op.implementations))
        new = f"{call}/{op.name}"
        writes = all_of(op.writes)
        return replace(op, name=new, phase=self.phase, writes=writes, implementations=found)

    def _handed(self, event: Event) -> list[str]:
        """What a half returns; what outlives the sequence is an output of it."""
        call, halves = self.calls[event.call], self.halves[event.call]
        kinds = {r.tensor: r.kind for r in halves.captured.residents}
        ends = halves.gradients if event.backward else _left(halves)
        given = halves.primals if event.backward else ("",) * len(ends)
        found: dict[str, None] = {}
        for end, primal in zip(ends, given, strict=False):
            if not isinstance(end, Ref) or end.name not in halves.captured.value_of:
                continue
            name = self.names[event.call][self._value(event.call, end.name)]
            found[name] = None
            if self._outlives(call, end.name, primal, kinds.get(primal)):
                self.outputs[name] = None
        return [name for name in found if name not in self.resident]

    def _outlives(self, call: Recorded, tensor: str, primal: str, kind: str | None) -> bool:
        """Is it a new gradient that stays, or held by the caller when the sequence is over?"""
        stays = kind == "parameter" and call.stores.get(primal) not in self.gathered
        return (stays and not call.adds) or call.stores.get(tensor) in self.record.alive

    def _gap(self, place: int, reads: Sequence[str], given: Sequence[str], cost: float) -> None:
        before = [_tick(place - 1)] if place else []
        made = [_tick(place), *given]
        for number, (size, first, last) in enumerate(self.stretches):
            name = f"outside_{number}"
            if place == first:
                self.bytes[name] = size
                made.append(name)
            if place == last or (self.strict and first < place < last):
                before.append(name)
        self.bytes[_tick(place)] = 0
        workspace = 0 if self.outside is None else self.outside.workspace(place)
        self.homes.append((-1, place))
        read = dict.fromkeys([*before, *reads])
        self.ops.append(simple_op(_tick(place), self.phase, read, made, cost, workspace))


def _left(halves: Halves) -> tuple[Any, ...]:
    """What a forward half returns, and what it writes to what it was given."""
    return (*halves.results, *(Ref(new) for _, new in halves.written))


def _tick(place: int) -> str:
    return f"{GAP}{place}"


def _halves(call: Recorded) -> Halves:
    assert call.region.planned is not None
    found: Halves = call.region.planned.halves
    return found
