"""The bound model: what every plan of a graph must pay, whichever ways it takes.

It looks at some moments: the starts of the first computes of the loss and of some later steps.
What runs between a moment and the next is a stage. Of each plan it says:

- ``stored[k, v]``: is v live at moment k? ``held[v]``: at the loss, since its first compute?
- ``again[k, x]``: is forward op x computed in stage k?
- ``through[k, v]``: is v live all through stage k, and stored after it?
- ``early[x]``: is needed forward op x computed twice before the loss?
- ``made[x]``: is optional forward op x computed before the loss?
- ``twice[x]``: is op x, of the loss or later, computed more than once?
- ``way[i]``: does the first compute of its op use implementation i, in its place?
- ``late[x]``: is op x, which makes only outputs, first computed later than in its place?

These satisfy the rows below in any plan in which the ops that every plan needs first run in
program order, but for those that may be late, and for pairs of
:attr:`~rematbench.strategies.monet.ways.Ways.steps`, in either order. So the optimum is a lower
bound of such
plans' cost: each op costs at least its cheapest way for each time that it is counted. The memory
rows are those of the first computes, and of what is computed again: then, what it reads and makes,
and what is live all through the stage. Values that were computed only once stay live from then to
their last read. Optional ops may run at any time. Before the loss, nothing is claimed about memory
while something is computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np

from rematbench.strategies.monet.moments import Moments
from rematbench.strategies.monet.program import Term
from rematbench.strategies.monet.ways import Ways


class BoundModel(Moments):
    """The program for one graph, one budget; by default of one moment, the loss.

    Its arguments and attributes are those of :class:`~rematbench.strategies.monet.moments.Moments`.
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
            self._again_rows(stage)

    def _stage_of(self, op: int) -> int:
        return int(np.searchsorted(self.moments, self._time[op], side="right")) - 1

    def _is_moment(self, op: int) -> bool:
        """Is the start of its first compute a moment, whatever the plan?"""
        number = self._time[op]
        return len(self.ways.steps[number]) == 1 and number in self.moments

    def _any_again(self, stage: int, op: int) -> list[Term]:
        """Is forward ``op`` computed in ``stage`` or later?"""
        return [(column, -1.0) for column in self.again[stage:, op].tolist() if column >= 0]

    def _reads(self) -> None:
        """What a first compute after the loss reads is stored, or computed again before it."""
        for op in self._stages:
            stage = self._stage_of(op)
            for v in self._may_read(op):
                writer = int(self.tables.writer[v])
                if writer >= self.loss:
                    continue
                stored = (int(self.stored[stage, v]), -1.0)
                terms = [*self._reading(op, v), stored]
                if not self._is_moment(op):
                    terms.append((int(self.again[stage, writer]), -1.0))
                self.program.most(terms, 0.0)
                if self.late[op] >= 0 and self._always_reads(op, v):
                    late = (int(self.late[op]), 1.0)
                    self.program.most([late, stored, *self._any_again(stage, writer)], 0.0)

    def _closure(self) -> None:
        """What is read in all ways of an op that is computed again is there, or computed, too."""
        for op in self._forward:
            for v in self._weighty(self.ways.surely_read(op)):
                writer = int(self.tables.writer[v])
                if writer >= self.loss or writer == op:
                    continue
                for stage in np.flatnonzero(self.again[:, op] >= 0).tolist():
                    terms = [
                        (int(self.again[stage, op]), 1.0),
                        (int(self.stored[stage, v]), -1.0),
                        (int(self.again[stage, writer]), -1.0),
                    ]
                    self.program.most(terms, 0.0)

    def _carry(self) -> None:
        """What is stored was stored before, and all the while, or has been computed again."""
        for before, v in np.argwhere(self.through >= 0).tolist():
            stored = (int(self.stored[before + 1, v]), 1.0)
            again = (int(self.again[before, self.tables.writer[v]]), -1.0)
            self.program.most([stored, again, (int(self.stored[before, v]), -1.0)], 0.0)
            self.program.most([stored, again, (int(self.through[before, v]), -1.0)], 0.0)

    def _ever(self) -> None:
        """The rows of one moment for all stages together, so that more moments bound no less."""
        if len(self.moments) == 1:
            return
        ever = np.full(self.loss, -1, dtype=np.int64)
        for op in self._forward:
            ever[op] = self.program.column(integral=True)
            stages = [int(column) for column in self.again[:, op] if column >= 0]
            self.program.most([(int(ever[op]), 1.0), *((again, -1.0) for again in stages)], 0.0)
            for again in stages:
                self.program.most([(again, 1.0), (int(ever[op]), -1.0)], 0.0)
        for op in self._forward:
            for v in self._weighty(self.ways.surely_read(op)):
                writer = int(self.tables.writer[v])
                if writer < self.loss and writer != op:
                    terms = [(int(ever[op]), 1.0), (int(self.stored[0, v]), -1.0)]
                    self.program.most([*terms, (int(ever[writer]), -1.0)], 0.0)
        for v in np.flatnonzero(self.through[0] >= 0).tolist():
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
                self.program.most([*reading, (ever, -1.0), (since, -1.0)], 0.0)
            if since >= 0:
                for column in (self.through[stage - 1, v], self.stored[stage - 1, v]):
                    self.program.most([(since, 1.0), (int(column), -1.0)], 0.0)

    def _stage_rows(self) -> None:
        """While the loss, or an op after it, first runs; if it is late, when its turn has come."""
        rest = self._kept_columns()
        forward = np.flatnonzero(self.weighs & (self.stored[0] >= 0)).tolist()
        for op in self._stages:
            number, stage = self._time[op], self._stage_of(op)
            constant, terms = self._gradients(number, self._always[op].__contains__, op)
            stored = [(int(self.stored[stage, v]), float(self.size[v])) for v in forward]
            if not self._is_moment(op):
                kept = [(rest.get((v, op), -1), float(self.size[v])) for v in forward]
                if number in self.moments and op == self.ways.steps[number][0]:
                    self._pair_row(number, stored)
                stored = kept
            terms += [*self._running(op), *((c, size) for c, size in stored if c >= 0)]
            self._fits(terms, constant)

    def _pair_row(self, number: int, stored: list[Term]) -> None:
        """At a moment that one of a pair begins."""
        step = self.ways.steps[number]
        least = min(float(self.ways.extra[w]) for op in step for w in self.ways.first_ways(op))
        constant, terms = self._before(number)
        terms += [(column, size) for column, size in stored if column >= 0]
        self._fits(terms, constant + least / self.bytes_unit)

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

    def _gradients(
        self, number: int, read_here: Callable[[int], bool], running: int = -1
    ) -> tuple[float, list[Term]]:
        """Bytes of values made since the loss by earlier steps, at a step.

        Args:
            number: of the step.
            read_here: must the step read a value from now on?
            running: the op that runs, or -1; what it reads is there even where it was made twice.
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
                continue
            constant += size
            counted.add(v)
            if not reads or running < 0 or self.late[running] >= 0:
                terms.append((int(self.twice[writer]), -size))
            if self.late[writer] >= 0:
                missing[writer] = missing.get(writer, 0.0) + size
        for op, size in missing.items():  # where it is late, what it reads is there instead
            instead = [v for v in self._later if v in self._always[op] and v not in counted]
            counted.update(instead)
            least = min(size, sum(float(self.size[v]) for v in instead))
            terms.append((int(self.late[op]), least - size))
            terms += [
                (int(self.twice[self.tables.writer[v]]), -min(least, float(self.size[v])))
                for v in instead
            ]
        return constant, terms

    def _again_rows(self, stage: int) -> None:
        """While a forward op is computed again, at whichever position of a stage."""
        constant, relief = _least(list(self._positions(stage)))
        through = {
            v: (int(self.through[stage, v]), float(self.size[v]))
            for v in np.flatnonzero(self.through[stage] >= 0).tolist()
        }
        for op in np.flatnonzero(self.again[stage] >= 0).tolist():
            again = int(self.again[stage, op])
            terms = list(self.again_ways[stage].get(op, ()))
            if not terms:
                terms = [(again, self._options[op][0][1])]
            reads = self._weighty(self.ways.surely_read(op))
            without = {*reads, *self.tables.writes[op].tolist()}
            terms += [
                (self._either(again, through[v][0] if v in through else again), float(self.size[v]))
                for v in reads
            ]
            terms += [term for v, term in through.items() if v not in without]
            self._fits([*terms, *relief.items()], constant)

    def _either(self, one: int, other: int) -> int:
        """A column at least as large as two others."""
        if one == other:
            return one
        column = self._since(one)
        self.program.most([(other, 1.0), (column, -1.0)], 0.0)
        return column

    def _kept_columns(self) -> dict[tuple[int, int], int]:
        """Per forward value and op after the loss: a column at least 1 while it must be there.

        It must be, while an op runs that reads it, and from its stage's beginning to the last
        step of the stage that reads it, or to the stage's end if it is stored then, unless it is
        computed in the stage.
        """
        found: dict[tuple[int, int], int] = {}
        for stage, v in np.argwhere(self.weighs & (self.stored >= 0)).tolist():
            readers = {op for op in self._readers.get(v, []) if op > self.loss}
            later = int(self.through[stage, v])
            for number in range(self.ends[stage] - 1, self.moments[stage] - 1, -1):
                later = self._kept_in_step(found, v, stage, number, readers, later)
        return found

    def _kept_in_step(
        self,
        found: dict[tuple[int, int], int],
        v: int,
        stage: int,
        number: int,
        readers: set[int],
        later: int,
    ) -> int:
        """The columns of one step; returns that of the time before it."""
        writer, since = int(self.tables.writer[v]), later
        for op in self.ways.steps[number]:
            if op not in readers:
                if later >= 0:
                    found[v, op] = later
                continue
            found[v, op] = during = self.program.column()
            if since == later:
                since = self._since(later)
            reading = self._reading(op, v)
            again = (int(self.again[stage, writer]), -1.0)
            self.program.most([*reading, (during, -1.0)], 0.0)
            self.program.most([*reading, again, (since, -1.0)], 0.0)
            if self.late[op] >= 0 and self._always_reads(op, v):
                terms = [(int(self.late[op]), 1.0), (since, -1.0)]
                self.program.most([*terms, *self._any_again(stage, writer)], 0.0)
            if later >= 0:
                self.program.most([(later, 1.0), (during, -1.0)], 0.0)
        return since

    def _since(self, later: int) -> int:
        """A column at least as large as ``later``."""
        column = self.program.column()
        if later >= 0:
            self.program.most([(later, 1.0), (column, -1.0)], 0.0)
        return column


def _least(positions: list[tuple[float, list[Term]]]) -> tuple[float, dict[int, float]]:
    """A linear function that is nowhere larger than any of some, for columns of 0 and 1."""
    constant = min(live for live, _ in positions)
    columns = sorted({column for _, terms in positions for column, _ in terms})
    place = {column: i for i, column in enumerate(columns)}
    reliefs = np.zeros((len(positions), len(columns)))
    for row, (_, terms) in enumerate(positions):
        for column, size in terms:
            reliefs[row, place[column]] += size
    room = np.array([live for live, _ in positions]) - constant
    least = np.minimum(reliefs.min(axis=0, initial=0.0), 0.0)
    for i in np.argsort(least).tolist():
        column = reliefs[:, i]
        rising = (column + room)[column < 0].min(initial=0.0)
        least[i] = max(least[i], rising)
        room -= np.maximum(least[i] - column, 0.0)
    return constant, {column: float(least[i]) for column, i in place.items() if least[i] < 0}
