"""Bounds and advice at any size: what the budget costs from one moment on, with ways to choose.

As :mod:`rematbench.engines.intervals.moments`, with MONeT's choices. When op a runs for the
first time, what is in memory of the ops before it fits the budget. Until op b has run, each op
between them is computed in one of its ways, and what that reads is one of these values or computed
again; so is what the latter always reads. A value that only some ways read (a mask) may never have
been computed: having it costs its op once.

Any plan whose first computes follow program order, but for deferrable ops and pairs, satisfies
this. Windows that do not overlap add up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from rematbench.engines.intervals.moments import TOLERANCE
from rematbench.engines.joint.ways import Ways
from rematbench.engines.lp.program import LinearProgram
from rematbench.engines.lp.solver import Solver
from rematbench.engines.plans.stages import BoolArray, FloatArray
from rematbench.graphs.ir import IntArray

SCALE = 100.0
"""What the cost of every op once is scaled to."""


class Kept(NamedTuple):
    """What a window's program says.

    Attributes:
        cost: of the window beyond each needed op once, in its cheapest way; infinite where the
            budget cannot hold.
        choice: per op, the group that it favours; ops outside of the window have their first one.
        kept: per value, the share of it that is in memory at the moment.
    """

    cost: float
    choice: IntArray
    kept: FloatArray


@dataclass(frozen=True)
class Windows:
    """The programs of one graph.

    Attributes:
        ways: the allowed ways.
        budget: in bytes.
        seed: of HiGHS.
    """

    ways: Ways
    budget: int
    seed: int = 0

    @cached_property
    def _least(self) -> FloatArray:
        """Per op, the cost of its cheapest way to compute it again; of an optional one, at all."""
        cost, allowed = self.ways.graph.tables.cost, self.ways.allowed
        ops = range(len(self.ways.graph.ops))
        return np.array([cost[allowed[op]].min(initial=inf) for op in ops])

    @cached_property
    def _sources(self) -> list[list[int]]:
        """Per op, the values that computing it again always reads; no residents."""
        resident = self.ways.graph.tables.resident
        ops = range(len(self.ways.graph.ops))
        return [[v for v in sorted(self.ways.surely_read(op)) if not resident[v]] for op in ops]

    @cached_property
    def _readers(self) -> dict[int, set[int]]:
        """Per value, the ops that may read it."""
        tables = self.ways.graph.tables
        found: dict[int, set[int]] = defaultdict(set)
        for way, op in enumerate(tables.op_of.tolist()):
            for v in tables.reads[way].tolist():
                found[v].add(op)
        return found

    @cached_property
    def _paired(self) -> frozenset[int]:
        return frozenset(op for step in self.ways.steps if len(step) > 1 for op in step)

    def is_moment(self, op: int) -> bool:
        """May a window begin or end with it? Its first compute is where it stands, in any plan."""
        late = op in self._paired or op in self.ways.deferrable
        return bool(self.ways.surely_needed[op]) and not late

    def room(self, moment: int) -> float:
        """Bytes that an op leaves for what earlier ones have written, what it reads included."""
        least = min(int(self.ways.extra[way]) for way in self.ways.first_ways(moment))
        return float(self.budget - self.ways.graph.resident_bytes - least)

    def solve(self, first: int, last: int, deadline: float, share: float = 1.0) -> Kept | None:
        """The program from the first compute of op ``first`` on; None if time is up.

        Args:
            last: the op before which the window ends; the number of ops for the end.
            deadline: by :func:`~rematbench.base.clock.planning_seconds`.
            share: of the room that there is, for advice.
        """
        facts = self._sources, self._least, self._readers
        program = _Window(self.ways, first, last, *facts)
        nothing = self.ways.group_at[:-1].copy(), np.zeros(len(program.keep))
        if not program.fits(share * self.room(first)):
            return Kept(inf, *nothing)
        if not program.program.size["columns"]:
            return Kept(0.0, *nothing)
        solver = Solver(program.program, seed=self.seed)
        outcome = solver.run(deadline)
        if outcome is None or outcome.status not in ("optimal", "infeasible"):
            return None
        if outcome.x is None:
            return Kept(inf, *nothing)
        cost = max(0.0, solver.proven() - TOLERANCE * SCALE) * program.unit
        return Kept(cost, *program.advice(outcome.x))


class _Window:
    """One program, and its columns.

    Attributes:
        unit: cost per unit of the objective.
        keep: per value, its column, or -1.
    """

    def __init__(
        self,
        ways: Ways,
        first: int,
        last: int,
        sources: Sequence[list[int]],
        least: FloatArray,
        readers: Mapping[int, set[int]],
    ) -> None:
        self.ways, self.first, self.program = ways, first, LinearProgram()
        self._last, self._readers = last, readers
        self._tables, self._sources = ways.graph.tables, sources
        self.unit = (ways.least_cost or 1.0) / SCALE
        self._least = least / self.unit
        self.keep = np.full(len(ways.graph.values), -1, dtype=np.int64)
        self._again = np.full(len(ways.graph.ops), -1, dtype=np.int64)
        self._chosen: dict[int, int] = {}
        self._wanted = self._closure(last)
        self._columns()
        for op in np.flatnonzero(ways.surely_needed[first:last]).tolist():
            self._computed(first + op)
        if last == len(ways.graph.ops):
            self._finally()
        self._recomputed()

    def _before(self, value: int) -> bool:
        return 0 <= int(self._tables.writer[value]) < self.first

    def _reads(self, op: int) -> dict[int, list[int]]:
        """Per earlier value that a first compute may read, the ways that do."""
        found: dict[int, list[int]] = {}
        for way in self.ways.first_ways(op):
            for v in self._tables.reads[way].tolist():
                if self._before(v):
                    found.setdefault(v, []).append(way)
        return found

    def _closure(self, last: int) -> BoolArray:
        """Values that may serve: that the window's ops may read, and what these are made from."""
        wanted = np.zeros(len(self.keep), dtype=bool)
        for op in range(self.first, last):
            if self.ways.surely_needed[op]:
                wanted[list(self._reads(op))] = True
        if last == len(self.ways.graph.ops):
            wanted[[v for v in self._tables.outputs.tolist() if self._before(v)]] = True
        for op in range(self.first - 1, -1, -1):
            if wanted[self._tables.writes[op]].any():
                wanted[self._sources[op]] = True
        return wanted

    def _columns(self) -> None:
        writer = self._tables.writer
        for v in np.flatnonzero(self._wanted).tolist():
            self.keep[v] = self.program.column()
        for op in np.unique(writer[self._wanted]).tolist():
            self._again[op] = self.program.column(float(self._least[op]))
            if not self.ways.surely_needed[op]:
                price = float(self._least[op]) if self._is_ours(op) else 0.0
                once = self.program.column(price)
                for v in self._tables.writes[op].tolist():
                    self.program.at_most([self.keep[v]], [once])

    def _is_ours(self, op: int) -> bool:
        """Do first computes of this window only read what it writes? Windows add up."""
        readers = {reader for v in self._tables.writes[op].tolist() for reader in self._readers[v]}
        return all(self.first <= reader < self._last for reader in readers)

    def _there(self, value: int) -> list[int]:
        """Columns that say whether a value is kept, or computed again."""
        return [int(self.keep[value]), int(self._again[self._tables.writer[value]])]

    def _computed(self, op: int) -> None:
        """One of its ways, and what that reads; the moment's own reads are in memory then."""
        ways, reads = self.ways.first_ways(op), self._reads(op)
        cost = self._tables.cost[ways] / self.unit
        columns: list[int] = []
        if len({tuple(sorted(v for v in reads if way in reads[v])) for way in ways}) > 1:
            columns = [self.program.column(float(c)) for c in cost - cost.min()]
            self._chosen |= dict(zip(ways, columns, strict=True))
            self.program.at_most([], columns, -1.0)
        for v, readers in reads.items():
            there = self._there(v)[: 1 if op == self.first else 2]
            if len(readers) == len(ways):
                self.program.at_most([], there, -1.0)
            else:
                self.program.at_most([self._chosen[way] for way in readers], there)

    def _finally(self) -> None:
        """Outputs are there at the end; those of ops that may be late may not be made yet."""
        late = self.ways.deferrable
        for v in self._tables.outputs.tolist():
            if self._before(v) and int(self._tables.writer[v]) not in late:
                self.program.at_most([], self._there(v), -1.0)

    def _recomputed(self) -> None:
        for op in np.flatnonzero(self._again >= 0).tolist():
            for v in self._sources[op]:
                self.program.at_most([self._again[op]], self._there(v))

    def fits(self, room: float) -> bool:
        """Add the row of memory at the moment; can it hold at all?"""
        size = self._tables.value_bytes
        fixed = [v for v in self.ways.surely_read(self.first) if self._before(v)]
        if size[fixed].sum() > room:
            return False
        values = np.flatnonzero(self.keep >= 0)
        share = size[values] / max(1.0, room)
        self.program.row(zip(self.keep[values].tolist(), share.tolist(), strict=True), 1.0)
        return True

    def advice(self, x: FloatArray) -> tuple[IntArray, FloatArray]:
        """Which groups, and what is kept."""
        choice = self.ways.group_at[:-1].copy()
        for op in {int(self._tables.op_of[way]) for way in self._chosen}:
            groups = self.ways.groups(op)
            weight = [x[[self._chosen[w] for w in self.ways.members[g]]].sum() for g in groups]
            choice[op] = groups[int(np.argmax(weight))]
        return choice, np.where(self.keep >= 0, np.append(x, 0.0)[self.keep], 0.0)
