"""What DTR's runtimes share: scores, and the union-find of evicted storages."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from rematbench.streams.eviction import HEURISTICS, Component, Heuristic

SCORES = {
    "full": 12 / (3 * 4),
    "eqclass": 12 / (3 * 4),
    "local": 12 / (3 * 4),
    "lru": 6,
    "largest": 1 / 3,
    "random": 1,
}


@pytest.mark.parametrize("name", HEURISTICS)
def test_scores(name: str) -> None:
    """Of cost 12, size 3, last used at 6, four ticks ago; alone and among others."""
    heuristic = HEURISTICS[name]
    assert heuristic.score(12, 3, 6, 4) == SCORES[name]
    cost, size, last, stale = np.array([[12.0, 24], [3, 3], [6, 6], [4, 4]])
    among = np.broadcast_to(heuristic.score(cost, size, last, stale), 2)
    assert among[0] == SCORES[name]
    assert heuristic.random == (name == "random")


def test_a_score_without_parts() -> None:
    assert Heuristic(staleness=False, size=True, cost="local").score(12, 3, 6, 4) == 4
    assert Heuristic(staleness=True, size=False, cost="local").score(12, 3, 6, 4) == 3
    with pytest.raises(ZeroDivisionError):
        HEURISTICS["full"].score(12, 0, 6, 4)


@given(st.lists(st.tuples(st.integers(0, 19), st.integers(0, 19)), max_size=40))
def test_components(joins: list[tuple[int, int]]) -> None:
    """Against sets that are merged in full; costs add up, and every path ends at one root."""
    nodes = [Component(1 << i) for i in range(20)]
    sets = [{i} for i in range(20)]
    for left, right in joins:
        one, other = nodes[left].root(), nodes[right].root()
        assert (one is other) == (sets[left] is sets[right])
        if one is not other:
            other.absorb(one)
            sets[right] |= sets[left]
            for each in list(sets[left]):
                sets[each] = sets[right]
    for node, members in zip(nodes, sets, strict=True):
        root, length = node.find()
        assert root is node.root()
        assert root.cost == sum(1 << i for i in members)
        assert length <= len(members)
        assert node.find()[1] <= 2  # the path points at the root now
