"""Budgets as they stand on the command line."""

from __future__ import annotations

import pytest

from rematbench.graphs.budget import Budget, parse_budget, parse_bytes
from rematbench.graphs.errors import BudgetError


@pytest.mark.parametrize(
    ("given", "budget"),
    [
        (None, Budget()),
        (0.5, Budget(fraction=0.5)),
        (1.0, Budget(fraction=1.0)),
        (2, Budget(bytes=2)),
        (1e3, Budget(bytes=1000)),
        ("1B", Budget(bytes=1)),
        ("2TiB", Budget(bytes=2**41)),
        (123456789, Budget(bytes=123456789)),
        ("8GiB", Budget(bytes=8 * 2**30)),
        ("1.5 kB", Budget(bytes=1500)),
        ("2mib", Budget(bytes=2**21)),
    ],
)
def test_good(given: object, budget: Budget) -> None:
    assert parse_budget(given) == budget


@pytest.mark.parametrize(
    "given",
    [
        *(0, -1, 0.0, 1.5, 2.0, 1000.5, -0.5, True, False, float("nan"), float("inf")),
        *("8 bananas", "GiB", "", "half", "-3GiB", "0GiB", "1e3GiB", [1]),
    ],
)
def test_bad(given: object) -> None:
    with pytest.raises(BudgetError, match="not a budget; give null, a fraction"):
        parse_budget(given)


def test_one_is_ambiguous() -> None:
    with pytest.raises(BudgetError, match="budget=1: one byte, or everything"):
        parse_budget(1)
    assert parse_bytes("memory", 1) == 1


def test_of_the_peak() -> None:
    assert Budget(fraction=0.5).of(101) == 50
    assert Budget(bytes=7).of(101) == 7
    assert Budget().of(101) is None
