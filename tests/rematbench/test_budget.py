"""Budgets as they stand on the command line."""

from __future__ import annotations

import numpy as np
import pytest

from rematbench.base.errors import BudgetError, ConfigError
from rematbench.graphs.budget import Budget, parse_budget, parse_bytes
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.strategies.base import Problem


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
        (np.float64(0.5), Budget(fraction=0.5)),
        (np.float32(0.25), Budget(fraction=0.25)),
        (np.int64(100), Budget(bytes=100)),
        (np.float64(1e6), Budget(bytes=10**6)),
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


@pytest.mark.parametrize("given", [4, 4.0, np.int64(4), np.int32(4), np.float64(4.0)])
def test_a_problems_budget_is_whole_bytes(given: int) -> None:
    """Planners get Python's integer: files and solvers in other processes know no other."""
    assert type(Problem(unit_chain(2), given).budget) is int


@pytest.mark.parametrize("given", [4.5, True, float("nan"), float("inf"), "4", np.array([4, 5])])
def test_what_is_no_budget_of_a_problem(given: object) -> None:
    with pytest.raises(ConfigError, match=r"Problem\.budget is .*; give whole bytes, or None"):
        Problem(unit_chain(2), given)  # type: ignore[arg-type]
