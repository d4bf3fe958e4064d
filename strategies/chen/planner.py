"""Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), and its generalisations.

The sqrt(n) heuristic puts a checkpoint every floor(sqrt n) of n candidates; the greedy one puts a
checkpoint where the bytes since the last one exceed b, and sweeps b. On a linear network the
candidates are its forward ops; on other networks Checkmate (section 6.1, appendix B) takes the
articulation points (``ap_``) or all forward ops in program order (``linearized_``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.engines.plans.stages import BoolArray, plan_with_checkpoints
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan
from rematbench.graphs.structure import articulation_points, chain, forward_ops, read_bytes
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within, fitted


def every_sqrt(candidates: IntArray) -> IntArray:
    """Candidates k-1, 2k-1, ... with k = floor(sqrt n)."""
    k = isqrt(len(candidates))
    return candidates[k - 1 :: k] if k else candidates


def greedy(bytes_of: IntArray, is_candidate: BoolArray, segment_bytes: float) -> IntArray:
    """Positions of the checkpoints of Chen's Algorithm 3.

    Bytes add up op by op; at the first candidate where they exceed ``segment_bytes`` there is a
    checkpoint, and they start again from 0.

    Args:
        bytes_of: per forward op.
        is_candidate: per forward op.

    >>> greedy(np.ones(16), np.ones(16, dtype=bool), 2).tolist()
    [2, 5, 8, 11, 14]
    """
    chosen, total = [], 0.0
    for position, (size, allowed) in enumerate(zip(bytes_of, is_candidate, strict=True)):
        total += size
        if allowed and total > segment_bytes:
            chosen.append(position)
            total = 0.0
    return np.array(chosen, dtype=np.int64)


def segment_sizes(bytes_of: IntArray, most: int) -> list[float]:
    """Values of b to try: those at which Algorithm 3 can change its mind.

    These are the sums over neighbouring ops; of more than ``most`` of them, an even selection
    on a logarithmic scale.
    """
    upto = np.concatenate([[0], np.cumsum(bytes_of)])
    if len(upto) <= 500:
        sums = np.unique(upto[None, :] - upto[:, None])
    else:
        sums = np.unique(np.concatenate([upto[lag:] - upto[:-lag] for lag in range(1, 100)]))
    sums = sums[sums >= 0]
    if len(sums) > most:
        low = max(float(sums[sums > 0][0]), 1.0)
        grid = np.geomspace(low, float(upto[-1]), most - 1)
        sums = np.unique(np.concatenate([[0.0], grid]))
    return [float(b) for b in sums]


def _greedy_candidates(
    graph: Graph, candidates: IntArray, sizes: Iterable[float] | None, most: int
) -> Iterator[tuple[float, Plan]]:
    """(b, plan) for each b that gives other checkpoints than the ones before it."""
    ops = forward_ops(graph)
    bytes_of = read_bytes(graph)[ops]
    allowed = np.isin(ops, candidates)
    seen = set()
    for b in sizes if sizes is not None else segment_sizes(bytes_of, most):
        chosen = tuple(ops[greedy(bytes_of, allowed, b)].tolist())
        if chosen not in seen:
            seen.add(chosen)
            yield b, plan_with_checkpoints(graph, chosen)


def _check_loss(graph: Graph) -> None:
    if graph.loss_index is None:
        raise NotApplicable("the graph has no loss op, so that there is no backward pass to plan")


@dataclass(frozen=True)
class Sqrt:
    """Chen's sqrt(n) heuristic (section 4.1): a checkpoint every floor(sqrt n) candidates.

    ``plan`` raises Infeasible when its one plan does not fit the budget.
    """

    traits: ClassVar[Traits]
    candidates: ClassVar[Callable[[Graph], IntArray]]

    def plan(self, problem: Problem) -> Solution:
        """One checkpoint every floor(sqrt n) candidates."""
        _check_loss(problem.graph)
        found = type(self).candidates(problem.graph)
        chosen = every_sqrt(found)
        plan = plan_with_checkpoints(problem.graph, set(chosen.tolist()))
        facts = {"candidates": len(found), "segment_length": isqrt(len(found))}
        return fitted(problem, plan, details=facts)


@dataclass(frozen=True)
class Greedy:
    """Chen's greedy heuristic (Algorithm 3).

    Attributes:
        segment_bytes: b; None sweeps it and returns the cheapest plan that fits the budget.
        most: values of b to try at most.
    """

    traits: ClassVar[Traits]
    candidates: ClassVar[Callable[[Graph], IntArray]]
    segment_bytes: float | None = None
    most: int = 100

    def plan(self, problem: Problem) -> Solution:
        """The cheapest plan of the sweep; ``details["curve"]`` is the whole trade-off."""
        _check_loss(problem.graph)
        found = type(self).candidates(problem.graph)
        sizes = None if self.segment_bytes is None else [self.segment_bytes]
        tried = _greedy_candidates(problem.graph, found, sizes, self.most)
        b, plan, _, curve = cheapest_within(problem, tried)
        facts = {"candidates": len(found), "segment_bytes": b, "curve": curve}
        return Solution(plan, details=facts)


class ChenSqrt(Sqrt):
    """On linear networks, as published; NotApplicable on others."""

    traits = Traits("no", "no", "no")
    candidates = chain


class ApSqrt(Sqrt):
    """AP sqrt(n): candidates are the articulation points (Checkmate, appendix B.1)."""

    traits = Traits("partly", "no", "no")
    candidates = articulation_points


class LinearizedSqrt(Sqrt):
    """Linearized sqrt(n): candidates are all forward ops (Checkmate, appendix B.2)."""

    traits = Traits("yes", "no", "no")
    candidates = forward_ops


class ChenGreedy(Greedy):
    """On linear networks, as published; NotApplicable on others."""

    traits = Traits("no", "no", "partly", budgeted=True)
    candidates = chain


class ApGreedy(Greedy):
    """AP greedy: candidates are the articulation points (Checkmate, appendix B.1)."""

    traits = Traits("partly", "no", "partly", budgeted=True)
    candidates = articulation_points


class LinearizedGreedy(Greedy):
    """Linearized greedy: candidates are all forward ops (Checkmate, appendix B.2)."""

    traits = Traits("yes", "no", "partly", budgeted=True)
    candidates = forward_ops
