"""Lower bounds that scale: what a budget at one moment costs until a later one.

When op a runs for the first time, what is in memory of the ops before it fits the budget. Until
op b has run, each value that an op between them reads is either one of these or computed again,
and so on for what is computed again from. That is a linear program with two columns per op and
one row that is not a graph's, so that HiGHS solves it in fractions of a second at 10,000 ops, and
it says nearly the best that one moment can. Windows that do not overlap add up.

Any plan in program order satisfies this, however often it computes an op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.kernels import kernel
from rematbench.engines.intervals.net import Net
from rematbench.engines.lp.program import LinearProgram
from rematbench.engines.lp.solver import Solver
from rematbench.engines.plans.stages import BoolArray, FloatArray
from rematbench.engines.stages.kernels import row
from rematbench.graphs.ir import IntArray

TOLERANCE = 1e-9
"""Relative; a bound is lowered by as much, for rounding."""
SCALE = 100.0
"""What the cost of all ops is scaled to."""


@dataclass(frozen=True)
class MomentWindow:
    """What was found out about one moment, until another.

    Attributes:
        first, last: ops; ``last`` may be one beyond the last op, for the end.
        cost: of recomputation between the two; infinite where the budget cannot hold.
        kept: per value, the share of it that is in memory at the moment; None without a solution.
    """

    first: int
    last: int
    cost: float
    kept: FloatArray | None


def window(
    net: Net, resident: int, budget: float, first: int, last: int, deadline: float, seed: int = 0
) -> MomentWindow:
    """The least recomputation from the first compute of op ``first`` to that of op ``last``.

    Args:
        resident: bytes that are always there.
        budget: in bytes.
        deadline: by :func:`~rematbench.base.clock.planning_seconds`.
    """
    needed, fixed = demand(net, first, last)
    free_bytes = budget - resident - net.written[first] - net.workspace[first]
    unit = float(net.cost.sum() or 1.0) / SCALE
    program = WindowProgram.of(net, unit, needed, needed & ~fixed, fixed, float(free_bytes))
    if program is None:
        return MomentWindow(first, last, np.inf, None)
    cost, x = program.solved(deadline, seed)
    return MomentWindow(first, last, cost, None if x is None else program.kept(x))


def demand(net: Net, first: int, last: int) -> tuple[BoolArray, BoolArray]:
    """Values that are read in the window, and those that the first op itself reads."""
    count = len(net.cost)
    needed = np.zeros(len(net.size), dtype=bool)
    needed[net.reads.stretch(min(first + 1, count), min(last + 1, count))] = True
    if last >= count:
        needed |= net.final
    fixed = np.zeros(len(net.size), dtype=bool)
    fixed[net.reads.stretch(first, first + 1)] = True
    return needed & (net.writer < first), fixed


class WindowProgram(NamedTuple):
    """The linear program of a window, to which choices of implementations may be added.

    Attributes:
        program: to be minimised.
        unit: cost of 1 in its objective.
        keep: per value, the column that says whether it is in memory at the moment, or -1.
        again: per op, the column that says whether it is computed again, or -1.
    """

    program: LinearProgram
    unit: float
    keep: IntArray
    again: IntArray

    @classmethod
    def of(
        cls,
        net: Net,
        unit: float,
        wanted: BoolArray,
        needed: BoolArray,
        fixed: BoolArray,
        free_bytes: float,
    ) -> WindowProgram | None:
        """With one implementation of each op; None where even the fixed values do not fit.

        Args:
            net: what computing an op again costs and reads.
            unit: cost of 1 in the objective.
            wanted: per value, may it serve?
            needed: per value, must it be in memory at the moment, or computed again?
            fixed: per value, must it be in memory at the moment?
            free_bytes: for what is in memory at the moment.
        """
        if net.size[fixed].sum() > free_bytes:
            return None
        wanted, ops = _closure(net, wanted)
        values, chosen = np.flatnonzero(wanted | fixed), np.flatnonzero(ops)
        keep = np.full(len(net.size), -1, dtype=np.int64)
        keep[values] = np.arange(len(values))
        again = np.full(len(net.cost), -1, dtype=np.int64)
        again[chosen] = len(values) + np.arange(len(chosen))
        program = LinearProgram()
        for is_fixed in fixed[values].tolist():
            program.column(lower=float(is_fixed))
        for cost in (net.cost[chosen] / unit).tolist():
            program.column(cost)
        asked = np.flatnonzero(needed)
        program.rows(1.0, np.inf, [keep[asked], again[net.writer[asked]]], [1.0, 1.0])
        reader = np.repeat(np.arange(len(net.cost)), np.diff(net.reads.start))
        edge = np.flatnonzero(again[reader] >= 0)
        read = net.reads.items[edge]
        columns = [again[reader[edge]], keep[read], again[net.writer[read]]]
        program.rows(-np.inf, 0.0, columns, [1.0, -1.0, -1.0])
        share = net.size[values] / max(1.0, free_bytes)
        zero = np.zeros(len(values), dtype=np.int64)
        program.triples(np.array([-np.inf]), np.array([1.0]), zero, keep[values], share)
        return cls(program, unit, keep, again)

    def solved(self, deadline: float, seed: int) -> tuple[float, FloatArray | None]:
        """A lower bound of the cost, infinite without a solution; and the columns' values."""
        if not self.program.size["columns"]:
            return 0.0, np.empty(0)
        outcome = Solver(self.program, seed=seed).run(deadline)
        if outcome is None or outcome.status not in ("optimal", "infeasible"):
            return 0.0, None
        return max(0.0, outcome.bound - TOLERANCE * SCALE) * self.unit, outcome.x

    def kept(self, x: FloatArray) -> FloatArray:
        """Per value, the share of it that is in memory at the moment."""
        return np.append(x, 0.0)[np.where(self.keep < 0, len(x), self.keep)]


