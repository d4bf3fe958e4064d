"""The bound model's columns: what it says of a plan, at some moments, and facts of the graph.

A moment is the start of the first compute of the loss, or of some later step. What runs between
it and the next one is a stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np

from rematbench.engines.joint.implementations import AllowedImplementations
from rematbench.engines.lp.program import Column, LinearProgram, Term
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import IntArray

SCALE = 100.0
"""What the budget, and the cost of every op once, are scaled to."""
NEGLIGIBLE = 1e-5
"""Values below this fraction of the budget are taken to be always there, without size."""


class Columns:
    """Numbers of the program's columns, -1 where there is none.

    Args:
        implementations: the allowed implementations.
        budget: in bytes.
        moments: numbers of steps
            (:attr:`~rematbench.engines.joint.implementations.AllowedImplementations.steps`),
            increasing; the first is 0, the loss.

    Attributes:
        program: for HiGHS; :func:`~rematbench.engines.joint.model.bound_model` adds its rows.
        memory_rows: the rows whose upper limit moves with the budget.
        ends: per moment, the step at which its stage ends.
        unit: cost per unit of the program's objective.
        size: per value, its bytes in the memory rows' unit, and ``weighs``: do they count?
        implementation: per implementation: does the first compute of its op use it, in its place?
        retained: per value of a needed forward op: is it live at the loss, since its first compute?
        stored: per moment and value: is it live then?
        live_through: per moment and value: is it live all through the stage, and stored after it?
        recomputed: per moment and forward op: is it computed in the stage?
        recompute_implementations: per moment and op, where there is a choice: (column, extra bytes)
            of each.
        repeated: per needed op: is it computed more than once; a forward one, before the loss?
        computed: per optional op: is it computed at all; a forward one, before the loss?
        deferred: per op that makes only outputs: is it first computed later than in its place?
    """

    def __init__(
        self, implementations: AllowedImplementations, budget: int, moments: Sequence[int]
    ) -> None:
        assert implementations.graph.loss_index is not None
        self.implementations, self.tables, self.needed = (
            implementations,
            implementations.graph.tables,
            implementations.surely_needed,
        )
        self.loss, self.forward = (
            implementations.graph.loss_index,
            range(implementations.graph.loss_index),
        )
        self.moments, self.ends = tuple(moments), (*moments[1:], len(implementations.steps))
        self.unit, self.bytes_unit = (implementations.least_cost or 1.0) / SCALE, budget / SCALE
        self.size = self.tables.value_bytes / self.bytes_unit
        self.weighs = ~self.tables.resident & (self.tables.value_bytes > NEGLIGIBLE * budget)
        self.program, self.memory_rows = LinearProgram(), list[int]()
        count, ops, values = (
            len(moments),
            len(implementations.graph.ops),
            len(implementations.graph.values),
        )
        self.implementation, self.retained = _none(len(self.tables.op_of)), _none(values)
        self.stored, self.live_through = _none(count, values), _none(count, values)
        self.recomputed = _none(count, ops)
        self.recompute_implementations: list[dict[int, list[Term]]] = [{} for _ in moments]
        self.repeated, self.computed, self.deferred = _none(ops), _none(ops), _none(ops)
        for op in range(ops):
            self._of_op(op)

    def _of_op(self, op: int) -> None:
        """Columns of an op."""
        column, cost = self.program.column, self.tables.cost
        once_more = float(cost[self.implementations.allowed[op]].min()) / self.unit
        if self.needed[op]:
            costs = cost[self.implementations.first_implementations(op)] / self.unit
            for implementation, each in zip(
                self.implementations.first_implementations(op), costs.tolist(), strict=True
            ):
                self.implementation[implementation] = column(each, integral=True)
            if op in self.implementations.deferrable:
                self.deferred[op] = column(float(costs.min()), integral=True)
        more = self.repeated if self.needed[op] else self.computed
        more[op] = column(once_more, integral=True)
        if op < self.loss:
            self._of_forward(op)

    def _of_forward(self, op: int) -> None:
        """Columns of a forward op, and of its values."""
        column, weighty = self.program.column, self.weighty(self.tables.writes[op])
        if self.needed[op]:
            self.retained[weighty] = [column() for _ in weighty]
        for number in range(len(self.moments)):
            if number and not self.useful[number, op]:
                return
            options = self.options[op]
            if len(options) == 1:
                self.recomputed[number, op] = column(options[0][0] / self.unit, integral=True)
            else:
                self.recomputed[number, op] = again = column(integral=True)
                chosen = [column(cost / self.unit, integral=True) for cost, _ in options]
                extras = [extra for _, extra in options]
                self.recompute_implementations[number][op] = list(zip(chosen, extras, strict=True))
                self.program.at_most([again], chosen)
            for v in weighty:
                self.stored[number, v] = column(integral=True)
                if number:
                    self.live_through[number - 1, v] = column()

    @cached_property
    def reads_of(self) -> list[frozenset[int]]:
        """Per implementation, the values that it reads."""
        reads = self.tables.reads
        return [
            frozenset(reads[implementation].tolist())
            for implementation in range(len(self.tables.op_of))
        ]

    @property
    def stages(self) -> list[int]:
        """The needed ops from the loss on."""
        return [op for step in self.implementations.steps for op in step if self.needed[op]]

    @cached_property
    def time(self) -> dict[int, int]:
        """Per op of a step, the step's number; the rest run before all steps."""
        return {op: number for number, step in enumerate(self.implementations.steps) for op in step}

    @cached_property
    def useful(self) -> BoolArray:
        """Per moment and forward op: may a step's first compute, from then on, go back to it?"""
        writer, found = self.tables.writer, []
        mark = np.zeros(self.loss, dtype=bool)
        for start, end in reversed(list(zip(self.moments, self.ends, strict=True))):
            for op in (op for step in self.implementations.steps[start:end] for op in step):
                for v in {
                    v
                    for implementation in self.implementations.first_implementations(op)
                    for v in self.reads_of[implementation]
                }:
                    if 0 <= writer[v] < self.loss:
                        mark[writer[v]] = True
            for op in reversed(self.forward):
                if mark[op]:
                    mark[
                        [writer[v] for v in self.implementations.surely_read(op) if writer[v] >= 0]
                    ] = True
            found.append(mark.copy())
        return np.array(found[::-1])

    @cached_property
    def options(self) -> list[list[tuple[float, float]]]:
        """Per op: (cost, extra in the rows' unit) of what may compute it again at best."""
        found = []
        for op in range(len(self.implementations.graph.ops)):
            implementations = self.implementations.allowed[op].tolist()
            options: list[tuple[float, float]] = []
            for implementation in sorted(
                implementations, key=lambda w: (self.tables.cost[w], self.implementations.extra[w])
            ):
                extra = float(self.implementations.extra[implementation]) / self.bytes_unit
                if not options or extra < options[-1][1]:
                    options.append((float(self.tables.cost[implementation]), extra))
            found.append(options)
        return found

    def weighty(self, values: Iterable[int] | IntArray) -> list[int]:
        """Those of some values that are not negligible."""
        return [int(v) for v in values if self.weighs[v]]

    def reading(self, op: int, value: int) -> list[Column]:
        """Does the first compute of ``op``, where it is not deferred, read ``value``?"""
        implementations = self.implementations.first_implementations(op)
        return [
            self.implementation[implementation]
            for implementation in implementations
            if value in self.reads_of[implementation]
        ]

    @cached_property
    def always(self) -> list[frozenset[int]]:
        """Per op, what all implementations of its first compute read."""
        return [
            frozenset.intersection(
                *(
                    self.reads_of[implementation]
                    for implementation in self.implementations.first_implementations(op)
                )
            )
            for op in range(len(self.implementations.graph.ops))
        ]

    def may_read(self, op: int) -> list[int]:
        """Weighty values that some way of computing ``op`` first reads."""
        found = {
            int(v)
            for implementation in self.implementations.first_implementations(op)
            for v in self.tables.reads[implementation]
        }
        return self.weighty(sorted(found))

    def last_sure_reader(self, value: int) -> int:
        """The last needed forward op whose first compute always reads ``value``, or -1."""
        readers = self.sure_readers.get(value, [])
        return next((op for op in reversed(readers) if op < self.loss), -1)

    @cached_property
    def readers(self) -> dict[int, list[int]]:
        """Per weighty value, the needed ops whose first compute may read it."""
        found: dict[int, list[int]] = {}
        for op in np.flatnonzero(self.needed).tolist():
            for v in self.may_read(op):
                found.setdefault(v, []).append(op)
        return found

    @cached_property
    def sure_readers(self) -> dict[int, list[int]]:
        """Those of them that always read it."""
        return {v: [op for op in ops if v in self.always[op]] for v, ops in self.readers.items()}

    def running(self, op: int) -> Iterator[Term]:
        """Workspace and outputs of the first compute of ``op``."""
        for implementation in self.implementations.first_implementations(op):
            yield (
                self.implementation[implementation],
                float(self.implementations.extra[implementation]) / self.bytes_unit,
            )

    def fits(self, terms: Iterable[Term], constant: float) -> None:
        """A memory row: these terms, the constant and what is resident are within the budget."""
        free_bytes = SCALE - self.implementations.graph.resident_bytes / self.bytes_unit
        self.memory_rows.append(self.program.row(terms, free_bytes - constant))

    def at_least(self, other: Column) -> int:
        """A column at least as large as another."""
        column = self.program.column()
        if other >= 0:
            self.program.at_most([other], [column])
        return column


def _none(*shape: int) -> IntArray:
    return np.full(shape, -1, dtype=np.int64)
