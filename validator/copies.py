"""Copies to the host in a program: in which order they are issued, where they lie, who waits.

Compute issues the copies, and on a CPU it is busy computing: what the link out does is issued as
soon as it can begin. That changes no time, since its order on the link stays
(``docs/offload.md``), and no byte on the host.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import DROP, FETCH, OFFLOAD, move_of

Extents = tuple[tuple[int, int], ...]
"""Pieces of the host's memory: each from a byte to before another."""
SECOND = "second"
WAIT = "host.wait("
"""How a line begins that waits for a copy."""


@dataclass(frozen=True)
class CopyPlan:
    """What a program needs of the host.

    Attributes:
        host_bytes: of the pool, the plan's host peak.
        places: of each copy on the host, in the order in which they are issued.
        shared: does one engine copy in both directions?
        pace: the link to slow down to, in seconds (CPU); None: as fast as memory is.
    """

    host_bytes: int
    places: tuple[Extents, ...]
    shared: bool = False
    pace: Link | None = None


def copy_plan(graph: Graph, order: Sequence[int], link: Link) -> CopyPlan:
    """Where the copies on the host lie.

    A pool of the host's peak is enough: a copy that fits no hole lies in several.

    Args:
        order: codes as :func:`issue_order` gives them.
    """
    moves = [(code, *move_of(code, len(graph.values))) for code in order if code < 0]
    used = most = 0
    for _, kind, v in moves:
        used += graph.values[v].bytes * ((kind == OFFLOAD) - (kind == DROP))
        most = max(most, used)
    free, held, places = [(0, most)] if most else [], dict[int, Extents](), list[Extents]()
    for _, kind, v in moves:
        if kind == OFFLOAD:
            held[v], free = _taken(free, graph.values[v].bytes)
            places.append(held[v])
        elif kind == DROP:
            free = _joined([*free, *held.pop(v)])
    pace = link if graph.cost_unit == SECOND else None
    return CopyPlan(most, tuple(places), link.shared, pace)


def _taken(free: list[tuple[int, int]], size: int) -> tuple[Extents, list[tuple[int, int]]]:
    """So many free bytes, of the smallest hole that has them or else of the largest; the rest."""
    holes = sorted(free, key=lambda hole: hole[1] - hole[0])
    fitting = [hole for hole in holes if hole[1] - hole[0] >= size]
    taken: list[tuple[int, int]] = []
    left = set(free)
    for begin, end in fitting[:1] or holes[::-1]:
        part = min(size, end - begin)
        if not part:
            break
        size -= part
        taken.append((begin, begin + part))
        left.remove((begin, end))
        if begin + part < end:
            left.add((begin + part, end))
    return tuple(taken), sorted(left)


def _joined(holes: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for begin, end in sorted(holes):
        if found and found[-1][1] == begin:
            begin = found.pop()[0]
        found.append((begin, end))
    return found


def issue_order(graph: Graph, codes: Sequence[int], shared: bool) -> list[int]:
    """A plan's codes, each offload and drop as early as it can begin.

    It follows what makes its value, or the last fetch of its copy, and what precedes it on its
    engine.
    """
    count, tables = len(graph.values), graph.tables
    made, fetched, latest = [-1] * count, [-1] * count, -1
    keys: list[tuple[int, bool, int]] = []  # after which statement it is issued
    for position, code in enumerate(codes):
        kind, v = move_of(code, count) if code < 0 else (-1, -1)
        if kind in (OFFLOAD, DROP):
            latest = max(latest, (made if kind == OFFLOAD else fetched)[v])
            keys.append((latest, True, position))
            continue
        keys.append((position, False, position))
        if kind == FETCH:
            made[v] = fetched[v] = position
            latest = position if shared else latest
        for w in tables.writes[tables.op_of[code]] if code >= 0 else ():
            made[w] = position
    return [codes[position] for *_, position in sorted(keys)]


@dataclass(frozen=True, slots=True)
class CopyLine:
    """A line about a copy: its text, and the tensors that it makes and reads."""

    text: str
    makes: tuple[str, ...] = ()
    reads: frozenset[str] = frozenset()


class CopyLines:
    """Writes the copies of a program, and where compute waits for them.

    Args:
        names: the tensors of each value.
    """

    def __init__(self, graph: Graph, names: Mapping[str, list[str]]) -> None:
        self._graph, self._names = graph, names
        self._copies = 0
        self._copy: dict[int, int] = {}  # of a value on the host: the number of its copy
        self._coming: dict[int, int] = {}
        self._leaving: dict[int, int] = {}

    def move(self, kind: int, v: int) -> CopyLine:
        """An offload, a fetch or a drop."""
        names = tuple(self._names[self._graph.values[v].name])
        listed = "".join(f"{name}, " for name in names)
        if kind == OFFLOAD:
            number = self._copy[v] = self._leaving[v] = self._copies
            self._copies += 1
            text = f"host.offload({number}, ({listed}), {self._coming.get(v)})"
            return CopyLine(text, reads=frozenset(names))
        number = self._copy[v]
        if kind == DROP:
            del self._copy[v]
            return CopyLine(f"host.drop({number})")
        self._coming[v] = number
        return CopyLine(f"{listed}= host.fetch({number})", names)

    def before_free(self, v: int) -> Iterator[CopyLine]:
        """Waits for copies into and out of what is freed."""
        return self._waits([v], self._coming, self._leaving)

    def before(self, code: int) -> Iterator[CopyLine]:
        """Waits for what an implementation reads to come, and what it overwrites to leave."""
        tables = self._graph.tables
        yield from self._waits(tables.reads[code], self._coming)
        yield from self._waits(tables.overwritten_by[code], self._leaving)

    def after(self, code: int) -> Iterator[CopyLine]:
        """Waits for copies of what an implementation has replaced."""
        tables = self._graph.tables
        return self._waits(tables.writes[tables.op_of[code]], self._coming, self._leaving)

    def end(self) -> Iterator[CopyLine]:
        """Waits for the outputs to come."""
        return self._waits(self._graph.tables.outputs, self._coming)

    def _waits(self, values: Iterable[int], *pending: dict[int, int]) -> Iterator[CopyLine]:
        for v in map(int, values):
            for copies in pending:
                if v in copies:
                    yield CopyLine(f"{WAIT}{copies.pop(v)})")
