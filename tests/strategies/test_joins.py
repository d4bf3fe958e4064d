"""Joins: Theorem 3 against brute force, and schedules whose peak is their slots."""

from __future__ import annotations

import csv
from itertools import combinations_with_replacement
from pathlib import Path

import join_search
import pytest
from hypothesis import given, settings, strategies as st

from rematbench import validator
from rematbench.base.errors import ConfigError, GraphError, Infeasible, NotApplicable
from rematbench.engines.plans.steps import join_steps
from rematbench.graphs.builders.synthetic import join, unit_chain
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.joins import EquivChain, JoinDp
from rematbench.strategies.joins.dp import (
    Costs,
    JoinTable,
    chain_table,
    enough_slots,
    smallest_slots,
)
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

DATA = Path(__file__).parents[1] / "data" / "golden" / "joins"


def test_the_toy_example_takes_74_not_75() -> None:
    graph = join((4, 10, 12))
    solution = JoinDp(9).plan(Problem(graph))
    trace = simulate(graph, solution.plan)
    assert (trace.cost, trace.peak_bytes, solution.objective) == (74, 9, 74)
    assert JoinDp().plan(Problem(graph, budget=9)).plan == solution.plan
    # The first decision that the paper prints leads to 75.
    table = JoinTable((4, 10, 12), 9)
    assert 9 + table.makespan(8, (4, 10, 3)) + table.chain[8, 9] == 75


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 7), min_size=1, max_size=3), extra=st.integers(0, 8))
def test_schedules_cost_the_makespan_and_peak_at_the_slots(lengths: list[int], extra: int) -> None:
    graph = join(lengths)
    slots = smallest_slots(lengths, [0] * len(lengths)) + extra
    solution = JoinDp(slots).plan(Problem(graph))
    trace = simulate(graph, solution.plan)
    assert trace.cost == solution.objective
    assert trace.peak_bytes <= slots
    if slots >= enough_slots(lengths):
        assert trace.recomputations == 0
    with pytest.raises(Infeasible, match="fewer than c_min") as caught:
        JoinDp(slots - extra - 1).plan(Problem(graph)) if slots - extra > 1 else JoinDp(1).plan(
            Problem(join([2, 2]))
        )
    assert caught.value.proven


@pytest.mark.parametrize(("branches", "longest", "most"), [(1, 7, 7), (2, 4, 6), (3, 3, 5)])
def test_theorem_3_is_what_a_search_over_memory_states_finds(
    branches: int, longest: int, most: int
) -> None:
    for lengths in combinations_with_replacement(range(longest + 1), branches):
        if sum(lengths) > most:
            continue
        for slots in range(1, enough_slots(lengths) + 2):
            found = JoinTable(lengths, slots).makespan(slots)
            assert found == join_search.makespan(lengths, slots), (lengths, slots)


@settings(max_examples=60, deadline=None)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=3))
def test_another_slot_never_costs(lengths: list[int]) -> None:
    most = enough_slots(lengths) + 1
    table = JoinTable(lengths, most)
    costs = [table.makespan(slots) for slots in range(1, most + 1)]
    assert costs == sorted(costs, reverse=True)


def test_brute_force_optima() -> None:
    with (DATA / "optmulti_brute_force.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        lengths = [int(n) for n in row["lengths"].split()]
        kept = [int(n) for n in row["b"].split()]
        slots = int(row["c"])
        assert JoinTable(lengths, slots, kept=kept).makespan(slots) == float(row["brute"])


def test_chains_and_figure_8() -> None:
    table = chain_table(40, 40, Costs())
    with (DATA / "opt0_small.csv").open() as file:
        for row in csv.DictReader(file):
            assert table[int(row["l"]), int(row["c"])] == float(row["Opt0(uf=ub=1)"])
    with (DATA / "fig8_L5.csv").open() as file:
        for row in csv.DictReader(file):
            lengths = [int(n) for n in row["lengths"].split()]
            slots = int(row["c"])
            assert JoinTable(lengths, slots).makespan(slots) == float(row["makespan"])


@pytest.mark.parametrize("reading", ["join", "chain", "turn"])
@pytest.mark.parametrize("lengths", [(6, 6, 6), (3, 6)])
def test_equivalent_chain_is_never_better(reading: str, lengths: tuple[int, ...]) -> None:
    graph = join(lengths)
    solution = EquivChain(12, reading).plan(Problem(graph))
    best = JoinDp(12).plan(Problem(graph))
    trace = simulate(graph, solution.plan)
    assert trace.cost >= simulate(graph, best.plan).cost
    if len(set(lengths)) == 1:
        assert trace.cost <= (solution.objective or 0) <= trace.cost + 2
        assert trace.peak_bytes <= 12


def test_refusals() -> None:
    with pytest.raises(NotApplicable, match="is no join"):
        JoinDp().plan(Problem(unit_chain(4)))
    for bad in ([], [-1], [1.5], [True]):
        with pytest.raises(GraphError, match="lengths are"):
            join(bad)
    with pytest.raises(ConfigError, match="slots=0"):
        JoinDp(0)
    with pytest.raises(ConfigError, match="choose join, chain or turn"):
        EquivChain(reading="sideways")
    with pytest.raises(NotApplicable, match="use fewer slots"):
        JoinTable((500, 500, 500), 100)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("siamese", {"resolution": 64}),
        ("cross_modal", {"resolution": 64, "trunk": "resnet18", "hidden": 8, "vocabulary": 50}),
    ],
)
def test_captured_joins_execute(name: str, options: dict) -> None:
    captured = capture(make_model(name, batch_size=2, **options))
    graph = captured.graph
    assert len(join_steps(graph).branches) == {"siamese": 3, "cross_modal": 2}[name]
    for strategy in (JoinDp(9), EquivChain(9)):
        plan = strategy.plan(Problem(graph)).plan
        assert simulate(graph, plan).recomputations > 0
        found = validator.measure(captured, plan, device="cpu", repeats=1)
        assert found.gradient_bitwise
