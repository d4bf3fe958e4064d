"""A higher bound of the makespan, by linear programs: what the link can carry until a moment.

When op m first runs, a copy that is only on the host has gone there by then, and comes back later.
A plan that is done at time T has on the host, at that moment, at most the bytes that the link
out carries in T less the cost of op m and of those after it, and the link in in T less the cost of
those up to m. Whatever else later ops read is on the device, or is computed again: the windows of
:mod:`rematbench.engines.intervals.moments`, with as many more bytes. So T is no makespan where that
recomputation takes longer than T.
"""

from __future__ import annotations

from functools import partial
from math import inf

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
CLOSE = 2e-5
"""Relative distance of two times between which the largest that is proven is sought no more."""


def carried(problem: Problem, net: Net, time: float) -> FloatArray:
    """Per op, the most bytes that are only on the host when it first runs.

    Args:
        net: of the problem's graph.
        time: the makespan, in the graph's cost unit.
    """
    link = problem.link
    if not link.both:
        return np.zeros(len(net.cost))
    until = np.cumsum(net.cost)
    rest = until[-1] - until + net.cost
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

    def solved(room: FloatArray, first: int, last: int) -> MomentWindow:
        return window(net, resident, budget + float(room[first]), first, last, deadline)

    room = carried(problem, net, least)
    moments = crowded_moments(levels - room.astype(np.int64), budget, _many(net))
    ends = [*moments, len(net.cost)]
    total, found = best_chain(ends, partial(solved, room), deadline)
    low, high = least, once + total
    while high - low > CLOSE * once and high < inf and planning_seconds() < deadline:
        middle = (low + high) / 2
        room = carried(problem, net, middle)
        proven = once + sum(solved(room, each.first, each.last).cost for each in found)
        if proven >= middle:
            low, high = middle, min(high, proven)
        else:
            low, high = max(low, proven), middle
    return low


def _many(net: Net) -> int:
    return FEW if len(net.cost) > LARGE else MOMENTS
