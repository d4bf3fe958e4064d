"""Griewank & Walther, "Algorithm 799: Revolve" (2000): optimal binomial checkpointing of chains.

A chain of n equal steps is reversed with s snapshots, the input's included. beta(s, r) =
C(s + r, s) steps need at most r computations of each, and the least number of advances is
t(n, s) = r n - beta(s + 1, r - 1), with the smallest r such that beta(s, r) >= n.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import comb
from typing import ClassVar

import numpy as np

from rematbench.base.checks import check_count
from rematbench.base.errors import NotApplicable
from rematbench.engines.plans.steps import (
    Action,
    Backward,
    Forward,
    Turn,
    chain_steps,
    plan_from_actions,
)
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.structure import articulation_points, chain
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within

# With one snapshot the advances are quadratic; longer chains leave it out of the sweep.
_LONGEST_QUADRATIC = 300


def beta(slots: int, repeats: int) -> int:
    """C(slots + repeats, slots); 0 for negative ``repeats``."""
    return comb(slots + repeats, slots) if repeats >= 0 else 0


def advances(length: int, slots: int) -> int:
    """t(n, s), the least number of advances; the n taping forwards are not counted.

    >>> advances(10, 3), advances(100, 10)
    (15, 222)
    """
    r = _repeats(length, slots)
    return r * length - beta(slots + 1, r - 1)


def _repeats(length: int, slots: int) -> int:
    r = 0
    while beta(slots, r) < length:
        r += 1
    return r


def split(length: int, slots: int) -> int:
    """Steps to advance before the next snapshot, in an optimal schedule."""
    r = _repeats(length, slots)
    return max(1, min(beta(slots, r - 1), length - beta(slots - 1, r - 1)))


def schedule(length: int, slots: int) -> Iterator[Action]:
    """Actions that reverse a chain of ``length`` steps with ``slots`` snapshots.

    The taping forward of a step is part of going back over it, and only computed where backward
    ops read inner values of the step.
    """
    turned = False
    pending = [(0, length, slots)]  # reverse steps start..stop-1 from the snapshot before start
    while pending:
        start, stop, free = pending.pop()
        if stop - start > 1 and free > 1:
            middle = start + split(stop - start, free)
            yield from (Forward((0, step)) for step in range(start, middle))
            pending += [(start, middle, free), (middle, stop, free - 1)]
            continue
        for last in range(stop - 1, start - 1, -1):
            yield from (Forward((0, step)) for step in range(start, last))
            if not turned:
                yield Forward((0, last))
                yield Turn()
                turned = True
            yield Backward((0, last))


def _solve(
    problem: Problem, slots: int | None, cuts: Callable[[Graph], IntArray], variant: str
) -> Solution:
    graph = problem.graph
    if graph.loss_index is None:
        raise NotApplicable("the graph has no loss op, so that there is no backward pass to plan")
    steps = chain_steps(graph, cuts(graph))
    (length,) = steps.lengths
    if not length:
        raise NotApplicable("the forward graph has no op to cut at")
    tried = [slots] if slots is not None else _slots_to_try(length)
    made = ((s, plan_from_actions(steps, schedule(length, min(s, length)))) for s in tried)
    found, plan, _, curve = cheapest_within(problem, made)
    facts = {
        "slots": found,
        "steps": length,
        "advances": advances(length, found),
        "curve": curve,
    }
    return Solution(plan, objective=advances(length, found), variant=variant, details=facts)


def _slots_to_try(length: int) -> list[int]:
    """Up to 40 numbers of snapshots, the smallest ones and then ever fewer."""
    least = 1 if length <= _LONGEST_QUADRATIC else 2
    tried = np.unique(np.geomspace(least, max(length, least), 40).astype(int))
    return [int(slots) for slots in tried]


@dataclass(frozen=True)
class Revolve:
    """Optimal on chains of equal steps.

    Attributes:
        slots: snapshots, the input's included; None takes the cheapest plan that fits the
            budget. The objective is the number of advances, t(n, s).

    Raises:
        ConfigError: slots below 1.
    """

    traits: ClassVar[Traits] = Traits("no", "no", "no", budgeted=True)
    slots: int | None = None

    def __post_init__(self) -> None:
        if self.slots is not None:
            check_count("slots", self.slots)

    def plan(self, problem: Problem) -> Solution:
        """Each forward op is a step; raises NotApplicable where the forward graph branches."""
        return _solve(problem, self.slots, chain, "chain")


@dataclass(frozen=True)
class ApRevolve(Revolve):
    """Revolve on any graph, whose steps lie between its articulation points."""

    traits: ClassVar[Traits] = Traits("partly", "no", "no", budgeted=True)

    def plan(self, problem: Problem) -> Solution:
        """What lies between two articulation points is a step."""
        return _solve(problem, self.slots, articulation_points, "articulation_points")
