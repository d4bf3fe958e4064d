"""poet: its program beside Checkmate's, by hand, and what its constraints forget."""

from __future__ import annotations

from typing import Any

import pytest
from copying import chain

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable, Stopped
from rematbench.graphs.builders.synthetic import random_graph, unit_chain, with_backward
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Problem, Solution
from rematbench.graphs.simulate import Trace, simulate
from rematbench.strategies.registry import make

DEAR = 1e4
"""Power of copying at which nothing is copied."""


def planned(graph: Graph, budget: int, link: Link, **options: Any) -> tuple[Solution, Trace]:
    found = make("poet", **options).plan(Problem(graph, budget, 20.0, link=link))
    assert found.plan is not None
    trace = simulate(graph, found.plan, link)
    assert trace.peak_bytes <= budget
    return found, trace


@pytest.mark.parametrize("budget", [3, 4, 5])
def test_where_copies_are_dear_it_is_checkmates_program(budget: int) -> None:
    graph = unit_chain(4)
    found, trace = planned(graph, budget, Link(1.0, 1.0), copy_power=DEAR)
    theirs = make("checkmate_ilp", variant="paper", gap=0.0).plan(Problem(graph, budget, 20.0))
    assert found.objective == pytest.approx(theirs.objective)
    assert trace.cost == pytest.approx(theirs.objective)
    assert found.details["paged_values"] == 0


def test_branches_as_in_checkmates_program() -> None:
    tried = 0
    for seed in range(6):
        graph = with_backward(random_graph(5, seed))
        order = simulate(graph, program_order(graph))
        budget = max(graph.floor_bytes(), int(0.85 * order.peak_bytes))
        if budget >= order.peak_bytes:
            continue
        problem = Problem(graph, budget, 20.0)
        try:
            theirs = make("checkmate_ilp", variant="paper", gap=0.0).plan(problem).objective
        except Infeasible:
            continue
        found, _ = planned(graph, budget, Link(1.0, 1.0), copy_power=DEAR)
        assert found.objective == pytest.approx(theirs)
        cheap, trace = planned(graph, budget, Link(1.0, 1.0), copy_power=0.0)
        assert cheap.objective <= found.objective + 1e-9
        assert cheap.details["paged_compute_cost"] == pytest.approx(cheap.objective)
        assert trace.cost >= cheap.objective - 1e-9
        tried += 1
    assert tried >= 3


def test_energy_of_a_small_chain() -> None:
    """Six bytes become three: one value is paged for 1 + 1 at the power of 0.25, one costs 1."""
    graph = unit_chain(4)
    once = simulate(graph, program_order(graph)).cost
    found, trace = planned(graph, 4, Link(2.0, 2.0), copy_power=0.25)
    assert found.objective == once + 2 * 2 * 0.25 * 0.5
    assert found.details["paged_values"] == 2
    timed, _ = planned(graph, 4, Link(2.0, 2.0), objective="time")
    assert timed.objective == once + 2 * 1
    assert timed.variant == "time"
    assert trace.cost >= once


def test_it_forgets_that_copies_take_time() -> None:
    """What is free to it stalls compute: the plan takes 17, and recomputing instead 15."""
    graph, link = unit_chain(4), Link(0.5, 0.5)
    found, trace = planned(graph, 3, link, copy_power=0.0)
    assert found.objective == 9
    assert trace.cost > 15
    alone, trace = planned(graph, 3, link, copy_power=DEAR)
    assert alone.objective == pytest.approx(15)
    assert trace.cost == 15


def test_the_deadline_counts_computes_alone() -> None:
    graph, link = unit_chain(4), Link(0.5, 0.5)
    found, trace = planned(graph, 3, link, copy_power=DEAR, deadline=1.0)
    assert found.details["paged_compute_cost"] == 9
    assert trace.cost > 9
    with pytest.raises(Infeasible, match="no schedule within 3"):
        planned(chain([1, 1, 1, 1], [1.0] * 4), 3, link, deadline=0.9)


def test_what_it_does_not_plan() -> None:
    with pytest.raises(NotApplicable, match="give link=pcie4"):
        make("poet").plan(Problem(unit_chain(4), 4))
    with pytest.raises(Stopped, match=r"has 1,\d+,\d+ columns for 601 ops"):
        make("poet").plan(Problem(unit_chain(300), 100, 5.0, link=Link(1.0, 1.0)))
    with pytest.raises(Infeasible, match="knows no limit of the host"):
        make("poet", copy_power=0.0).plan(Problem(unit_chain(4), 3, link=Link(1.0, 1.0), host=0))
    for option in ({"copy_power": -1.0}, {"deadline": float("inf")}, {"objective": "joules"}):
        with pytest.raises(ConfigError, match="strategy"):
            make("poet", **option)
