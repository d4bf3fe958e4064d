"""Revolve: the published step counts, and schedules that reverse every step once."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

import checkpoint_schedules as peer
import pytest
from helpers import diamond
from hypothesis import given, settings, strategies as st

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.engines.plans.steps import Backward, Forward, Turn
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.revolve import ApRevolve, Revolve, advances, schedule

TABLE = Path(__file__).parents[1] / "data" / "golden" / "revolve" / "forward_steps_n50.csv"


@cache
def least(length: int, slots: int) -> int:
    """t(n, s) by dynamic programming."""
    if length <= 1:
        return 0
    if slots == 1:
        return length * (length - 1) // 2
    return min(i + least(length - i, slots - 1) + least(i, slots) for i in range(1, length))


@settings(max_examples=100, deadline=None)
@given(length=st.integers(1, 40), slots=st.integers(1, 12))
def test_schedules_are_optimal(length: int, slots: int) -> None:
    actions = list(schedule(length, slots))
    assert sum(isinstance(a, Forward) for a in actions) - 1 == least(length, slots)
    assert advances(length, slots) == least(length, slots)
    assert actions.count(Turn()) == 1
    back = [a.place[1] for a in actions if isinstance(a, Backward)]
    assert back == list(range(length - 1, -1, -1))


def test_reference_table() -> None:
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            expected = int(row["advances_dp(excl_taping)"])
            assert advances(int(row["n"]), int(row["s"])) == expected


def test_long_chain() -> None:
    assert advances(10_000, 10) == sum(isinstance(a, Forward) for a in schedule(10_000, 10)) - 1


@pytest.mark.parametrize("slots", [2, 3, 5, 10])
def test_peak_grows_with_the_slots(slots: int) -> None:
    graph = unit_chain(100)
    solution = Revolve(slots).plan(Problem(graph))
    trace = simulate(graph, solution.plan)
    assert solution.details["advances"] == advances(100, slots)
    assert trace.peak_bytes <= slots + 3


def test_budget_picks_the_slots() -> None:
    graph = unit_chain(64)
    costs = []
    for budget in (64, 32, 16, 8):
        solution = Revolve().plan(Problem(graph, budget))
        trace = simulate(graph, solution.plan)
        assert trace.peak_bytes <= budget
        costs.append(trace.cost)
    assert costs == sorted(costs)
    with pytest.raises(Infeasible):
        Revolve().plan(Problem(graph, 3))


def test_only_chains_unless_between_articulation_points() -> None:
    with pytest.raises(NotApplicable, match="linear forward graph"):
        Revolve().plan(Problem(diamond()))
    simulate(diamond(), ApRevolve(1).plan(Problem(diamond())).plan)
    with pytest.raises(ConfigError, match="slots=0"):
        Revolve(0)


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 20), seed=st.integers(0, 10_000), slots=st.integers(1, 6))
def test_any_graph_gets_a_valid_plan(length: int, seed: int, slots: int) -> None:
    graph = random_graph(length, seed)
    trace = simulate(graph, ApRevolve(slots).plan(Problem(graph)).plan)
    assert trace.cost >= simulate(graph, program_order(graph)).cost


@pytest.mark.parametrize("slots", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("length", [1, 2, 10, 16, 37])
def test_a_published_program_advances_as_often(length: int, slots: int) -> None:
    forwards = [a for a in peer.Revolve(length, slots) if isinstance(a, peer.Forward)]
    # It counts the taping forward of each step, too.
    assert sum(a.n1 - a.n0 for a in forwards) == advances(length, slots) + length
