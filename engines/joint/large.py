"""Graphs too large for matrices of stages: the interval search, with chosen implementations.

A program of one moment (:mod:`rematbench.engines.joint.windows`) says which groups of
implementations to use. With one implementation per op left, the graph is one for
:mod:`rematbench.engines.intervals`; its schedule then runs in the fastest implementations that fit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property, partial
from math import inf
from typing import Any

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.intervals.moments import best_chain, crowded_moments
from rematbench.engines.intervals.planner import TRIVIAL, IntervalSearch
from rematbench.engines.joint.implementations import AllowedImplementations
from rematbench.engines.joint.kernels import Implementations, fastest, leanest
from rematbench.engines.joint.run import UNLIMITED, PlanningRun
from rematbench.engines.joint.windows import Windows
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan, with_frees
from rematbench.graphs.planning import Solution
from rematbench.graphs.simulate import Trace, simulate

LARGE, HUGE = 1_000, 4_000
"""Ops from which on graphs are planned in this way first, and in this way only."""
INTERVALS, AGAIN = 0.15, 0.5
"""Share of the time for this implementation, where it is not the only one; and of the rest, without
a plan."""
SHARES = (1.0, 0.9, 0.97, 0.8)
"""Of the room at the loss for which a choice of groups is asked: the program does not know what
computing again needs."""
MOMENTS, PROVING = 4, 0.1
"""Moments between which windows are looked at, and the share of the time for them."""
FIRST = 0.15
"""Share of the remaining time for the first schedules of a choice."""


def resolved(implementations: AllowedImplementations, choice: IntArray) -> Graph:
    """The graph with the leanest implementation of each op's group that overwrites nothing."""
    tables, ops = implementations.graph.tables, list(implementations.graph.ops)
    for number, group in enumerate(choice.tolist()):
        members = (
            implementations.members[group].tolist() if len(implementations.groups(number)) else []
        )
        fair = [
            implementation
            for implementation in members
            if not (tables.overwritten_by[implementation] >= 0).any()
        ]
        first = int(tables.op_first[number])
        implementation = min(
            fair, key=lambda w: (implementations.extra[w], tables.cost[w]), default=first
        )
        implementation = ops[number].implementations[implementation - first]
        ops[number] = replace(ops[number], implementations=(implementation,))
    return replace(implementations.graph, ops=tuple(ops))


def completed(
    implementations: AllowedImplementations, choice: IntArray, ops: IntArray, limit: int
) -> tuple[Plan, Trace]:
    """The plan that computes some ops in order, in the fastest implementations that fit.

    What is computed again is so by its own values, if that fits.

    Args:
        choice: per op, its group.
        ops: numbers of ops, each again and again.
        limit: in bytes.
    """
    alone = implementations.arrays._replace(
        recompute_group=np.full_like(implementations.recompute_group, -1)
    )
    plan, trace = _completed(implementations, implementations.arrays, choice, ops, limit)
    if trace.peak_bytes > limit:
        plan, trace = _completed(implementations, alone, choice, ops, limit)
    return plan, trace


def _completed(
    implementations: AllowedImplementations,
    arrays: Implementations,
    choice: IntArray,
    ops: IntArray,
    limit: int,
) -> tuple[Plan, Trace]:
    graph, none = implementations.graph, np.full_like(choice, -1)
    lean, legal = leanest(ops, choice, none, arrays)
    there = lean >= 0
    codes = with_frees(graph, lean[there])
    during = simulate(graph, Plan.from_codes(graph, codes)).bytes_during[codes >= 0]
    fast = fastest(lean[there], legal[there], during, limit, arrays)
    plan = Plan.of_computes(graph, fast)
    return plan, simulate(graph, plan)


def ops_of(graph: Graph, plan: Plan) -> IntArray:
    """The ops that a plan computes, in order."""
    codes = plan.codes(graph)
    return graph.tables.op_of[codes[codes >= 0]]


