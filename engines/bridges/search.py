"""Keep, recompute or bridge: a search over sequences of computes and the gaps that are bridged.

A sequence says what is recomputed; gaps of it are bridged, the best for the link first, until it
fits. Sequences begin with plans of recomputing planners at the budget and above: what those need
too much the host takes. Then orders of gaps are drawn, recomputations are left out in favour of the
host, and others take a gap's place.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import InvalidPlan
from rematbench.base.kernels import kernel
from rematbench.engines.anytime import Progress
from rematbench.engines.bridges.anneal import annealed
from rematbench.engines.bridges.gaps import Sequence
from rematbench.engines.bridges.weave import woven
from rematbench.engines.plans.stages import BoolArray, FloatArray
from rematbench.graphs.ir import IntArray
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate

SPREAD = 0.7
"""How far scores of gaps are moved at random, as a share of each."""
SHAKEN = (1.0, 0.3, 0.1, 0.03)
"""Shares of the values whose gaps' scores are moved."""

SMALL = 400
"""Statements of plans that are annealed."""
WORK = 200_000
"""Statements that are replayed in one go."""
WARMTHS = (0.0, 0.02, 0.1, 0.3)


@dataclass
class BridgeSearch:
    """The search.

    Args:
        problem: with a budget and a link both ways; no default implementation overwrites.
        progress: takes the plans.

    Attributes:
        tried: plans that were simulated.
        best: the computes of the best plan, and the gaps that it bridges.
    """

    problem: Problem
    progress: Progress
    tried: int = 0
    best: tuple[IntArray, BoolArray] | None = None
    _random: np.random.Generator = field(init=False)
    _likes: FloatArray = field(init=False)

    def __post_init__(self) -> None:
        self._random = np.random.default_rng(self.problem.seed)
        self._likes = np.ones(len(self.problem.graph.values))

    def offer(self, plan: Plan | None) -> float:
        """A plan as simulated: its makespan, infinite where it does not keep to the limits."""
        if plan is None:
            return np.inf
        self.tried += 1
        try:
            trace = simulate(self.problem.graph, plan, self.problem.link)
        except InvalidPlan:
            return np.inf
        self.progress.see(trace.peak_bytes)
        if not self.problem.holds(trace.peak_bytes, trace.host_peak_bytes):
            return np.inf
        self.progress.offer(trace.cost, plan)
        return trace.cost

    def take(
        self, plan: Plan, draws: int = 2, good: float = 0.0, deadline: float = -np.inf
    ) -> float:
        """A start: as it is, and its computes with the host's help.

        Args:
            draws: choices of gaps, at most; more until the deadline.
            good: a makespan with which no other is drawn.
            deadline: by :func:`~rematbench.base.clock.planning_seconds`.

        Returns:
            The least makespan of these.
        """
        least = self.offer(plan)
        codes = plan.codes(self.problem.graph)
        computes = codes[codes >= 0]
        if least <= self.progress.cost and least < np.inf:
            self.best = computes, np.zeros(0, dtype=np.bool_)
        sequence = Sequence.of(self.problem.graph, computes)
        likes, lowest, draw = np.ones(len(self.problem.graph.values)), np.inf, 0
        while least > good and (draw < draws or planning_seconds() < deadline):
            drawn = self._shaken(likes, SPREAD) if draw else likes
            cost = self._weave(sequence, drawn)
            if cost <= lowest:
                lowest, likes = cost, drawn
            least, draw = min(least, cost), draw + 1
        return least

    def _shaken(self, likes: FloatArray, spread: float) -> FloatArray:
        """What is liked for bridges, changed for all values or some."""
        drawn = 1 + spread * (2 * self._random.random(len(likes)) - 1)
        some = self._random.random(len(likes)) < self._random.choice(SHAKEN)
        return np.where(some, drawn, likes)

    def step(self) -> None:
        """One move from the best plan."""
        if self.best is None:
            return
        plan = self.progress.plan
        if plan is not None and len(plan) <= SMALL and self._random.random() < 0.8:
            self._anneal(plan)
            return
        computes, bridged = self.best
        graph = self.problem.graph
        kind = self._random.random()
        if kind < 0.45:
            computes = self._without_some(computes)
        elif kind < 0.75:
            computes = self._with_one_more(computes, bridged)
        likes = self._shaken(self._likes, SPREAD * self._random.random())
        self._weave(Sequence.of(graph, computes), likes)

    def _anneal(self, plan: Plan) -> None:
        """Change the statements of the best plan."""
        codes = plan.codes(self.problem.graph)
        warmth, seed = self._random.choice(WARMTHS), int(self._random.integers(2**31))
        tries = WORK // (len(codes) + 1)
        found = annealed(self.problem, codes, tries, float(warmth), seed)
        self.offer(Plan.from_codes(self.problem.graph, found))

    def _weave(self, sequence: Sequence, likes: FloatArray) -> float:
        """The makespan of a sequence, with the gaps of values that are liked bridged the rather."""
        problem, link = self.problem, self.problem.link
        assert problem.budget is not None
        time = 2 * link.latency + sequence.sizes * (1 / link.out + 1 / link.into)
        weight = likes[sequence.value] * sequence.sizes / np.maximum(time, 1e-300)
        bridged = chosen(sequence, weight, problem.budget)
        before = self.progress.cost
        plan = woven(sequence, bridged, problem.budget, link, problem.host)
        cost = self.offer(plan)
        if cost <= before:
            self.best, self._likes = (sequence.computes, bridged), likes
        return cost

    def _without_some(self, computes: IntArray) -> IntArray:
        """The computes without a few neighbouring recomputations."""
        ops = self.problem.graph.tables.op_of[computes]
        again = np.ones(len(ops), dtype=np.bool_)
        again[np.unique(ops, return_index=True)[1]] = False
        places = np.flatnonzero(again)
        if not len(places):
            return computes
        many = int(self._random.choice((1, 1, 2, 4, 8, len(places))))
        first = int(self._random.integers(len(places)))
        return np.delete(computes, places[first : first + many])

    def _with_one_more(self, computes: IntArray, bridged: BoolArray) -> IntArray:
        """The computes, and one more at the end of a bridged gap, instead of its fetch."""
        graph = self.problem.graph
        sequence = Sequence.of(graph, computes)
        gaps = np.flatnonzero(bridged) if bridged.any() else np.arange(len(sequence.value))
        if not len(gaps) or len(bridged) not in (0, len(sequence.value)):
            return computes
        gap = int(self._random.choice(gaps))
        op = int(graph.tables.writer[sequence.value[gap]])
        return np.insert(computes, int(sequence.end[gap]), graph.tables.op_first[op])


