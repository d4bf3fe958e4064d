"""What a step of the loop consists of: the calls of compiled graphs in order, and what they share.

A *sequence* begins with a call while none is pending, and ends when none is pending any more: one
forward and backward pass of a model, say, however many graphs it has. Storages are known by their
weak references, so that an address that is used again is no mistake.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef

from rematbench.tracing.captured import Ref
from rematbench.training.compiled.around import Around
from rematbench.training.compiled.gathered import Gathered, parts_of, weak_of
from rematbench.training.compiled.options import Options
from rematbench.training.compiled.outside import StepMeter

Kind = tuple[tuple[int, bool], ...]
"""Of each event: the number of the graph (forward) or of the call (backward)."""


class Event(NamedTuple):
    """A half that has run: of the call of that number, counted from the first of the sequence."""

    call: int
    backward: bool


class CompiledGraph(Protocol):
    """What a step's record and plan need to know of a compiled graph.

    Attributes:
        number, name: of it.
        options: that it was compiled with.
        planned: its own plan (:class:`~rematbench.training.compiled.planning.Planned`).
        parameters, origin: that it reads, and the module that it came from.
        has_measured: have its halves been measured?
        is_whole: it is all that its model trains by, as far as Dynamo tells.
        around: what lies outside of it, if it has many sizes.
        lean: the plan of it that keeps little.
        shares: may a step of several calls give it another plan?
    """

    number: int
    name: str
    options: Options
    planned: Any
    parameters: list[weakref.ref[nn.Parameter]]
    origin: list[weakref.ref[nn.Module]]
    has_measured: bool
    is_whole: bool
    around: Around | None

    @property
    def lean(self) -> Any: ...
    @property
    def shares(self) -> bool: ...
    def say(self, text: str) -> None: ...
    def takes(self, parts: list[Any]) -> None: ...
    def plans_steps_of(self, calls: int) -> bool: ...


@dataclass(eq=False)
class Recorded:
    """One call of a sequence.

    Attributes:
        planned: the plan that it ran by.
        stores: the storage of each tensor that a half was given, by name.
        links: the call and the tensor of its that a tensor was given from, by name.
        parameters: that it was given; equal modules may share one graph.
        adds: its gradients are added to some that are there, and go.
        back: has its backward half run?
        beside: bytes that it handed over besides its plan's values.
    """

    region: CompiledGraph
    planned: Any
    stores: dict[str, int] = field(default_factory=dict)
    links: dict[str, tuple[int, str]] = field(default_factory=dict)
    parameters: list[weakref.ref[nn.Parameter]] = field(default_factory=list)
    adds: bool = False
    back: bool = False
    beside: int = 0


class CallRecord:
    """A sequence under way, or over.

    Args:
        gathered: looks at the parameters meanwhile.
        meter: counts the bytes that are live meanwhile.

    Attributes:
        gathered, meter: the same.
        calls, events: in order.
        alive: the storages that outlived it, once it is over.
    """

    def __init__(self, gathered: Gathered, meter: StepMeter | None = None) -> None:
        self.gathered, self.meter = gathered, meter
        self.calls: list[Recorded] = []
        self.events: list[Event] = []
        self.alive: frozenset[int] = frozenset()
        self._made: dict[int, tuple[int, str]] = {}
        self._known: dict[int, StorageWeakRef] = {}

    @property
    def kind(self) -> Kind:
        """Equal for sequences of the same graphs in the same order."""
        return tuple(
            (event.call if event.backward else self.calls[event.call].region.number, event.backward)
            for event in self.events
        )

    def begins(self, region: CompiledGraph, planned: Any, args: Iterable[Any]) -> int:
        """A call begins, by a plan; returns its number."""
        own = [weakref.ref(each) for each in args if isinstance(each, nn.Parameter)]
        self.calls.append(Recorded(region, planned, parameters=own))
        self.events.append(Event(len(self.calls) - 1, False))
        return len(self.calls) - 1

    def goes_back(self, number: int) -> None:
        """The backward half of a call begins."""
        call = self.calls[number]
        call.back, call.adds = True, any(p.grad is not None for p in parameters_of([call]))
        self.events.append(Event(number, True))

    def given(self, number: int, names: Iterable[str], tensors: Iterable[Any]) -> None:
        """What a half is given, before it runs."""
        call, pairs = self.calls[number], list(zip(names, tensors, strict=False))
        for name, key in self._keys(pairs):
            call.stores[name] = key
            if key in self._made:
                call.links[name] = self._made[key]
        residents = call.planned.halves.captured.residents
        owned = {each.tensor for each in residents if each.kind == "parameter"}
        self.gathered.look(begins=True, given=[t for name, t in pairs if name in owned])
        self._mark()

    def made(self, number: int, ends: Iterable[Any], tensors: Iterable[Any]) -> None:
        """What a half has made."""
        named = ((e.name, t) for e, t in zip(ends, tensors, strict=False) if isinstance(e, Ref))
        for name, key in self._keys(named):
            self.calls[number].stores[name] = key
            self._made.setdefault(key, (number, name))
        self.gathered.look(begins=False)
        self._mark()

    def _mark(self) -> None:
        if self.meter is not None:
            self.meter.mark()

    def is_whole(self) -> bool:
        """Has every call gone backward?"""
        return bool(self.calls) and all(call.back for call in self.calls)

    def beside(self) -> list[int]:
        """Bytes, before each half and at the end, handed over besides the plans' values."""
        found = [0]
        for number, backward in self.events:
            size = self.calls[number].beside
            found.append(found[-1] + (-size if backward else size))
        return found

    def close(self) -> None:
        """Nothing is pending any more, and the caller has gone on."""
        self.alive = frozenset(key for key, weak in self._known.items() if not weak.expired())
        self.gathered.close()
        self._known.clear()

    def _keys(self, pairs: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, int]]:
        for name, tensor in pairs:
            if isinstance(tensor, Tensor) and (weak := weak_of(tensor)) is not None:
                self._known.setdefault(weak.cdata, weak)
                yield name, weak.cdata


def parameters_of(calls: Iterable[Recorded]) -> list[nn.Parameter]:
    """The parameters of calls that are there still, each once."""
    found = (weak() for call in calls for weak in call.parameters)
    return list({id(each): each for each in found if each is not None}.values())


def sizes_of(things: Iterable[Any]) -> Mapping[int, int]:
    """Bytes of storages, by storage; of a DTensor, those that are here."""
    plain = (part for each in things if isinstance(each, Tensor) for part in parts_of(each))
    found = ((weak_of(t), t) for t in plain)
    return {weak.cdata: t.untyped_storage().nbytes() for weak, t in found if weak is not None}
