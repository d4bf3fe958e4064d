"""A higher bound of the makespan, by linear programs: what the link can carry until a moment.

When op m first runs, a copy that is only on the host has gone there by then, and comes back later.
A plan that is done at time T has on the host, at that moment, at most the bytes that the link out
carries in T less the cost of op m, of the ops after it and of all that is computed again from then
on; and the link in in T less the cost of the ops up to m. Whatever else later ops read is on the
device, or is computed again: the windows of :mod:`rematbench.engines.intervals.moments`, with as
many more bytes. What they say is computed again leaves the link out less time, and so on, from the
last window to the first. T is no makespan where that recomputation takes longer than T.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.bridges.bound import overwrites
from rematbench.engines.intervals.memory import profile
from rematbench.engines.intervals.moments import (
    MomentWindow,
    best_chain,
    crowded_moments,
    window,
)
from rematbench.engines.intervals.net import Net, start
from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.planning import Problem

MOMENTS, FEW, LARGE = 12, 3, 4_000
"""Moments between which windows are looked at; fewer in graphs of so many ops."""
ROUNDS = 6
"""How often a window is solved with what was found about it so far."""
CLOSE = 2e-5
"""Relative distance of two times between which the largest that is proven is sought no more."""


def carried(problem: Problem, net: Net, time: float, later: float | FloatArray = 0.0) -> FloatArray:
    """Per op, the most bytes that are only on the host when it first runs.

    Args:
        net: of the problem's graph.
        time: the makespan, in the graph's cost unit.
        later: time of it, at least, for recomputation when the op has begun to run first; also
            per op.
    """
    link = problem.link
    if not link.both:
        return np.zeros(len(net.cost))
    until = np.cumsum(net.cost)
    rest = until[-1] - until + net.cost + net.cost[0] + later  # before, there is nothing to send
    most = np.minimum((time - rest) * link.out, (time - until) * link.into)
    limit = np.inf if problem.host is None else float(problem.host)
    carried_bytes: FloatArray = np.clip(most, 0.0, limit)
    return carried_bytes


def window_bound(problem: Problem, least: float, deadline: float) -> float:
    """No plan whose first computes are in program order has a smaller makespan.

    Args:
        problem: with a budget; only default implementations count, and none overwrites.
        least: a makespan that is proven already.
        deadline: by :func:`~rematbench.base.clock.planning_seconds`.

    Returns:
        In the graph's cost unit; ``least`` where nothing more is proven.
    """
    graph, budget = problem.graph, problem.budget
    chosen = len(graph.tables.op_of) > len(graph.ops) or overwrites(graph)
    if budget is None or chosen or not len(graph.ops):
        return least
    net = Net.of(graph)
    once, resident = float(net.cost.sum()), graph.resident_bytes
    levels = np.asarray(profile(start(net, resident)))

    def solved(first: int, last: int, time: float, later: float) -> MomentWindow:
        room = budget + float(carried(problem, net, time, later)[first])
        return window(net, resident, room, first, last, deadline)

    def raised(windows: list[tuple[int, int]], low: float) -> float:
        """By halving: no makespan is below it if windows cost so much."""
        high = low + min(_again(windows, partial(solved, time=low), once), once)
        while high - low > CLOSE * once and planning_seconds() < deadline:
            middle = (low + high) / 2
            proven = once + _again(windows, partial(solved, time=middle), middle - once)
            if proven >= middle:
                low = middle
            else:
                low, high = max(low, proven), middle
        return low

    room = carried(problem, net, least).astype(np.int64)
    moments = crowded_moments(levels - room, budget, _many(net))
    if not moments:
        return least
    ends = [*moments, len(net.cost)]
    fullest = max(moments, key=lambda m: int(levels[m] - room[m]))
    low = raised([(fullest, ends[-1])], least)
    _, found = best_chain(ends, partial(solved, time=low, later=0.0), deadline)
    return raised([(each.first, each.last) for each in found], low)


class AfterWindow(Protocol):
    """A window, if so much is computed again when it has begun."""

    def __call__(self, first: int, last: int, *, later: float) -> MomentWindow:
        """The window from one op to another."""


def _again(windows: list[tuple[int, int]], solved: AfterWindow, most: float) -> float:
    """The least recomputation in windows, from the last one on; above ``most``, any such number.

    Args:
        windows: first and last op of each, in order.
    """
    later = 0.0
    for first, last in reversed(windows):
        before, known = later, -1.0
        for _ in range(ROUNDS):
            if not known < later < most:
                break
            known = later
            later = max(later, before + solved(first, last, later=known).cost)
    return later


def _many(net: Net) -> int:
    return FEW if len(net.cost) > LARGE else MOMENTS
