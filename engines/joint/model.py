"""The bound model: what every plan of a graph must pay, whichever implementations it takes.

What it says of a plan is the meaning of its columns
(:class:`~rematbench.engines.joint.columns.Columns`).
They satisfy the rows in any plan in which the ops that every plan needs first run in program
order, but for deferrable ones, and for pairs of
:attr:`~rematbench.engines.joint.implementations.AllowedImplementations.steps`, in either order. So
the optimum is a lower bound of such plans' cost: each op costs at least its cheapest implementation
for each time that it is counted. The memory rows are those of the first computes, and of what is
computed
again: then, what it reads and makes, and what is live all through the stage. Values that were
computed only once stay live from then to their last read. Optional ops may run at any time. Before
the loss, nothing is claimed about memory while something is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rematbench.engines.joint import forward
from rematbench.engines.joint.columns import Columns
from rematbench.engines.joint.implementations import AllowedImplementations
from rematbench.engines.lp.program import Column, Term
from rematbench.graphs.ir import IntArray


def bound_model(
    implementations: AllowedImplementations,
    budget: int,
    moments: Sequence[int] = (0,),
    heavy: Collection[int] = (),
) -> Columns:
    """The program for one graph, one budget; by default of one moment, the loss.

    Args:
        implementations: the allowed implementations.
        budget: in bytes.
        moments: numbers of steps, increasing; the first is 0, the loss.
        heavy: see :func:`~rematbench.engines.joint.forward.memory`.
    """
    m = Columns(implementations, budget, moments)
    forward.choices(m)
    forward.first_store(m)
    forward.in_place(m)
    forward.memory(m, heavy)
    gradients = Gradients(m)
    _later_reads(m)
    _closure(m)
    _carried(m)
    _all_stages(m)
    _stage_memory(m, gradients)
    for stage in range(len(m.moments)):
        _recompute_memory(m, gradients, stage)
    return m


def _stage_of(m: Columns, op: int) -> int:
    return int(np.searchsorted(m.moments, m.time[op], side="right")) - 1


def _is_moment(m: Columns, op: int) -> bool:
    """Is the start of its first compute a moment, whatever the plan?"""
    number = m.time[op]
    return len(m.implementations.steps[number]) == 1 and number in m.moments


def _any_recompute(m: Columns, stage: int, op: int) -> IntArray:
    """Is forward ``op`` computed in ``stage`` or later?"""
    return m.recomputed[stage:, op]


def _later_reads(m: Columns) -> None:
    """What a first compute after the loss reads is stored, or computed again before it."""
    for op in m.stages:
        stage = _stage_of(m, op)
        for v in m.may_read(op):
            writer = int(m.tables.writer[v])
            if writer >= m.loss:
                if not m.needed[writer]:
                    m.program.at_most(m.reading(op, v), [m.computed[writer]])
                continue
            stored = m.stored[stage, v]
            again = -1 if _is_moment(m, op) else m.recomputed[stage, writer]
            m.program.at_most(m.reading(op, v), [stored, again])
            if m.deferred[op] >= 0 and v in m.always[op]:
                again = _any_recompute(m, stage, writer)
                m.program.at_most([m.deferred[op]], [stored, *again])


def _closure(m: Columns) -> None:
    """What every implementation of an op reads is there, or computed, where it runs again."""
    for op, v, writer in _forward_reads(m):
        for stage in np.flatnonzero(m.recomputed[:, op] >= 0).tolist():
            there = m.stored[stage, v], m.recomputed[stage, writer]
            m.program.at_most([m.recomputed[stage, op]], there)


def _forward_reads(m: Columns) -> Iterator[tuple[int, int, int]]:
    """Forward op, a value that it surely reads, and the other forward op that writes this."""
    for op in m.forward:
        for v in m.weighty(m.implementations.surely_read(op)):
            writer = int(m.tables.writer[v])
            if writer < m.loss and writer != op:
                yield op, v, writer


def _carried(m: Columns) -> None:
    """What is stored was stored before, and all the while, or has been computed again."""
    for before, v in np.argwhere(m.live_through >= 0).tolist():
        again = m.recomputed[before, m.tables.writer[v]]
        for column in (m.stored[before, v], m.live_through[before, v]):
            m.program.at_most([m.stored[before + 1, v]], [again, column])


def _all_stages(m: Columns) -> None:
    """The rows of one moment for all stages together, so that more moments bound no less."""
    if len(m.moments) == 1:
        return
    ever = np.full(m.loss, -1, dtype=np.int64)
    for op in m.forward:
        ever[op] = m.program.column(integral=True)
        stages = [again for again in m.recomputed[:, op] if again >= 0]
        m.program.at_most([ever[op]], stages)
        for again in stages:
            m.program.at_most([again], [ever[op]])
    for op, v, writer in _forward_reads(m):
        m.program.at_most([ever[op]], [m.stored[0, v], ever[writer]])
    for v in np.flatnonzero(m.live_through[0] >= 0).tolist():
        _stays(m, v, int(ever[m.tables.writer[v]]))


def _stays(m: Columns, v: int, ever: int) -> None:
    """What is never computed again is there at all moments, and between them, till it is read.

    Args:
        v: a forward value.
        ever: the column that says whether it is computed again.
    """
    since = -1
    for stage in range(len(m.moments) - 1, 0, -1):
        span = m.implementations.steps[m.moments[stage] : m.ends[stage]]
        read = [r for op in (op for step in span for op in step) if (r := m.reading(op, v))]
        if read or since >= 0:
            since = m.at_least(since)
        for reading in read:
            m.program.at_most(reading, [ever, since])
        if since >= 0:
            for column in (m.live_through[stage - 1, v], m.stored[stage - 1, v]):
                m.program.at_most([since], [column])


def _stage_memory(m: Columns, gradients: Gradients) -> None:
    """While the loss, or an op after it, first runs; if it is deferred, at its place."""
    rest = _kept_columns(m)
    forward = np.flatnonzero(m.weighs & (m.stored[0] >= 0)).tolist()
    for op in m.stages:
        number, stage = m.time[op], _stage_of(m, op)
        constant, terms = gradients.at(number, m.always[op].__contains__, op)
        stored = [(m.stored[stage, v], float(m.size[v])) for v in forward]
        if not _is_moment(m, op):
            if number in m.moments and op == m.implementations.steps[number][0]:
                _pair_row(m, gradients, number, stored)
            stored = [(rest.get((v, op), -1), float(m.size[v])) for v in forward]
        m.fits([*terms, *m.running(op), *stored], constant)


def _pair_row(m: Columns, gradients: Gradients, number: int, stored: list[Term]) -> None:
    """At a moment that one of a pair begins."""
    step = m.implementations.steps[number]
    least = min(
        float(m.implementations.extra[w])
        for op in step
        for w in m.implementations.first_implementations(op)
    )
    constant, terms = gradients.before(number)
    m.fits([*terms, *stored], constant + least / m.bytes_unit)


def _recompute_memory(m: Columns, gradients: Gradients, stage: int) -> None:
    """While a forward op is computed again, at whichever position of a stage."""
    constant, relief = linear_minorant(list(gradients.positions(stage)))
    through = m.live_through[stage]
    for op in np.flatnonzero(m.recomputed[stage] >= 0).tolist():
        again = m.recomputed[stage, op]
        running = m.recompute_implementations[stage].get(op) or [(again, m.options[op][0][1])]
        reads = m.weighty(m.implementations.surely_read(op))
        columns = through.copy()
        columns[m.tables.writes[op]] = -1
        columns[reads] = [_either(m, again, column) for column in through[reads]]
        there = columns >= 0
        terms = zip(columns[there].tolist(), m.size[there].tolist(), strict=True)
        m.fits([*running, *terms, *relief.items()], constant)


def _either(m: Columns, one: Column, other: Column) -> Column:
    """A column at least as large as two others, or the first where the second is -1."""
    if other < 0:
        return one
    column = m.at_least(one)
    m.program.at_most([other], [column])
    return column


def _kept_columns(m: Columns) -> dict[tuple[int, int], int]:
    """Per forward value and op after the loss: a column at least 1 while it must be there.

    It must be, while an op runs that reads it, and from its stage's beginning to the last
    step of the stage that reads it, or to the stage's end if it is stored then, unless it is
    computed in the stage.
    """
    found: dict[tuple[int, int], int] = {}
    for stage, v in np.argwhere(m.weighs & (m.stored >= 0)).tolist():
        later = int(m.live_through[stage, v])
        for number in range(m.ends[stage] - 1, m.moments[stage] - 1, -1):
            later = _kept_in_step(m, found, v, stage, number, later)
    return found


def _kept_in_step(
    m: Columns, found: dict[tuple[int, int], int], v: int, stage: int, number: int, later: int
) -> int:
    """The columns of one step; returns that of the time before it."""
    writer, since = int(m.tables.writer[v]), later
    for op in m.implementations.steps[number]:
        if op == m.loss or op not in m.readers.get(v, ()):
            if later >= 0:
                found[v, op] = later
            continue
        found[v, op] = during = m.program.column()
        if since == later:
            since = m.at_least(later)
        reading = m.reading(op, v)
        m.program.at_most(reading, [during])
        m.program.at_most(reading, [m.recomputed[stage, writer], since])
        if m.deferred[op] >= 0 and v in m.always[op]:
            again = _any_recompute(m, stage, writer)
            m.program.at_most([m.deferred[op]], [since, *again])
        if later >= 0:
            m.program.at_most([later], [during])
    return since


@dataclass(frozen=True)
class Gradients:
    """Bytes of values made since the loss, per step: a constant, and columns that change it.

    Each is live from its op's first compute to its last read, unless that was not the only one:
    then nothing is claimed but what an op that runs reads.

    Attributes:
        m: the columns.
    """

    m: Columns

    @cached_property
    def later(self) -> list[int]:
        """Values of steps that are not negligible."""
        m = self.m
        return [v for v in np.flatnonzero(m.weighs).tolist() if m.tables.writer[v] in m.time]

    def at(
        self, number: int, read_here: Callable[[int], bool], running: int = -1
    ) -> tuple[float, list[Term]]:
        """Bytes of values made since the loss by earlier steps, at a step.

        Args:
            number: of the step.
            read_here: must the step read a value from now on?
            running: the op that runs, or -1; what it reads is there even where it was repeated.
        """
        m, constant, terms, counted = self.m, 0.0, list[Term](), set[int]()
        missing: dict[int, float] = {}
        for v in self.later:
            writer, size = int(m.tables.writer[v]), float(m.size[v])
            if m.time[writer] >= number:
                continue
            reads = read_here(v)
            later = any(m.time[op] > number for op in m.sure_readers.get(v, []))
            if not (reads or later or m.tables.is_output[v]):
                last, least, more = self.waiting.get(v, (-1, 0.0, []))
                if last >= number:  # it, or a copy of it, is there, unless it is made again
                    constant += least
                    terms += [*more, (m.repeated[writer], -size)]
                continue
            constant += size
            counted.add(v)
            if not reads or running < 0 or m.deferred[running] >= 0:
                terms.append((m.repeated[writer], -size))
            if m.deferred[writer] >= 0:
                missing[writer] = missing.get(writer, 0.0) + size
        for op, size in missing.items():  # where it is deferred, what it reads is there instead
            instead = [v for v in self.later if v in m.always[op] and v not in counted]
            counted.update(instead)
            least = min(size, sum(float(m.size[v]) for v in instead))
            terms.append((m.deferred[op], least - size))
            writers = m.repeated[m.tables.writer[instead]]
            terms += zip(writers, -np.minimum(least, m.size[instead]), strict=True)
        return constant, terms

    def before(self, number: int) -> tuple[float, list[Term]]:
        """Of values made since the loss: what is live just before a step."""
        m = self.m
        reads = {v for op in m.implementations.steps[number] for v in m.always[op]}
        return self.at(number, reads.__contains__)

    def positions(self, stage: int) -> Iterator[tuple[float, list[Term]]]:
        """The same at every position of a stage between two first computes."""
        m, steps = self.m, self.m.implementations.steps
        for number in range(m.moments[stage], m.ends[stage]):
            if len(steps[number]) > 1:
                both = frozenset.intersection(*(m.always[op] for op in steps[number]))
                yield self.at(number, both.__contains__)
            if number + 1 < len(steps):
                yield self.before(number + 1)
            else:
                yield self.at(len(steps), lambda _: False)

    @cached_property
    def waiting(self) -> dict[int, tuple[int, float, list[Term]]]:
        """What the last op that may read a value finds of it, or of a copy of it.

        Per value made since the loss that not all implementations of that op read: the op's step,
        the bytes that each implementation reads of either at least, and columns with what they read
        beyond that.
        """
        m, found = self.m, {}
        copies = {v: [v] for v in self.later}
        for op in m.implementations.optional_later:
            for v in m.always[op] & copies.keys():
                copies[v] += m.weighty(m.tables.writes[op])
        for v, either in copies.items():
            readers = {op for u in either for op in m.readers.get(u, []) if op in m.time}
            if not readers or any(m.deferred[op] >= 0 for op in readers):
                continue
            last = max(readers, key=m.time.__getitem__)
            if v not in m.always[last]:
                found[v] = m.time[last], *self._read_of(either, last)
        return found

    def _read_of(self, either: list[int], op: int) -> tuple[float, list[Term]]:
        """A value's bytes, or its copies', that all implementations read; what some read beyond."""
        m, size = self.m, self.m.size
        most = float(size[either[0]])
        read = {
            implementation: min(
                most,
                max((float(size[u]) for u in either if u in m.reads_of[implementation]), default=0),
            )
            for implementation in m.implementations.first_implementations(op)
        }
        least = min(read.values())
        return least, [
            (m.implementation[implementation], more - least)
            for implementation, more in read.items()
            if more > least
        ]


def linear_minorant(positions: list[tuple[float, list[Term]]]) -> tuple[float, dict[int, float]]:
    """A linear function that is nowhere larger than any of some, for columns of 0 and 1."""
    constant = min(live for live, _ in positions)
    columns = sorted({int(column) for _, terms in positions for column, _ in terms})
    place = {column: i for i, column in enumerate(columns)}
    reliefs = np.zeros((len(positions), len(columns)))
    for row, (_, terms) in enumerate(positions):
        for column, size in terms:
            reliefs[row, place[int(column)]] += size
    free_bytes = np.array([live for live, _ in positions]) - constant
    least = np.minimum(reliefs.min(axis=0, initial=0.0), 0.0)
    for i in np.argsort(least).tolist():
        relief = reliefs[:, i]
        rising = (relief + free_bytes)[relief < 0].min(initial=0.0)
        least[i] = max(least[i], rising)
        free_bytes -= np.maximum(least[i] - relief, 0.0)
    return constant, {column: float(least[i]) for column, i in place.items() if least[i] < 0}
