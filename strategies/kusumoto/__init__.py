"""Kusumoto et al., "A Graph Theoretic Framework of Recomputation Algorithms for Memory-Efficient
Backpropagation" (NeurIPS 2019): canonical strategies over sequences of lower sets.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rematbench.base.errors import ConfigError, NotApplicable
from rematbench.strategies.kusumoto.family import (
    Dag,
    Family,
    FamilyName,
    ancestor_sets,
    dag,
    family_of,
    lower_sets,
)
from rematbench.strategies.kusumoto.planner import Kusumoto
from rematbench.strategies.kusumoto.program import Canonical, Objective, smallest_budget, solve

__all__ = [
    "Canonical",
    "Dag",
    "Family",
    "Kusumoto",
    "dag",
    "family_of",
    "smallest_budget",
    "solve",
    "solve_lower_sets",
]

# Lower sets whose pairs a table still goes through in a minute or two.
_MOST_SETS = 50_000


def solve_lower_sets(
    n: int,
    edges: Iterable[Sequence[int]],
    bytes: Sequence[int],
    cost: Sequence[float],
    budget: int,
    family: FamilyName = "exact",
    objective: Objective = "time",
) -> float | int | None:
    """The overhead of the best canonical strategy within a budget of intermediate values.

    Args:
        n: number of nodes.
        edges: pairs (from, to).
        bytes: per node.
        cost: per node; small whole numbers for ``memory`` and ``least_cached`` to be exact.
        budget: bytes by the paper's formula.
        family: ``exact``: all lower sets; ``approximate``: each node with its ancestors.
        objective: ``time``: least overhead; ``memory``: most; ``least_cached``: that of the least
            cache.

    Returns:
        The cost of all that is computed twice, the last block included; an int where all costs
        are; None where no sequence fits.

    Raises:
        ConfigError: an argument is malformed.
        NotApplicable: too many lower sets for the exact family.
    """
    if family not in ("exact", "approximate"):
        raise ConfigError(f"family is {family!r}; choose exact or approximate")
    if objective not in ("time", "memory", "least_cached"):
        raise ConfigError(f"objective is {objective!r}; choose time, memory or least_cached")
    if type(budget) is not int:
        raise ConfigError(f"budget is {budget!r}; give a whole number of bytes")
    graph = dag(n, edges, bytes, cost)
    sets = lower_sets(graph, _MOST_SETS) if family == "exact" else ancestor_sets(graph)
    if sets is None:
        raise NotApplicable(f"more than {_MOST_SETS} lower sets; use family=approximate")
    found = solve(graph, family_of(graph, sets), budget, objective)
    if found is None:
        return None
    return round(found.overhead) if all(isinstance(c, int) for c in cost) else found.overhead