@kernel
def _closure(net, wanted):
    """What may serve to have some values: values in memory at the moment, ops run again."""
    wanted = wanted.copy()
    ops = np.zeros(net.cost.size, dtype=np.bool_)
    for op in range(ops.size - 1, -1, -1):
        for v in row(net.writes, op):
            ops[op] |= wanted[v]
        if ops[op]:
            wanted[row(net.reads, op)] = True
    return wanted, ops


def crowded_moments(levels: IntArray, budget: int, most: int) -> list[int]:
    """Stages to look at: the fullest one, and the fullest of equal stretches above the budget."""
    over = np.flatnonzero(levels > budget)
    if not len(over):
        return []
    parts = np.array_split(over, min(most, len(over)))
    chosen = {int(part[np.argmax(levels[part])]) for part in parts}
    return sorted(chosen | {int(np.argmax(levels))})


class Costed(Protocol):
    """What a window costs at least."""

    @property
    def cost(self) -> float:
        """In the graph's unit."""


AnyWindow = TypeVar("AnyWindow", bound=Costed)


def best_chain(
    ends: list[int], solve: Callable[[int, int], AnyWindow | None], deadline: float
) -> tuple[float, list[AnyWindow]]:
    """The most that windows between some ends add up to, and these windows.

    Args:
        ends: ops, ascending; the last one may be one beyond the last op.
        solve: the window from one op to another, or None.
        deadline: by :func:`~rematbench.base.clock.planning_seconds`.
    """
    total = np.zeros(len(ends))
    chosen: list[list[AnyWindow]] = [[] for _ in ends]
    for a in range(len(ends) - 2, -1, -1):
        total[a], chosen[a] = total[a + 1], chosen[a + 1]
        for b in range(len(ends) - 1, a, -1):
            if planning_seconds() > deadline:
                break
            found = solve(ends[a], ends[b])
            if found is not None and found.cost + total[b] > total[a]:
                total[a], chosen[a] = found.cost + total[b], [found, *chosen[b]]
    return float(total[0]), chosen[0]
