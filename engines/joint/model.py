"""The bound model: what every plan of a graph must pay, whichever ways it takes.

It looks at some moments: the starts of the first computes of the loss and of some later steps.
What runs between a moment and the next is a stage. Of each plan it says:

- ``stored[k, v]``: is v live at moment k? ``retained[v]``: at the loss, since its first compute?
- ``recomputed[k, x]``: is forward op x computed in stage k?
- ``live_through[k, v]``: is v live all through stage k, and stored after it?
- ``repeated[x]``: is op x computed more than once; a needed forward op, before the loss?
- ``computed[x]``: is optional op x computed at all; a forward one, before the loss?
- ``way[i]``: does the first compute of its op use implementation i, in its place?
- ``deferred[x]``: is op x, which makes only outputs, first computed later than in its place?

These satisfy the rows below in any plan in which the ops that every plan needs first run in
program order, but for deferrable ones, and for pairs of
:attr:`~rematbench.engines.joint.ways.Ways.steps`, in either order. So the optimum is a lower
bound of such
plans' cost: each op costs at least its cheapest way for each time that it is counted. The memory
rows are those of the first computes, and of what is computed again: then, what it reads and makes,
and what is live all through the stage. Values that were computed only once stay live from then to
their last read. Optional ops may run at any time. Before the loss, nothing is claimed about memory
while something is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property

import numpy as np

from rematbench.engines.joint.moments import Moments
from rematbench.engines.joint.ways import Ways
from rematbench.engines.lp.program import Column, Term
from rematbench.graphs.ir import IntArray


class BoundModel(Moments):
    """The program for one graph, one budget; by default of one moment, the loss.

    Its arguments and attributes are those of :class:`~rematbench.engines.joint.moments.Moments`.
    """

    def __init__(
        self,
        ways: Ways,
        budget: int,
        moments: Sequence[int] = (0,),
        heavy: Collection[int] = (),
    ) -> None:
        super().__init__(ways, budget, moments, heavy)
        self._later = [
            v for v in np.flatnonzero(self.weighs).tolist() if self.tables.writer[v] in self._time
        ]
        self._reads()
        self._closure()
        self._carry()
        self._ever()
        self._stage_rows()
        for stage in range(len(self.moments)):
            self._recompute_rows(stage)

    def _stage_of(self, op: int) -> int:
        return int(np.searchsorted(self.moments, self._time[op], side="right")) - 1

    def _is_moment(self, op: int) -> bool:
        """Is the start of its first compute a moment, whatever the plan?"""
        number = self._time[op]
        return len(self.ways.steps[number]) == 1 and number in self.moments

    def _any_recompute(self, stage: int, op: int) -> IntArray:
        """Is forward ``op`` computed in ``stage`` or later?"""
        return self.recomputed[stage:, op]

    def _reads(self) -> None:
        """What a first compute after the loss reads is stored, or computed again before it."""
        for op in self._stages:
            stage = self._stage_of(op)
            for v in self._may_read(op):
                writer = int(self.tables.writer[v])
                if writer >= self.loss:
                    if not self.needed[writer]:
                        self.program.at_most(self._reading(op, v), [self.computed[writer]])
                    continue
                stored = self.stored[stage, v]
                again = -1 if self._is_moment(op) else self.recomputed[stage, writer]
                self.program.at_most(self._reading(op, v), [stored, again])
                if self.deferred[op] >= 0 and v in self._always[op]:
                    again = self._any_recompute(stage, writer)
                    self.program.at_most([self.deferred[op]], [stored, *again])

    def _closure(self) -> None:
        """What is read in all ways of an op that is computed again is there, or computed, too."""
        for op, v, writer in self._forward_reads():
            for stage in np.flatnonzero(self.recomputed[:, op] >= 0).tolist():
                there = self.stored[stage, v], self.recomputed[stage, writer]
                self.program.at_most([self.recomputed[stage, op]], there)

    def _forward_reads(self) -> Iterator[tuple[int, int, int]]:
        """Forward op, a value that it surely reads, and the other forward op that writes this."""
        for op in self._forward:
            for v in self._weighty(self.ways.surely_read(op)):
                writer = int(self.tables.writer[v])
                if writer < self.loss and writer != op:
                    yield op, v, writer

    def _carry(self) -> None:
        """What is stored was stored before, and all the while, or has been computed again."""
        for before, v in np.argwhere(self.live_through >= 0).tolist():
            again = self.recomputed[before, self.tables.writer[v]]
            for column in (self.stored[before, v], self.live_through[before, v]):
                self.program.at_most([self.stored[before + 1, v]], [again, column])

    def _ever(self) -> None:
        """The rows of one moment for all stages together, so that more moments bound no less."""
        if len(self.moments) == 1:
            return
        ever = np.full(self.loss, -1, dtype=np.int64)
        for op in self._forward:
            ever[op] = self.program.column(integral=True)
            stages = [again for again in self.recomputed[:, op] if again >= 0]
            self.program.at_most([ever[op]], stages)
            for again in stages:
                self.program.at_most([again], [ever[op]])
        for op, v, writer in self._forward_reads():
            self.program.at_most([ever[op]], [self.stored[0, v], ever[writer]])
        for v in np.flatnonzero(self.live_through[0] >= 0).tolist():
            self._stays(v, int(ever[self.tables.writer[v]]))

    def _stays(self, v: int, ever: int) -> None:
        """What is never computed again is there at all moments, and between them, till it is read.

        Args:
            v: a forward value.
            ever: the column that says whether it is computed again.
        """
        since = -1
        for stage in range(len(self.moments) - 1, 0, -1):
            span = self.ways.steps[self.moments[stage] : self.ends[stage]]
            read = [r for op in (op for step in span for op in step) if (r := self._reading(op, v))]
            if read or since >= 0:
                since = self._since(since)
            for reading in read:
                self.program.at_most(reading, [ever, since])
            if since >= 0:
                for column in (self.live_through[stage - 1, v], self.stored[stage - 1, v]):
                    self.program.at_most([since], [column])

    def _stage_rows(self) -> None:
        """While the loss, or an op after it, first runs; if it is deferred, at its place."""
        rest = self._kept_columns()
        forward = np.flatnonzero(self.weighs & (self.stored[0] >= 0)).tolist()
        for op in self._stages:
            number, stage = self._time[op], self._stage_of(op)
            constant, terms = self._gradients(number, self._always[op].__contains__, op)
            stored = [(self.stored[stage, v], float(self.size[v])) for v in forward]
            if not self._is_moment(op):
                if number in self.moments and op == self.ways.steps[number][0]:
                    self._pair_row(number, stored)
                stored = [(rest.get((v, op), -1), float(self.size[v])) for v in forward]
            self._fits([*terms, *self._running(op), *stored], constant)

    def _pair_row(self, number: int, stored: list[Term]) -> None:
        """At a moment that one of a pair begins."""
        step = self.ways.steps[number]
        least = min(float(self.ways.extra[w]) for op in step for w in self.ways.first_ways(op))
        constant, terms = self._before(number)
        self._fits([*terms, *stored], constant + least / self.bytes_unit)

    def _before(self, number: int) -> tuple[float, list[Term]]:
        """Of values made since the loss: what is live just before a step."""
        reads = {v for op in self.ways.steps[number] for v in self._always[op]}
        return self._gradients(number, reads.__contains__)

    def _positions(self, stage: int) -> Iterator[tuple[float, list[Term]]]:
        """The same at every position of a stage between two first computes."""
        steps = self.ways.steps
        for number in range(self.moments[stage], self.ends[stage]):
            if len(steps[number]) > 1:
                both = frozenset.intersection(*(self._always[op] for op in steps[number]))
                yield self._gradients(number, both.__contains__)
            if number + 1 < len(steps):
                yield self._before(number + 1)
            else:
                yield self._gradients(len(steps), lambda _: False)

    @cached_property
    def _waiting(self) -> dict[int, tuple[int, float, list[Term]]]:
        """What the last op that may read a value finds of it, or of a copy of it.

        Per value made since the loss that not all ways of that op read: the op's step, the bytes
        that each way reads of either at least, and columns with what they read beyond that.
        """
        found = {}
        copies = {v: [v] for v in self._later}
        for op in self.ways.optional_later:
            for v in self._always[op] & copies.keys():
                copies[v] += self._weighty(self.tables.writes[op])
        for v, either in copies.items():
            readers = {op for u in either for op in self._readers.get(u, []) if op in self._time}
            if not readers or any(self.deferred[op] >= 0 for op in readers):
                continue
            last = max(readers, key=self._time.__getitem__)
            if v not in self._always[last]:
                found[v] = self._time[last], *self._read_of(either, last)
        return found

    def _read_of(self, either: list[int], op: int) -> tuple[float, list[Term]]:
        """Bytes of a value, or its copies, that each way reads at least; what some read beyond."""
        size, most = self.size, float(self.size[either[0]])
        read = {
            way: min(
                most, max((float(size[u]) for u in either if u in self._reads_of[way]), default=0)
            )
            for way in self.ways.first_ways(op)
        }
        least = min(read.values())
        return least, [(self.way[way], more - least) for way, more in read.items() if more > least]

    def _gradients(
        self, number: int, read_here: Callable[[int], bool], running: int = -1
    ) -> tuple[float, list[Term]]:
        """Bytes of values made since the loss by earlier steps, at a step.

        Args:
            number: of the step.
            read_here: must the step read a value from now on?
            running: the op that runs, or -1; what it reads is there even where it was repeated.
        """
        constant, terms, counted = 0.0, list[Term](), set[int]()
        missing: dict[int, float] = {}
        for v in self._later:
            writer, size = int(self.tables.writer[v]), float(self.size[v])
            if self._time[writer] >= number:
                continue
            reads = read_here(v)
            later = any(self._time[op] > number for op in self._sure_readers.get(v, []))
            if not (reads or later or self.is_output[v]):
                last, least, more = self._waiting.get(v, (-1, 0.0, []))
                if last >= number:  # it, or a copy of it, is there, unless it is made again
                    constant += least
                    terms += [*more, (self.repeated[writer], -size)]
                continue
            constant += size
            counted.add(v)
            if not reads or running < 0 or self.deferred[running] >= 0:
                terms.append((self.repeated[writer], -size))
            if self.deferred[writer] >= 0:
                missing[writer] = missing.get(writer, 0.0) + size
        for op, size in missing.items():  # where it is deferred, what it reads is there instead
            instead = [v for v in self._later if v in self._always[op] and v not in counted]
            counted.update(instead)
            least = min(size, sum(float(self.size[v]) for v in instead))
            terms.append((self.deferred[op], least - size))
            writers = self.repeated[self.tables.writer[instead]]
            terms += zip(writers, -np.minimum(least, self.size[instead]), strict=True)
        return constant, terms

    def _recompute_rows(self, stage: int) -> None:
        """While a forward op is computed again, at whichever position of a stage."""
        constant, relief = linear_minorant(list(self._positions(stage)))
        through = self.live_through[stage]
        for op in np.flatnonzero(self.recomputed[stage] >= 0).tolist():
            again = self.recomputed[stage, op]
            running = self.recompute_ways[stage].get(op) or [(again, self._options[op][0][1])]
            reads = self._weighty(self.ways.surely_read(op))
            columns = through.copy()
            columns[self.tables.writes[op]] = -1
            columns[reads] = [self._either(again, column) for column in through[reads]]
            there = columns >= 0
            terms = zip(columns[there].tolist(), self.size[there].tolist(), strict=True)
            self._fits([*running, *terms, *relief.items()], constant)

    def _either(self, one: Column, other: Column) -> Column:
        """A column at least as large as two others, or the first where the second is -1."""
        if other < 0:
            return one
        column = self._since(one)
        self.program.at_most([other], [column])
        return column

    def _kept_columns(self) -> dict[tuple[int, int], int]:
        """Per forward value and op after the loss: a column at least 1 while it must be there.

        It must be, while an op runs that reads it, and from its stage's beginning to the last
        step of the stage that reads it, or to the stage's end if it is stored then, unless it is
        computed in the stage.
        """
        found: dict[tuple[int, int], int] = {}
        for stage, v in np.argwhere(self.weighs & (self.stored >= 0)).tolist():
            later = int(self.live_through[stage, v])
            for number in range(self.ends[stage] - 1, self.moments[stage] - 1, -1):
                later = self._kept_in_step(found, v, stage, number, later)
        return found

    def _kept_in_step(
        self, found: dict[tuple[int, int], int], v: int, stage: int, number: int, later: int
    ) -> int:
        """The columns of one step; returns that of the time before it."""
        writer, since = int(self.tables.writer[v]), later
        for op in self.ways.steps[number]:
            if op == self.loss or op not in self._readers.get(v, ()):
                if later >= 0:
                    found[v, op] = later
                continue
            found[v, op] = during = self.program.column()
            if since == later:
                since = self._since(later)
            reading = self._reading(op, v)
            self.program.at_most(reading, [during])
            self.program.at_most(reading, [self.recomputed[stage, writer], since])
            if self.deferred[op] >= 0 and v in self._always[op]:
                again = self._any_recompute(stage, writer)
                self.program.at_most([self.deferred[op]], [since, *again])
            if later >= 0:
                self.program.at_most([later], [during])
        return since

    def _since(self, later: Column) -> int:
        """A column at least as large as ``later``."""
        column = self.program.column()
        if later >= 0:
            self.program.at_most([later], [column])
        return column


def linear_minorant(positions: list[tuple[float, list[Term]]]) -> tuple[float, dict[int, float]]:
    """A linear function that is nowhere larger than any of some, for columns of 0 and 1."""
    constant = min(live for live, _ in positions)
    columns = sorted({int(column) for _, terms in positions for column, _ in terms})
    place = {column: i for i, column in enumerate(columns)}
    reliefs = np.zeros((len(positions), len(columns)))
    for row, (_, terms) in enumerate(positions):
        for column, size in terms:
            reliefs[row, place[int(column)]] += size
    room = np.array([live for live, _ in positions]) - constant
    least = np.minimum(reliefs.min(axis=0, initial=0.0), 0.0)
    for i in np.argsort(least).tolist():
        relief = reliefs[:, i]
        rising = (relief + room)[relief < 0].min(initial=0.0)
        least[i] = max(least[i], rising)
        room -= np.maximum(least[i] - relief, 0.0)
    return constant, {column: float(least[i]) for column, i in place.items() if least[i] < 0}
