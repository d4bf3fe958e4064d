"""The bound model's columns, and its rows of the forward pass.

:mod:`rematbench.engines.joint.model` says what the columns mean, and why the rows hold in every
plan.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from rematbench.engines.joint.ways import Ways
from rematbench.engines.lp.program import Column, LinearProgram, Term
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import IntArray

SCALE = 100.0
"""What the budget, and the cost of every op once, are scaled to."""
NEGLIGIBLE = 1e-5
"""Values below this fraction of the budget are taken to be always there, without size."""


class Moments:
    """Columns for one graph, one budget and some moments.

    Args:
        ways: the allowed ways.
        budget: in bytes.
        moments: numbers of steps (:attr:`~rematbench.engines.joint.ways.Ways.steps`),
            increasing; the first is 0, the loss.
        heavy: forward ops; while these first run, what the rest of the forward pass needs is
            live, or computed again, from what is live.

    Attributes:
        program: for HiGHS.
        unit: cost per unit of the program's objective.
        memory_rows: the rows whose upper limit moves with the budget.
        way: per implementation, its column, or -1.
        deferred: per op, its column, or -1.
        stored: per moment and value, its column, or -1.
        recomputed: per moment and op, its column, or -1.
        live_through: per moment and value, its column, or -1.
        recompute_ways: per moment and op, where there is a choice: (column, extra bytes) of each.
    """

    def __init__(
        self, ways: Ways, budget: int, moments: Sequence[int], heavy: Collection[int] = ()
    ) -> None:
        self.heavy = heavy
        self.ways, self.graph, self.tables = ways, ways.graph, ways.graph.tables
        self.moments, self.ends = list(moments), [*moments[1:], len(ways.steps)]
        tables = self.tables
        self.bytes_unit = budget / SCALE
        self.needed = ways.surely_needed
        loss = self.graph.loss_index
        assert loss is not None
        self.loss, self._forward = loss, range(loss)
        self.unit = (ways.least_cost or 1.0) / SCALE
        self.size = tables.value_bytes / self.bytes_unit
        self.weighs = ~tables.resident & (tables.value_bytes > NEGLIGIBLE * budget)
        self.is_output = tables.is_output
        self.program = LinearProgram()
        self.memory_rows: list[int] = []
        self._reads_of = [frozenset(tables.reads[way].tolist()) for way in range(len(tables.op_of))]
        self._columns()
        self._choices()
        self._first_store()
        self._in_place()
        self._forward_rows()

    @property
    def _stages(self) -> list[int]:
        return [op for step in self.ways.steps for op in step if self.needed[op]]

    @cached_property
    def _time(self) -> dict[int, int]:
        """Per op of a step, the step's number; the rest run before all steps."""
        return {op: number for number, step in enumerate(self.ways.steps) for op in step}

    @cached_property
    def useful(self) -> BoolArray:
        """Per moment and forward op: may a step's first compute, from then on, go back to it?"""
        writer, found = self.tables.writer, []
        mark = np.zeros(self.loss, dtype=bool)
        for start, end in reversed(list(zip(self.moments, self.ends, strict=True))):
            for op in (op for step in self.ways.steps[start:end] for op in step):
                for v in {v for way in self.ways.first_ways(op) for v in self._reads_of[way]}:
                    if 0 <= writer[v] < self.loss:
                        mark[writer[v]] = True
            for op in reversed(self._forward):
                if mark[op]:
                    mark[[writer[v] for v in self.ways.surely_read(op) if writer[v] >= 0]] = True
            found.append(mark.copy())
        return np.array(found[::-1])

    def _columns(self) -> None:
        ops, values, column = len(self.graph.ops), len(self.graph.values), self.program.column
        shape = len(self.moments), values
        self.way = np.full(len(self.tables.op_of), -1, dtype=np.int64)
        self.retained = np.full(values, -1, dtype=np.int64)
        self.stored, self.live_through = (np.full(shape, -1, dtype=np.int64) for _ in range(2))
        self.recomputed = np.full((len(self.moments), ops), -1, dtype=np.int64)
        self.recompute_ways: list[dict[int, list[Term]]] = [{} for _ in self.moments]
        self.repeated, self.computed, self.deferred = (
            np.full(ops, -1, dtype=np.int64) for _ in range(3)
        )
        for op in range(ops):
            once_more = float(self.tables.cost[self.ways.allowed[op]].min()) / self.unit
            if self.needed[op]:
                costs = self.tables.cost / self.unit
                for way in self.ways.first_ways(op):
                    self.way[way] = column(float(costs[way]), integral=True)
                if op in self.ways.deferrable:
                    least = float(costs[self.ways.first_ways(op)].min())
                    self.deferred[op] = column(least, integral=True)
            more = self.repeated if self.needed[op] else self.computed
            more[op] = column(once_more, integral=True)
            if op < self.loss:
                self._forward_columns(op)

    def _forward_columns(self, op: int) -> None:
        column, weighty = self.program.column, self._weighty(self.tables.writes[op])
        if self.needed[op]:
            self.retained[weighty] = [column() for _ in weighty]
        for number in range(len(self.moments)):
            if number and not self.useful[number, op]:
                return
            options = self._options[op]
            if len(options) == 1:
                self.recomputed[number, op] = column(options[0][0] / self.unit, integral=True)
            else:
                self.recomputed[number, op] = again = column(integral=True)
                chosen = [column(cost / self.unit, integral=True) for cost, _ in options]
                extras = [extra for _, extra in options]
                self.recompute_ways[number][op] = list(zip(chosen, extras, strict=True))
                self.program.at_most([again], chosen)
            for v in weighty:
                self.stored[number, v] = column(integral=True)
                if number:
                    self.live_through[number - 1, v] = column()

    @cached_property
    def _options(self) -> list[list[tuple[float, float]]]:
        """Per op: (cost, extra in the rows' unit) of the ways to compute it again that matter."""
        found = []
        for op in range(len(self.graph.ops)):
            ways = self.ways.allowed[op].tolist()
            options: list[tuple[float, float]] = []
            for way in sorted(ways, key=lambda w: (self.tables.cost[w], self.ways.extra[w])):
                extra = float(self.ways.extra[way]) / self.bytes_unit
                if not options or extra < options[-1][1]:
                    options.append((float(self.tables.cost[way]), extra))
            found.append(options)
        return found

    def _weighty(self, values: Iterable[int] | IntArray) -> list[int]:
        return [int(v) for v in values if self.weighs[v]]

    def _reading(self, op: int, value: int) -> list[Column]:
        """Does the first compute of ``op``, where it is not deferred, read ``value``?"""
        ways = self.ways.first_ways(op)
        return [self.way[way] for way in ways if value in self._reads_of[way]]

    @cached_property
    def _always(self) -> list[frozenset[int]]:
        """Per op, what all ways of its first compute read."""
        return [
            frozenset.intersection(*(self._reads_of[way] for way in self.ways.first_ways(op)))
            for op in range(len(self.graph.ops))
        ]

    def _choices(self) -> None:
        for op in np.flatnonzero(self.needed).tolist():
            ways = [*self.way[self.ways.first_ways(op)], self.deferred[op]]
            self.program.at_most(ways, [], 1.0)
            self.program.at_most([], ways, -1.0)

    def _may_read(self, op: int) -> list[int]:
        """Weighty values that some way of computing ``op`` first reads."""
        found = {int(v) for way in self.ways.first_ways(op) for v in self.tables.reads[way]}
        return self._weighty(sorted(found))

    def _first_store(self) -> None:
        """What is stored when the loss begins was retained, or computed."""
        for op in self._forward:
            for v in self._weighty(self.tables.writes[op]):
                made = [self.retained[v], self.repeated[op], self.computed[op]]
                self.program.at_most([self.stored[0, v]], made)

    def _in_place(self) -> None:
        """A value that was overwritten is not there any more."""
        for op in self._forward:
            if not self.needed[op]:
                continue
            for way in self.ways.first_ways(op):
                for v in self._weighty(v for v in self.tables.overwritten_by[way] if v >= 0):
                    if self.retained[v] < 0:
                        continue
                    self.program.at_most([self.way[way], self.retained[v]], [], 1.0)
                    if self._last_sure_reader(v) > op:
                        again = self.repeated[self.tables.writer[v]]
                        self.program.at_most([self.way[way]], [again])

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
        return {v: [op for op in ops if v in self._always[op]] for v, ops in self._readers.items()}

    def _running(self, op: int) -> Iterator[Term]:
        """Workspace and outputs of the first compute of ``op``."""
        for way in self.ways.first_ways(op):
            yield self.way[way], float(self.ways.extra[way]) / self.bytes_unit

    def _fits(self, terms: Iterable[Term], constant: float) -> None:
        """A memory row: these terms, the constant and what is resident are within the budget."""
        room = SCALE - self.graph.resident_bytes / self.bytes_unit
        self.memory_rows.append(self.program.row(terms, room - constant))

    def _forward_rows(self) -> None:
        """While a needed forward op first runs."""
        last = {
            v: self._last_sure_reader(v)
            for v in np.flatnonzero(self.weighs & (self.retained >= 0)).tolist()
        }
        for op in self._forward:
            if not self.needed[op]:
                continue
            terms, constant = list(self._running(op)), 0.0
            live = self._live_columns(op) if op in self.heavy else {}
            reads = set(self._may_read(op))
            for v in reads:
                size = float(self.size[v])
                terms += [(way, size) for way in self._reading(op, v)]
            for v, reader in last.items():
                writer = int(self.tables.writer[v])
                if writer >= op or v in reads:
                    continue
                size = float(self.size[v])
                if v in live:
                    terms.append((live[v], size))
                elif reader > op:
                    constant += size
                    terms.append((self.repeated[writer], -size))
                else:
                    terms.append((self.retained[v], size))
            self._fits(terms, constant)

    def _live_columns(self, now: int) -> dict[int, int]:
        """Per forward value of an op before ``now``: is it live while ``now`` first runs?

        What is read between then and the loss is, or is computed again; so is what that reads,
        and what is stored.
        """
        done = [op for op in range(now) if self.needed[op]]
        again = {op: self.program.column() for op in done}
        live: dict[int, int] = {}
        for op in done:
            self.program.at_most([again[op]], [self.repeated[op]])
            for v in self._weighty(self.tables.writes[op]):
                if v in self._always[now]:
                    continue
                live[v] = self.program.column()
                there = live[v], again[op]
                if self._last_sure_reader(v) > now:
                    self.program.at_most([], there, -1.0)
                self.program.at_most([self.stored[0, v]], there)
                self.program.at_most([self.retained[v]], [live[v]])
        for op in done:
            for v in self._weighty(self.ways.surely_read(op)):
                if v in live:
                    there = live[v], again[int(self.tables.writer[v])]
                    self.program.at_most([again[op]], there)
        return live
