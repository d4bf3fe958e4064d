"""Operator-event streams: what a program did, one event at a time, for online strategies.

:mod:`rematbench.streams.log` reads and writes them as simrd's logs.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Constant:
    """A new tensor that nothing computes: a weight, an input."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Result:
    """One output of a call.

    Attributes:
        name: of the new tensor.
        bytes: its size.
        alias: index of the argument whose storage it views, or None for a new storage.
    """

    name: str
    bytes: int
    alias: int | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """``results = op(arguments)``, without side effects.

    Attributes:
        op: name of the operator.
        arguments: names of the tensors that it reads, repeats included.
        results: what it makes.
        cost: a whole number (nanoseconds in the published logs).
        workspace_bytes: needed only while it runs.
    """

    op: str
    arguments: tuple[str, ...]
    results: tuple[Result, ...]
    cost: int
    workspace_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Mutate:
    """An in-place operator.

    Attributes:
        mutated: indices into ``arguments`` of the tensors that it changes.
    """

    op: str
    arguments: tuple[str, ...]
    mutated: tuple[int, ...]
    cost: int


@dataclass(frozen=True, slots=True)
class Copy:
    """``target = source``, where ``target`` is a new name of the same tensor."""

    target: str
    source: str


@dataclass(frozen=True, slots=True)
class CopyFrom:
    """``target = source``, where ``target`` named another tensor so far."""

    target: str
    source: str


@dataclass(frozen=True, slots=True)
class Release:
    """The name goes away; without any name left, its tensor is dead."""

    name: str


@dataclass(frozen=True, slots=True)
class Annotate:
    """A remark; ``BACKWARD`` stands where the backward pass begins."""

    text: str


Event = Constant | Call | Mutate | Copy | CopyFrom | Release | Annotate


@dataclass(frozen=True, eq=False)
class EventStream:
    """A program as the events that a runtime under it would see.

    Attributes:
        events: in order; a log's are those after START.
        name: of the log, for people.
        cost_unit: of every cost.
        path: the file that it was read from, if any.
        lines: per event, its line there.
    """

    events: tuple[Event, ...]
    name: str = ""
    cost_unit: str = "nanosecond"
    path: str | None = None
    lines: tuple[int, ...] = ()

    def place(self, index: int, folder: bool = True) -> str:
        """Where event ``index`` stands, for messages; without the file's folder, for rows."""
        if self.path is not None and index < len(self.lines):
            path = self.path if folder else Path(self.path).name
            return f"{path}: line {self.lines[index]}"
        return f"{self.name or 'event stream'}: event {index}"
