"""The constraint program of retention intervals, for CP-SAT.

Time has a stage per op, in which ops are computed in program order up to the stage's own, which
is computed there for the first time: op v of stage s is at the moment s * n + v (section 2.1 of
the paper, whose stage s has s moments). The first compute of op v is in its own stage, each
further one in a later stage or absent. A compute of an op opens an interval for each value that
it writes, from that moment to the last one that reads this copy; a copy is not read after the
next compute of its op, as in the simulator. Every compute takes what it reads from one copy. The
bytes of all open intervals, and a compute's workspace at its moment, fit at every moment.

This module needs OR-tools, which does not share a process with HiGHS: only
:mod:`rematbench.strategies.moccasin.worker` imports it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ortools.sat.python import cp_model

from rematbench.strategies.moccasin.instance import Instance

Column = cp_model.IntVar | int
"""A column of a program, or a number."""
Expression = cp_model.LinearExprT
Known = Mapping[int, int]
"""Values of columns of a program by their numbers."""

# The peak is brought down in at least this many equal steps: each takes the solver about as long.
_STEPS = 40


@dataclass(frozen=True)
class OpCompute:
    """One of an op's computes.

    Attributes:
        stage: a column or, of the first, a number.
        present: a column or, of the first, 1.
    """

    stage: Column
    present: Column


class IntervalProgram:
    """The program of one instance.

    Args:
        instance: the numbers.
        to_fit: True for the first phase, which brings the peak down to the budget; False for the
            second, which keeps the budget and brings the cost down.

    Attributes:
        program: for CP-SAT.
    """

    def __init__(self, instance: Instance, to_fit: bool) -> None:
        self.instance, self.program = instance, cp_model.CpModel()
        self._count = len(instance.cost)
        self._never = self._count * self._count
        self.computes = [self._computes(op) for op in range(self._count)]
        self._ends = self._intervals()
        self._reads()
        self._objective(to_fit)

    def moment(self, op: int, compute: OpCompute) -> Expression:
        """When an op is computed."""
        return self._count * compute.stage + op

    def _computes(self, op: int) -> list[OpCompute]:
        program, last = self.program, self._count - 1
        found = [OpCompute(op, 1)]
        if op == last or not self.instance.writes[op]:
            return found  # nothing comes after it, or nothing of it takes memory
        for _ in range(1, self.instance.computes):
            again = OpCompute(program.new_int_var(op + 1, last, ""), program.new_bool_var(""))
            if len(found) > 1:
                program.add_implication(again.present, found[-1].present)
                later = program.add(again.stage > found[-1].stage)
                later.only_enforce_if(again.present)
            found.append(again)
        return found

    def _intervals(self) -> list[list[cp_model.IntVar]]:
        """Open an interval per value and compute; returns the moments of the last reads."""
        instance, program = self.instance, self.program
        self._spans: list[cp_model.IntervalVar] = []
        self._demands: list[int] = []
        ends: list[list[cp_model.IntVar]] = [[] for _ in instance.size]
        kept = set(instance.outputs)
        for op, computes in enumerate(self.computes):
            for compute in computes:
                start = self.moment(op, compute)
                if instance.workspace[op]:
                    self._span(start, 1, start + 1, compute.present, instance.workspace[op])
                for v in instance.writes[op]:
                    end = program.new_int_var(op * self._count + op, self._never, "")
                    length = program.new_int_var(1, self._never + 1, "")
                    self._span(start, length, end + 1, compute.present, instance.size[v])
                    ends[v].append(end)
            for v in instance.writes[op]:
                for (_, after), (end, _) in zip(pairwise(computes), pairwise(ends[v]), strict=True):
                    before = program.add(end < self.moment(op, after))
                    before.only_enforce_if(after.present)
                if v in kept:
                    self._keep(computes, ends[v])
        return ends

    def _span(
        self, start: Expression, length: Column, end: Expression, present: Column, size: int
    ) -> None:
        span = self.program.new_optional_interval_var(start, length, end, present, "")
        self._spans.append(span)
        self._demands.append(size)

    def _keep(self, computes: list[OpCompute], ends: list[cp_model.IntVar]) -> None:
        """One copy of a value stays to the end, which by the order of copies is the last."""
        chosen = [self.program.new_bool_var("") for _ in computes]
        self.program.add_exactly_one(chosen)
        for compute, end, stays in zip(computes, ends, chosen, strict=True):
            self.program.add(end == self._never).only_enforce_if(stays)
            self.program.add_implication(stays, compute.present)

    def _reads(self) -> None:
        """Every compute reads each value from one copy; a copy is there to be read."""
        program, instance = self.program, self.instance
        writer = {v: op for op, written in enumerate(instance.writes) for v in written}
        read: dict[tuple[int, int], list[cp_model.IntVar]] = defaultdict(list)
        for op, computes in enumerate(self.computes):
            for v in instance.reads[op]:
                source = writer[v]
                for reader in computes:
                    choice = []
                    for number, copy in enumerate(self.computes[source]):
                        taken = program.new_bool_var("")
                        choice.append(taken)
                        read[source, number].append(taken)
                        until = self.moment(op, reader) <= self._ends[v][number]
                        program.add(until).only_enforce_if(taken)
                        if number:
                            program.add_implication(taken, copy.present)
                            program.add(copy.stage <= reader.stage).only_enforce_if(taken)
                    program.add(sum(choice) == reader.present)
        for op, computes in enumerate(self.computes):  # no copy for nobody, but for the end
            if not set(instance.outputs) & set(instance.writes[op]):
                for number, compute in list(enumerate(computes))[1:]:
                    program.add_bool_or(read[op, number]).only_enforce_if(compute.present)

    def _objective(self, to_fit: bool) -> None:
        instance, program = self.instance, self.program
        if to_fit:
            step = -(-max(0, instance.peak - instance.budget) // _STEPS)
            above = program.new_int_var(0, _STEPS, "")
            program.add_cumulative(self._spans, self._demands, instance.budget + step * above)
            program.minimize(above)
            return
        program.add_cumulative(self._spans, self._demands, instance.budget)
        again = [
            instance.cost[op] * compute.present
            for op, computes in enumerate(self.computes)
            for compute in computes[1:]
        ]
        program.minimize(sum(again))

    def hint_once(self) -> None:
        """Start from computing everything once."""
        for computes in self.computes:
            for compute in computes:
                if not isinstance(compute.present, int):
                    self.program.add_hint(compute.present, 0)

    def fix(self, order: Iterable[int]) -> bool:
        """Allow only these computes; False where the program cannot have them."""
        sequence = list(order)
        stages: list[list[int]] = [[] for _ in range(self._count)]
        waiting: list[int] = []
        for op in sequence:
            waiting.append(op)
            if not stages[op]:  # the first compute, which ends its stage
                for each in waiting:
                    stages[each].append(op)
                waiting = []
        for computes, found in zip(self.computes, stages, strict=True):
            if len(found) > len(computes):
                return False
            for number, compute in enumerate(computes[1:], 1):
                self.program.add(compute.present == (number < len(found)))
                if number < len(found):
                    self.program.add(compute.stage == found[number])
        return not waiting

    def hint(self, known: Known) -> None:
        """Start from a solution of the other phase, whose columns are the same but for the last."""
        for number in range(len(self.program.proto.variables)):
            if number in known:
                column = self.program.get_int_var_from_proto_index(number)
                self.program.add_hint(column, known[number])

    def columns(self) -> list[cp_model.IntVar]:
        """The columns that tell the order."""
        return [
            column
            for computes in self.computes
            for compute in computes
            for column in (compute.stage, compute.present)
            if not isinstance(column, int)
        ]

    def order(self, known: Known) -> list[int]:
        """The ops of a solution in the order of their computes."""

        def value(given: Column) -> int:
            return given if isinstance(given, int) else known[given.index]

        found = [
            (value(compute.stage), op)
            for op, computes in enumerate(self.computes)
            for compute in computes
            if value(compute.present)
        ]
        return [op for _, op in sorted(found)]
