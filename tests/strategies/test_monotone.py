"""More memory never costs more: every strategy that claims an optimum, over budgets.

Which those are is what ``docs/strategies.md`` says of them.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from rematbench.base.errors import Infeasible
from rematbench.graphs.builders.synthetic import join, random_graph, unit_chain
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies import registry
from rematbench.strategies.base import Problem, SupportsWarmUp

PAGE = Path(__file__).parents[2] / "docs" / "strategies.md"
BUDGETS = 5
# Options with which the optimum is the strategy's claim, and graphs that it takes.
CASES: dict[str, tuple[dict[str, Any], list[Graph]]] = {
    "revolve": ({}, [unit_chain(9)]),
    "chain_dp": ({}, [unit_chain(9)]),
    "join_dp": ({}, [join((3, 2)), join((2, 2, 2))]),
    "kusumoto": ({"family": "exact"}, [unit_chain(8), random_graph(6, 3)]),
    "anytime": ({}, [unit_chain(7), random_graph(5, 2)]),
    "checkmate_ilp": ({}, [unit_chain(7), random_graph(5, 2)]),
    "feng_huang": ({}, [unit_chain(9), random_graph(8, 4)]),
    "anytime_joint": ({"gap": 1e-4}, [random_graph(5, 2)]),
    "moccasin": ({"threads": 1, "start": "none"}, [random_graph(5, 2)]),
}


def claims() -> set[str]:
    """Strategies whose guarantee, as documented, is an optimum."""
    rows = PAGE.read_text().partition("## By name")[0].splitlines()
    found = (re.match(r"\| `(\w+)` \|[^|]*\|[^|]*\| optimal", row) for row in rows)
    return {match[1] for match in found if match}


def test_every_strategy_that_claims_an_optimum_is_here() -> None:
    assert claims() == set(CASES)


@pytest.mark.parametrize(
    ("name", "graph"),
    [
        pytest.param(name, graph, id=f"{name}-{graph.name}")
        for name, (_, graphs) in CASES.items()
        for graph in graphs
    ],
)
def test_cost_falls_as_the_budget_grows(name: str, graph: Graph) -> None:
    strategy = registry.make(name, **CASES[name][0])
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    least, most = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    costs: list[float | None] = []
    seconds = 2.0 if name == "anytime" else 20.0  # it goes on where it cannot prove a gap of zero
    for step in range(BUDGETS + 1):
        budget = least + (most - least) * step // BUDGETS
        try:
            solution = strategy.plan(Problem(graph, budget, time_limit=seconds))
        except Infeasible:
            costs.append(None)
            continue
        assert solution.plan is not None
        trace = simulate(graph, solution.plan)
        assert trace.peak_bytes <= budget
        costs.append(trace.cost)
    found = [cost for cost in costs if cost is not None]
    assert found
    assert costs == [None] * (len(costs) - len(found)) + sorted(found, reverse=True)
    assert found[-1] < found[0] or name == "feng_huang"  # the plan is one, whatever the budget
