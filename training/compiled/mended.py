"""Statements with copies, made a plan again where computes were left out or added."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import DROP, FETCH, FREE, OFFLOAD, move_of


def mended(graph: Graph, codes: Iterable[int]) -> IntArray:
    """The statements as a plan.

    What is read is there: it is fetched where the host has it, and is freed later otherwise. Each
    copy on the device is freed where that was said, or after its last use if that is later; copies
    that repeat others are left out.

    Args:
        codes: every op's first compute follows those of what it reads.
    """
    found = _Mender(graph)
    for code in codes:
        if code >= 0:
            found.compute(code)
        else:
            found.move(*move_of(code, len(graph.values)))
    return found.with_frees()


class _Mender:
    """Follows the statements; each time a value comes onto the device it is a *copy*, by number."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self.count = graph, len(graph.values)
        self.made: list[int] = []
        self.live: set[int] = set()
        self.hosted: set[int] = set()
        self.copy: dict[int, int] = {}  # the latest of each value
        self.values: list[int] = []  # of each copy
        self.last: list[int] = []  # statement after which it may be freed
        self.wish: list[int] = []  # statement after which its free was
        self.gone: set[int] = set()  # copies that others took the place of

    def compute(self, code: int) -> None:
        tables = self.graph.tables
        reads = [v for v in tables.reads[code].tolist() if not tables.resident[v]]
        for v in reads:
            self._there(v)
        for v in reads:
            self.last[self.copy[v]] = len(self.made)
        for v in tables.overwritten_by[code].tolist():
            if v >= 0:
                self.gone.add(self.copy[v])
                self.live.discard(v)
        self.made.append(code)
        for v in tables.writes[int(tables.op_of[code])].tolist():
            self._new(v)  # one that is there still goes after its last use

    def move(self, kind: int, v: int) -> None:
        if kind == FREE and v in self.live:
            self.live.remove(v)
            self.wish[self.copy[v]] = len(self.made) - 1
        elif kind == OFFLOAD and v not in self.hosted:
            self._there(v)
            self.last[self.copy[v]] = len(self.made)
            self.hosted.add(v)
            self._say(kind, v)
        elif kind == FETCH and v in self.hosted and v not in self.live:
            self._fetch(v)
        elif kind == DROP and v in self.hosted:
            self.hosted.remove(v)
            self._say(kind, v)

    def _there(self, v: int) -> None:
        """A value is needed on the device."""
        if v in self.live:
            return
        if v in self.hosted:
            self._fetch(v)
        else:
            self.live.add(v)
            self.wish[self.copy[v]] = -1

    def _fetch(self, v: int) -> None:
        self._say(FETCH, v)
        self.last[self._new(v)] = len(self.made) - 1

    def _say(self, kind: int, v: int) -> None:
        self.made.append(~(v + kind * self.count))

    def _new(self, v: int) -> int:
        number = self.copy[v] = len(self.values)
        self.values.append(v)
        self.last.append(len(self.made) - 1)
        self.wish.append(-1)
        self.live.add(v)
        return number

    def with_frees(self) -> IntArray:
        stays = {self.copy[v] for v in self.graph.tables.outputs.tolist() if v in self.copy}
        frees: dict[int, list[int]] = {}
        for number, v in enumerate(self.values):
            if number not in self.gone and number not in stays:
                place = max(self.last[number], self.wish[number])
                frees.setdefault(place, []).append(~v)
        codes = [c for place, code in enumerate(self.made) for c in (code, *frees.get(place, ()))]
        return np.array(codes, dtype=np.int64)
