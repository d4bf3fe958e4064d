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
from typing import Protocol, TypeVar

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
class Window:
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
) -> Window:
    """The least recomputation from the first compute of op ``first`` to that of op ``last``.

    Args:
        resident: bytes that are always there.
        budget: in bytes.
        deadline: by :func:`~rematbench.base.clock.planning_seconds`.
    """
    needed, fixed = demand(net, first, last)
    room = budget - resident - net.written[first] - net.workspace[first]
    if net.size[fixed].sum() > room:
        return Window(first, last, np.inf, None)
    wanted, ops = _closure(net, first, needed)
    wanted |= fixed
    values, chosen = np.flatnonzero(wanted), np.flatnonzero(ops)
    keep = np.full(len(net.size), -1, dtype=np.int64)
    keep[values] = np.arange(len(values))
    again = np.full(len(net.cost), -1, dtype=np.int64)
    again[chosen] = len(values) + np.arange(len(chosen))
    program = _program(net, keep, again, needed & ~fixed, fixed, float(room))
    solver = Solver(program, seed=seed)
    outcome = solver.run(deadline)
    if outcome is None or outcome.status not in ("optimal", "infeasible"):
        return Window(first, last, 0.0, None)
    if outcome.x is None or outcome.objective is None:
        return Window(first, last, np.inf, None)
    unit = (net.cost.sum() or 1.0) / SCALE
    kept = np.zeros(len(net.size))
    kept[values] = outcome.x[: len(values)]
    cost = max(0.0, outcome.bound - TOLERANCE * SCALE) * unit
    return Window(first, last, cost, kept)


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


@kernel
def _closure(net, first, needed):
    """What may serve to have the needed values: values in memory at the moment, ops run again."""
    wanted = needed.copy()
    ops = np.zeros(net.cost.size, dtype=np.bool_)
    for v in range(net.size.size - 1, -1, -1):
        if wanted[v]:
            ops[net.writer[v]] = True
            for u in row(net.reads, net.writer[v]):
                wanted[u] = True
    return wanted, ops


def _program(
    net: Net, keep: IntArray, again: IntArray, needed: BoolArray, fixed: BoolArray, room: float
) -> LinearProgram:
    program = LinearProgram()
    scale = SCALE / (net.cost.sum() or 1.0)
    for is_fixed in fixed[keep >= 0].tolist():
        program.column(lower=float(is_fixed))
    for cost in (net.cost[again >= 0] * scale).tolist():
        program.column(cost)
    asked = np.flatnonzero(needed)
    program.rows(1.0, np.inf, [keep[asked], again[net.writer[asked]]], [1.0, 1.0])
    reader = np.repeat(np.arange(len(net.cost)), np.diff(net.reads.start))
    edge = np.flatnonzero(again[reader] >= 0)
    read = net.reads.items[edge]
    columns = [again[reader[edge]], keep[read], again[net.writer[read]]]
    program.rows(-np.inf, 0.0, columns, [1.0, -1.0, -1.0])
    values = np.flatnonzero(keep >= 0)
    share = net.size[values] / max(1.0, room)
    zero = np.zeros(len(values), dtype=np.int64)
    program.triples(np.array([-np.inf]), np.array([1.0]), zero, keep[values], share)
    return program


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


def best_windows(
    net: Net, resident: int, budget: int, moments: list[int], deadline: float, seed: int = 0
) -> tuple[float, list[Window]]:
    """The most that windows between some moments add up to, and these windows."""

    def solve(first: int, last: int) -> Window:
        return window(net, resident, budget, first, last, deadline, seed)

    return best_chain([*moments, len(net.cost)], solve, deadline)


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
