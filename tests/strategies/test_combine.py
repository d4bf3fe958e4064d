"""The choice of an option per block, against all choices."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from rematbench.engines.intervals import combine
from rematbench.engines.intervals.combine import Choice, Hull, by_steps, combined
from rematbench.graphs.ir import IntArray


def hull_of(random: np.random.Generator) -> Hull:
    """Some options; each byte more saves less than the one before."""
    more = random.integers(1, 30, int(random.integers(0, 5)))
    saved = more * np.sort(random.random(len(more)) * 5)[::-1]
    least = int(random.integers(0, 5))
    cost = np.concatenate([[0.0], -np.cumsum(saved)])
    return Hull(np.concatenate([[0], np.cumsum(more)]) + least, cost - cost[-1])


def totals(hulls: list[Hull], kind_of: IntArray, level: list[int]) -> tuple[float, int]:
    """Cost and bytes of a choice."""
    chosen = list(zip(kind_of.tolist(), level, strict=True))
    cost = sum(float(hulls[k].cost[at]) for k, at in chosen)
    return cost, sum(int(hulls[k].bytes[at]) for k, at in chosen)


@given(st.integers(0, 10**6), st.integers(1, 3), st.integers(1, 6), st.floats(0, 60))
@settings(max_examples=150, deadline=None)
def test_choices_are_the_cheapest(seed: int, kinds: int, blocks: int, room: float) -> None:
    """Equal to the best of all choices; the first choice is off by what it says, at most."""
    random = np.random.default_rng(seed)
    hulls = [hull_of(random) for _ in range(kinds)]
    kind_of, room = random.integers(0, kinds, blocks), room * blocks
    everything = product(*(range(len(hulls[k].bytes)) for k in kind_of.tolist()))
    sums = [totals(hulls, kind_of, list(level)) for level in everything]
    best = min((cost for cost, used in sums if used <= room), default=None)
    first, choice = by_steps(hulls, kind_of, room), combined(hulls, kind_of, room)
    if best is None:
        assert first is None
        assert choice is None
        return
    assert first is not None
    assert choice is not None
    cost, used = totals(hulls, kind_of, choice.level.tolist())
    assert used <= room
    assert cost == pytest.approx(best, abs=1e-9)
    cost, used = totals(hulls, kind_of, first.level.tolist())
    assert used <= room
    assert cost <= best + first.loss + 1e-9


def levels(choice: Choice | None) -> list[int]:
    """Options per block."""
    assert choice is not None
    return [int(level) for level in choice.level]


SMALL = Hull(np.array([0, 6]), np.array([12.0, 0.0]))
LARGE = Hull(np.array([0, 10]), np.array([18.0, 0.0]))


def test_steps_alone_are_not_the_best() -> None:
    """12 bytes hold 6 of them at 2 a byte, or 10 at 1.8 a byte, which is more."""
    hulls, kind_of = [SMALL, LARGE], np.array([0, 1])
    steps = by_steps(hulls, kind_of, 12)
    assert steps is not None
    assert steps.level.tolist() == [1, 0]
    assert steps.loss == pytest.approx(1.8 * (12 - 6))
    assert levels(combined(hulls, kind_of, 12)) == [0, 1]


def test_equal_blocks_keep_most_at_the_end() -> None:
    assert levels(combined([SMALL], np.array([0, 0, 0, 0]), 13)) == [0, 0, 1, 1]


def test_too_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first choice stands, and says what it may lose; so it does where that is little."""
    hulls, kind_of = [SMALL, LARGE], np.array([0, 1])
    assert levels(combined(hulls, kind_of, 12, tolerance=11)) == [1, 0]
    monkeypatch.setattr(combine, "MOST_STATES", 1)
    choice = combined(hulls, kind_of, 12)
    assert levels(choice) == [1, 0]
    assert choice is not None
    assert choice.loss == pytest.approx(10.8)
