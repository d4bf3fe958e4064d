"""Chen et al., "Training Deep Nets with Sublinear Memory Cost" (2016), and its generalisations.

A checkpoint every floor(sqrt n) of n candidates. On a linear network the candidates are its
forward ops; Checkmate (section 6.1, appendix B) takes articulation points, or all forward ops in
program order, on other networks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isqrt
from typing import ClassVar

from graphs.errors import NotApplicable
from graphs.ir import Graph, IntArray
from graphs.structure import articulation_points, chain, forward_ops
from strategies.base import Problem, Solution, Traits, fitted
from strategies.stages import plan_with_checkpoints


def every_sqrt(candidates: IntArray) -> IntArray:
    """Candidates k-1, 2k-1, ... with k = floor(sqrt n)."""
    k = isqrt(len(candidates))
    return candidates[k - 1 :: k] if k else candidates


def _solve(problem: Problem, candidates: Callable[[Graph], IntArray]) -> Solution:
    if problem.graph.loss_index is None:
        raise NotApplicable("the graph has no loss op, so that there is no backward pass to plan")
    found = candidates(problem.graph)
    chosen = every_sqrt(found)
    plan = plan_with_checkpoints(problem.graph, set(chosen.tolist()))
    facts = {"candidates": len(found), "segment_length": isqrt(len(found))}
    return fitted(problem, plan, details=facts)


@dataclass(frozen=True)
class ChenSqrt:
    """Chen's sqrt(n) heuristic on linear networks (section 4.1 of the paper).

    ``plan`` raises NotApplicable on other networks, and Infeasible when its one plan does not
    fit the budget.
    """

    traits: ClassVar[Traits] = Traits("no", "no", "no")

    def plan(self, problem: Problem) -> Solution:
        """One checkpoint every floor(sqrt n) forward ops."""
        return _solve(problem, chain)


@dataclass(frozen=True)
class ApSqrt:
    """AP sqrt(n): candidates are the articulation points (Checkmate, appendix B.1)."""

    traits: ClassVar[Traits] = Traits("partly", "no", "no")

    def plan(self, problem: Problem) -> Solution:
        """One checkpoint every floor(sqrt n) articulation points."""
        return _solve(problem, articulation_points)


@dataclass(frozen=True)
class LinearizedSqrt:
    """Linearized sqrt(n): candidates are all forward ops (Checkmate, appendix B.2)."""

    traits: ClassVar[Traits] = Traits("yes", "no", "no")

    def plan(self, problem: Problem) -> Solution:
        """One checkpoint every floor(sqrt n) forward ops in program order."""
        return _solve(problem, forward_ops)
