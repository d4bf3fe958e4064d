"""The bound model: what every plan of a graph must pay, whichever ways it takes.

It looks at one moment, the start of the loss's first compute, and says of each plan:

- ``stored[v]``: is v live then? ``held[v]``: and has it been, since its first compute?
- ``again[x]``: is forward op x computed after it (again, if it was needed before)?
- ``early[x]``: is needed forward op x computed twice before it?
- ``made[x]``: is optional forward op x computed before it?
- ``twice[x]``: is op x, of the loss or later, computed more than once?
- ``way[i]``: does the first compute of its op use implementation i?

These satisfy the rows below in any plan in which the ops that every plan needs first run in
program order (pairs of :attr:`~strategies.monet.ways.Ways.steps` in either order), so the optimum
is a lower bound of such plans' cost: each op of the first three lines costs at least its cheapest
way for each time that it is counted. The memory rows are those of the first computes; values that
were computed only once stay live from then to their last read, and nothing is claimed about
others. Optional ops may run at any time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np

from graphs.ir import IntArray
from strategies.monet.program import Program, Term
from strategies.monet.ways import Ways

SCALE = 100.0
"""What the budget, and the cost of every op once, are scaled to."""
NEGLIGIBLE = 1e-5
"""Values below this fraction of the budget are taken to be always there, without size."""


class BoundModel:
    """The program for one graph, one budget.

    Args:
        ways: the allowed ways.
        budget: in bytes.

    Attributes:
        program: for HiGHS.
        unit: cost per unit of the program's objective.
        scale: the budget in the rows' unit.
        memory_rows: the rows whose upper limit moves with the budget.
        way: per implementation, its column, or -1.
        stored: per value, its column, or -1.
    """

    scale = SCALE

    def __init__(self, ways: Ways, budget: int) -> None:
        self.ways, self.graph, self.tables = ways, ways.graph, ways.graph.tables
        tables = self.tables
        self.bytes_unit = budget / SCALE
        self.needed = ways.surely_needed()
        loss = self.graph.loss_index
        assert loss is not None
        self.loss = loss
        everything = sum(
            float(tables.cost[ways.first_ways(op)].min())
            for op in np.flatnonzero(self.needed).tolist()
        )
        self.unit = (everything or 1.0) / SCALE
        self.size = tables.value_bytes / self.bytes_unit
        self.weighs = ~tables.resident & (tables.value_bytes > NEGLIGIBLE * budget)
        self.is_output = np.zeros(len(self.graph.values), dtype=bool)
        self.is_output[tables.outputs] = True
        self.program = Program()
        self.memory_rows: list[int] = []
        self._reads_of = [frozenset(tables.reads[way].tolist()) for way in range(len(tables.op_of))]
        self._columns()
        self._choices()
        self._reads()
        self._closure()
        self._in_place()
        self._forward_rows()
        self._stage_rows()

    @property
    def _forward(self) -> range:
        return range(self.loss)

    @property
    def _stages(self) -> list[int]:
        return [op for step in self.ways.steps for op in step if self.needed[op]]

    def _columns(self) -> None:
        ops, values = len(self.graph.ops), len(self.graph.values)
        column = self.program.column
        self.way = np.full(len(self.tables.op_of), -1, dtype=np.int64)
        self.stored, self.held = (np.full(values, -1, dtype=np.int64) for _ in range(2))
        self.again, self.early, self.made, self.twice = (
            np.full(ops, -1, dtype=np.int64) for _ in range(4)
        )
        for op in range(ops):
            once_more = self.ways.least_again(op) / self.unit
            if self.needed[op]:
                for way in self.ways.first_ways(op):
                    cost = float(self.tables.cost[way]) / self.unit
                    self.way[way] = column(cost, integral=True)
            if op >= self.loss:
                self.twice[op] = column(once_more, integral=True)
                continue
            self.again[op] = column(once_more, integral=True)
            (self.early if self.needed[op] else self.made)[op] = column(once_more, integral=True)
            for v in self._weighty(self.tables.writes[op]):
                self.stored[v] = column(integral=True)
                if self.needed[op]:
                    self.held[v] = column()

    def _weighty(self, values: Iterable[int] | IntArray) -> list[int]:
        return [int(v) for v in values if self.weighs[v]]

    def _reading(self, op: int, value: int) -> list[Term]:
        """Does the first compute of ``op`` read ``value``?"""
        return [
            (int(self.way[way]), 1.0)
            for way in self.ways.first_ways(op)
            if value in self._reads_of[way]
        ]

    def _always_reads(self, op: int, value: int) -> bool:
        return value in self._always[op]

    @cached_property
    def _always(self) -> list[frozenset[int]]:
        """Per op, what all ways of its first compute read."""
        return [
            frozenset.intersection(*(self._reads_of[way] for way in self.ways.first_ways(op)))
            for op in range(len(self.graph.ops))
        ]

    def _choices(self) -> None:
        for op in np.flatnonzero(self.needed).tolist():
            ways = [int(self.way[way]) for way in self.ways.first_ways(op)]
            self.program.most(((way, 1.0) for way in ways), 1.0)
            self.program.most(((way, -1.0) for way in ways), -1.0)

    def _may_read(self, op: int) -> list[int]:
        """Weighty values that some way of computing ``op`` first reads."""
        found = {int(v) for way in self.ways.first_ways(op) for v in self.tables.reads[way]}
        return self._weighty(sorted(found))

    def _reads(self) -> None:
        """What a first compute after the moment reads is stored, or computed after it."""
        for op in self._stages:
            for v in self._may_read(op):
                writer = int(self.tables.writer[v])
                if writer < self.loss:
                    terms = [*self._reading(op, v), (int(self.stored[v]), -1.0)]
                    if op != self.loss:
                        terms.append((int(self.again[writer]), -1.0))
                    self.program.most(terms, 0.0)

    def _closure(self) -> None:
        """What a compute after the moment reads in all its ways is stored, or computed, too."""
        for op in self._forward:
            for v in self._weighty(self.ways.surely_read(op)):
                writer = int(self.tables.writer[v])
                if writer < self.loss and writer != op:
                    self.program.most(
                        [
                            (int(self.again[op]), 1.0),
                            (int(self.stored[v]), -1.0),
                            (int(self.again[writer]), -1.0),
                        ],
                        0.0,
                    )
            for v in self._weighty(self.tables.writes[op]):
                stored = (int(self.stored[v]), 1.0)
                if self.needed[op]:
                    held, early = (int(self.held[v]), -1.0), (int(self.early[op]), -1.0)
                    self.program.most([stored, held, early], 0.0)
                else:
                    self.program.most([stored, (int(self.made[op]), -1.0)], 0.0)

    def _in_place(self) -> None:
        """A value that was overwritten is not there any more."""
        for op in self._forward:
            if not self.needed[op]:
                continue
            for way in self.ways.first_ways(op):
                for v in self._weighty(v for v in self.tables.overwritten_by[way] if v >= 0):
                    writer = int(self.tables.writer[v])
                    overwrites = (int(self.way[way]), 1.0)
                    if self.held[v] >= 0:
                        self.program.most([overwrites, (int(self.held[v]), 1.0)], 1.0)
                        if self._last_sure_reader(v) > op:
                            self.program.most([overwrites, (int(self.early[writer]), -1.0)], 0.0)

    def _last_sure_reader(self, value: int) -> int:
        """The last needed forward op whose first compute always reads ``value``, or -1."""
        readers = self._sure_readers.get(value, [])
        return next((op for op in reversed(readers) if op < self.loss), -1)

    @cached_property
    def _readers(self) -> dict[int, list[int]]:
        """Per weighty value, the needed ops whose first compute may read it."""
        found: dict[int, list[int]] = {}
        for op in np.flatnonzero(self.needed).tolist():
            for v in self._may_read(op):
                found.setdefault(v, []).append(op)
        return found

    @cached_property
    def _sure_readers(self) -> dict[int, list[int]]:
        """Those of them that always read it."""
        return {
            v: [op for op in ops if self._always_reads(op, v)] for v, ops in self._readers.items()
        }

    def _running(self, op: int) -> Iterator[Term]:
        """Workspace and outputs of the first compute of ``op``."""
        for way in self.ways.first_ways(op):
            yield int(self.way[way]), float(self.ways.extra[way]) / self.bytes_unit

    @property
    def _room(self) -> float:
        return SCALE - self.graph.resident_bytes / self.bytes_unit

    def _forward_rows(self) -> None:
        """While a needed forward op first runs."""
        last = {
            v: self._last_sure_reader(v)
            for v in np.flatnonzero(self.weighs & (self.held >= 0)).tolist()
        }
        for op in self._forward:
            if not self.needed[op]:
                continue
            terms, constant = list(self._running(op)), 0.0
            reads = set(self._may_read(op))
            for v in reads:
                size = float(self.size[v])
                terms += [(way, size * there) for way, there in self._reading(op, v)]
            for v, reader in last.items():
                writer = int(self.tables.writer[v])
                if writer >= op or v in reads:
                    continue
                size = float(self.size[v])
                if reader > op:
                    constant += size
                    terms.append((int(self.early[writer]), -size))
                else:
                    terms.append((int(self.held[v]), size))
            self.memory_rows.append(self.program.most(terms, self._room - constant))

    def _stage_rows(self) -> None:
        """While the loss, or an op after it, first runs."""
        rest = self._kept_columns()
        weighty = np.flatnonzero(self.weighs).tolist()
        for op in self._stages:
            terms, constant = list(self._running(op)), 0.0
            for v in weighty:
                writer, size = int(self.tables.writer[v]), float(self.size[v])
                if writer < self.loss:
                    column = self.stored[v] if op == self.loss else rest.get((v, op), -1)
                    if column >= 0:
                        terms.append((int(column), size))
                elif self._time.get(writer, len(self._time)) < self._time[op]:
                    sure, least = self._surely_live(v, op)
                    if least:
                        constant += size
                        if not sure:
                            terms.append((int(self.twice[writer]), -size))
            self.memory_rows.append(self.program.most(terms, self._room - constant))

    @cached_property
    def _time(self) -> dict[int, int]:
        """Per op of a step, the step's number; the rest run before all steps."""
        return {op: number for number, step in enumerate(self.ways.steps) for op in step}

    def _surely_live(self, value: int, op: int) -> tuple[bool, bool]:
        """Of a value of an earlier step, while ``op`` runs: read by it; live if made once?"""
        if self._always_reads(op, value):
            return True, True
        later = any(
            self._time[other] > self._time[op] for other in self._sure_readers.get(value, [])
        )
        return False, bool(self.is_output[value]) or later

    def _kept_columns(self) -> dict[tuple[int, int], int]:
        """Per forward value and op after the loss: a column at least 1 while it must be there.

        It must be, while an op runs that reads it, and until the last step that reads it, unless
        it was computed after the loss began.
        """
        steps = self.ways.steps
        found: dict[tuple[int, int], int] = {}
        for v in np.flatnonzero(self.weighs & (self.stored >= 0)).tolist():
            readers = {op for op in self._readers.get(v, []) if op > self.loss}
            again = (int(self.again[self.tables.writer[v]]), -1.0)
            later = -1
            for number in range(max((self._time[op] for op in readers), default=-1), 0, -1):
                since = later
                for op in steps[number]:
                    if op not in readers:
                        if later >= 0:
                            found[v, op] = later
                        continue
                    found[v, op] = during = self.program.column()
                    if since == later:
                        since = self._since(later)
                    reading = self._reading(op, v)
                    self.program.most([*reading, (during, -1.0)], 0.0)
                    self.program.most([*reading, again, (since, -1.0)], 0.0)
                    if later >= 0:
                        self.program.most([(later, 1.0), (during, -1.0)], 0.0)
                later = since
        return found

    def _since(self, later: int) -> int:
        """A column at least as large as ``later``."""
        column = self.program.column()
        if later >= 0:
            self.program.most([(later, 1.0), (column, -1.0)], 0.0)
        return column
