"""Bounds and advice at any size: what the budget costs from one moment on, all choices open.

As :mod:`rematbench.engines.intervals.moments`, with MONeT's choices. When op a runs for the
first time, what is in memory of the ops before it fits the budget. Until op b has run, each op
between them is computed in one of its implementations, and what that reads is one of these values
or computed again; so is what the latter always reads. A value that only some implementations read
(a mask) may never have been computed: having it costs its op once.

Any plan whose first computes follow program order, but for deferrable ops and pairs, satisfies
this. Windows that do not overlap add up.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from rematbench.engines.intervals.moments import SCALE, WindowProgram
from rematbench.engines.intervals.net import Net
from rematbench.engines.joint.implementations import AllowedImplementations
from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import IntArray, Rows


class WindowSolution(NamedTuple):
    """What a window's program says.

    Attributes:
        cost: of the window beyond each needed op once, in its cheapest implementation; infinite
            where the budget cannot hold.
        choice: per op, the group that it favours; ops outside of the window have their first one.
    """

    cost: float
    choice: IntArray


@dataclass(frozen=True)
class Windows:
    """The programs of one graph.

    Attributes:
        implementations: the allowed implementations.
        budget: in bytes.
        seed: of HiGHS.
    """

    implementations: AllowedImplementations
    budget: int
    seed: int = 0

    @cached_property
    def _net(self) -> Net:
        """Ops and values of the graph: what computing an op again always reads, and costs least.

        An optional op costs as much to be computed at all.
        """
        tables, allowed = self.implementations.graph.tables, self.implementations.allowed
        ops = range(len(self.implementations.graph.ops))
        reads = (sorted(self.implementations.surely_read(op)) for op in ops)
        none = np.zeros(len(ops), dtype=np.int64)
        return Net(
            np.array([tables.cost[allowed[op]].min(initial=inf) for op in ops]),
            none,
            none,
            tables.value_bytes,
            tables.writer,
            tables.is_output,
            Rows.of([[v for v in row if not tables.resident[v]] for row in reads]),
            tables.writes,
            Rows.of([[]]),
            0,
        )

    @cached_property
    def _readers(self) -> dict[int, set[int]]:
        """Per value, the ops that may read it."""
        tables = self.implementations.graph.tables
        found: dict[int, set[int]] = defaultdict(set)
        for implementation, op in enumerate(tables.op_of.tolist()):
            for v in tables.reads[implementation].tolist():
                found[v].add(op)
        return found

    @cached_property
    def _paired(self) -> frozenset[int]:
        return frozenset(op for step in self.implementations.steps if len(step) > 1 for op in step)

    def is_moment(self, op: int) -> bool:
        """May a window begin or end with it? Its first compute is where it stands, in any plan."""
        late = op in self._paired or op in self.implementations.deferrable
        return bool(self.implementations.surely_needed[op]) and not late

    def free_bytes(self, moment: int) -> float:
        """Bytes that an op leaves for what earlier ones have written, what it reads included."""
        least = min(
            int(self.implementations.extra[implementation])
            for implementation in self.implementations.first_implementations(moment)
        )
        return float(self.budget - self.implementations.graph.resident_bytes - least)

    def solve(
        self, first: int, last: int, deadline: float, share: float = 1.0
    ) -> WindowSolution | None:
        """The program from the first compute of op ``first`` on; None if time is up.

        Args:
            last: the op before which the window ends; the number of ops for the end.
            deadline: by :func:`~rematbench.base.clock.planning_seconds`.
            share: of the room that there is, for advice.
        """
        implementations, net = self.implementations, self._net
        ops = (first + np.flatnonzero(implementations.surely_needed[first:last])).tolist()
        reads = {op: self._reads(op, first) for op in ops}
        wanted, needed, fixed = np.zeros((3, len(net.size)), dtype=bool)
        for op, readers in reads.items():
            wanted[list(readers)] = True
            always = [
                v
                for v in readers
                if len(readers[v]) == len(implementations.first_implementations(op))
            ]
            (fixed if op == first else needed)[always] = True
        if last == len(implementations.graph.ops):  # outputs that may be late may not be made yet
            late = np.isin(net.writer, list(implementations.deferrable))
            outputs = net.final & (net.writer >= 0) & (net.writer < first)
            wanted |= outputs
            needed |= outputs & ~late
        unit, free_bytes = (
            (implementations.least_cost or 1.0) / SCALE,
            share * self.free_bytes(first),
        )
        program = WindowProgram.of(net, unit, wanted, needed & ~fixed, fixed, free_bytes)
        if program is None:
            return WindowSolution(inf, self._choice({}, np.empty(0)))
        chosen: dict[int, int] = {}
        for op, readers in reads.items():
            chosen |= self._chosen(program, op, readers, op == first)
        self._made_once(program, first, last)
        cost, x = program.solved(deadline, self.seed)
        if x is None and cost < inf:
            return None
        return WindowSolution(
            cost, self._choice({}, np.empty(0)) if x is None else self._choice(chosen, x)
        )

    def _reads(self, op: int, first: int) -> dict[int, list[int]]:
        """Per value of before the moment, the implementations of first computes that read it."""
        tables, found = self.implementations.graph.tables, dict[int, list[int]]()
        for implementation in self.implementations.first_implementations(op):
            for v in tables.reads[implementation].tolist():
                if 0 <= tables.writer[v] < first:
                    found.setdefault(v, []).append(implementation)
        return found

    def _chosen(
        self, window: WindowProgram, op: int, reads: dict[int, list[int]], is_moment: bool
    ) -> dict[int, int]:
        """Columns for the ways of an op, where they read other values, and what each reads.

        The moment's own reads are in memory then.
        """
        implementations, program = self.implementations.first_implementations(op), window.program
        if (
            len(
                {
                    tuple(sorted(v for v in reads if implementation in reads[v]))
                    for implementation in implementations
                }
            )
            == 1
        ):
            return {}
        cost = self.implementations.graph.tables.cost[implementations] / window.unit
        chosen = {
            implementation: program.column(float(more))
            for implementation, more in zip(implementations, cost - cost.min(), strict=True)
        }
        program.at_most([], chosen.values(), -1.0)
        for v, readers in reads.items():
            if len(readers) < len(implementations):
                again = -1 if is_moment else window.again[self._net.writer[v]]
                program.at_most(
                    [chosen[implementation] for implementation in readers], [window.keep[v], again]
                )
        return chosen

    def _made_once(self, window: WindowProgram, first: int, last: int) -> None:
        """What optional ops write is there only where they have been computed, which costs.

        It costs in this window if only first computes of this window read it: windows add up.
        """
        net = self._net
        for op in np.flatnonzero(
            (window.again >= 0) & ~self.implementations.surely_needed
        ).tolist():
            writes = net.writes.stretch(op, op + 1).tolist()
            is_ours = all(first <= reader < last for v in writes for reader in self._readers[v])
            once = window.program.column(float(net.cost[op]) / window.unit if is_ours else 0.0)
            for v in writes:
                window.program.at_most([window.keep[v]], [once])

    def _choice(self, chosen: dict[int, int], x: FloatArray) -> IntArray:
        """Per op, the group that has most of a solution; without one its first."""
        choice, tables = (
            self.implementations.group_at[:-1].copy(),
            self.implementations.graph.tables,
        )
        for op in {int(tables.op_of[implementation]) for implementation in chosen}:
            groups = self.implementations.groups(op)
            weight = [x[[chosen[w] for w in self.implementations.members[g]]].sum() for g in groups]
            choice[op] = groups[int(np.argmax(weight))]
        return choice