class LargeRun(PlanningRun):
    """A planning run of a large graph.

    Of more than :data:`HUGE` ops, no step of it grows with the square of the ops. Where no op has
    a choice of implementations, schedules are all there is to find, and intervals find them faster.
    """

    _bound_by = TRIVIAL

    def _search(self) -> None:
        """By intervals; what is left of the time, with matrices, where these are small enough."""
        ops = len(self.problem.graph.ops)
        if len(self.implementations.members) <= ops or ops > HUGE:
            self._by_intervals()
            return
        end = self._deadline
        for share in (INTERVALS, AGAIN):
            if self.progress.plan is None and self.progress.bound < inf:
                self._deadline = planning_seconds() + share * (end - planning_seconds())
                self._by_intervals()
        self._deadline = end
        if not self.progress.closed():
            super()._search()

    def _by_intervals(self) -> None:
        """Each choice's first schedules, then annealing of one after the other, cheapest first."""
        graph, first = self.problem.graph, self.implementations.group_at[:-1].copy()
        self._complete(first, np.arange(len(graph.ops)))  # what nobody reads is left out
        if self.problem.budget is None or self.progress.closed():
            return
        assert graph.loss_index is not None
        searches: list[IntervalSearch] = []
        for choice in self._choices(graph.loss_index, first):
            searches.append(self._search_of(choice))
            searches[-1].deadline = planning_seconds() + FIRST * self._left
            searches[-1].run(polish=False)
            self.progress.rest()
            if self.progress.closed():
                return
        if not searches or self.progress.bound == inf:
            return
        self._prove(graph.loss_index)
        for search in sorted(searches, key=lambda search: search.progress.cost):
            search.deadline = self._deadline
            for _ in search.anneal():
                self.progress.rest()
                if self.progress.closed():
                    return
                if search.is_over():
                    break

    def _search_of(self, choice: IntArray) -> IntervalSearch:
        """A search of one choice of groups, leanest implementations first; plans are completed."""
        assert self.problem.budget is not None
        graph = resolved(self.implementations, choice)

        def hand_over(found: Solution) -> None:
            assert found.plan is not None
            self._complete(choice, ops_of(graph, found.plan))

        asked = replace(
            self.problem,
            graph=graph,
            captured=None,
            warm_starts=(),
            time_limit=self._left,
            report=lambda words: None,
            hand_over=hand_over,
        )
        return IntervalSearch(asked, self.problem.budget, planning_seconds(), self._gap)

    @cached_property
    def _windows(self) -> Windows:
        return Windows(self.implementations, self._limit, self.problem.seed)

    def _complete(self, choice: IntArray, ops: IntArray) -> None:
        """A schedule: is it the best plan?"""
        plan, trace = completed(self.implementations, choice, ops, self._limit)
        self.progress.see(trace.peak_bytes)
        if trace.peak_bytes <= self._limit:
            self.progress.offer(trace.cost, plan)

    def _choices(self, moment: int, first: IntArray) -> Iterator[IntArray]:
        """Choices of groups to plan with, each once; the last one is the first groups."""
        seen: set[bytes] = set()
        for share in SHARES:
            if not self._left:
                break
            end = len(self.problem.graph.ops)
            advice = self._windows.solve(moment, end, self._deadline, share)
            if share == 1.0 and advice is not None:
                self._proven(advice.cost, "one moment: its memory's price")
            if advice is None or advice.cost == inf:
                continue
            if advice.choice.tobytes() not in seen:
                seen.add(advice.choice.tobytes())
                yield advice.choice
        if first.tobytes() not in seen and self._left and self.progress.bound < inf:
            yield first

    def _prove(self, loss: int) -> None:
        """A bound by windows of the timeline."""
        graph = self.problem.graph
        plan, _ = _completed(
            self.implementations,
            self.implementations.arrays,
            self.implementations.group_at[:-1],
            np.arange(len(graph.ops)),
            UNLIMITED,
        )
        trace = simulate(graph, plan)
        computes = trace.codes >= 0
        levels = np.zeros(len(graph.ops), dtype=np.int64)
        levels[graph.tables.op_of[trace.codes[computes]]] = trace.bytes_during[computes]
        levels[[op for op in range(len(levels)) if not self._windows.is_moment(op)]] = 0
        moments = sorted({loss, *crowded_moments(levels, self._limit, MOMENTS)})
        until = planning_seconds() + PROVING * self._left
        total, found = best_chain(
            [*moments, len(levels)], partial(self._windows.solve, deadline=until), until
        )
        self._proven(total, f"windows of the timeline: {len(found)}")

    def _proven(self, cost: float, how: str) -> None:
        bound = self.implementations.least_cost + cost
        if bound > self.progress.bound:
            self.progress.raise_bound(bound)
            self._bound_by = how

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        return {**super().details(), "bound_by": self._bound_by}