def chosen(sequence: Sequence, weight: FloatArray, budget: int) -> BoolArray:
    """Gaps that are bridged until the sequence fits, as far as gaps can make it, and none too many.

    Args:
        weight: per gap; the larger, the rather it is bridged.
    """
    no_gap = np.zeros(len(sequence.value), dtype=np.bool_)
    levels = sequence.levels_with(no_gap)
    gaps, order = (sequence.begin, sequence.end, sequence.sizes), np.argsort(weight)
    return np.asarray(_chosen(levels, *gaps, weight, order, budget))


@kernel
def _chosen(levels, begin, end, size, weight, order, budget):
    bridged = np.zeros(begin.size, dtype=np.bool_)
    crowd = np.zeros(levels.size + 1, dtype=np.int64)
    while levels.size > 0:
        worst = np.argmax(levels)
        if levels[worst] <= budget:
            break
        for k in range(levels.size):
            crowd[k + 1] = crowd[k] + (levels[k] > budget)
        found = _best(worst, crowd, begin, end, size, weight, bridged)
        if found < 0:
            break
        bridged[found] = True
        for k in range(begin[found] + 1, end[found]):
            levels[k] -= size[found]
    for g in order:
        if bridged[g] and _has_room(levels, begin[g], end[g], budget - size[g]):
            bridged[g] = False
            for k in range(begin[g] + 1, end[g]):
                levels[k] += size[g]
    return bridged


@kernel
def _has_room(levels, begin, end, most):
    """Is every level between two positions at most so high?"""
    return (levels[begin + 1 : end] <= most).all()


@kernel
def _best(worst, crowd, begin, end, size, weight, bridged):
    """The gap over a moment whose bridge relieves most of the crowd; -1: there is none."""
    best, found = 0.0, -1
    for g in range(begin.size):
        if begin[g] < worst < end[g] and size[g] > 0 and not bridged[g]:
            score = weight[g] * (crowd[end[g]] - crowd[begin[g] + 1])
            if score > best:
                best, found = score, g
    return found
