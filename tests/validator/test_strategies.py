"""Every strategy, executed at the tightest budget that it meets: eager training's bits."""

from __future__ import annotations

import pytest
from tightest import NEVER, Executed, executed, names, recorded


def check(row: Executed) -> None:
    """It recomputes, or is known not to; and it is eager training's step."""
    assert row.reason == ""
    if row.strategy in NEVER:
        assert row.recomputations == 0
        assert (row.encodings > 0) == (row.strategy == "gist")
        assert (row.fraction < 1) == (row.strategy == "gist")
    else:
        assert row.recomputations > 0
        assert row.fraction < 1
    inexact = {
        "anytime_joint": ("rounding",),
        "monet": ("rounding",),
        "gist": ("lossy", "rounding"),
    }
    assert row.verdict in inexact.get(row.strategy, ("exact",))


@pytest.mark.parametrize("name", names())
def test_bits_of_eager_training(name: str) -> None:
    """From the fraction on that the record says: making the record tried the smaller ones."""
    (row,) = [each for each in recorded() if each.strategy == name]
    check(executed(name, row.fraction))


def test_the_record_has_every_strategy() -> None:
    """runs/reference/executed-strategies.csv; made anew by ``python tests/support/tightest.py``."""
    rows = recorded()
    assert [row.strategy for row in rows] == names()
    for row in rows:
        check(row)
