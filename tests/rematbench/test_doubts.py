"""What puts a row in doubt: a bound above its plan's cost, a measured peak above the budget."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import numpy as np
import pytest

from rematbench.graphs.builders.synthetic import random_graph, unit_chain, with_backward
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, in_program_order, program_order, with_frees
from rematbench.graphs.planning import BoundOf, Solution
from rematbench.graphs.simulate import simulate
from rematbench.jobs.columns import of_bound, of_measurement, of_planning
from rematbench.rows.row import Row, joined, make_row
from rematbench.validator import GradientVerdict, Measurement

OURS, THEIRS = "rematbench.strategies.chen.ApSqrt", "somebody.planner.Theirs"


def bound_row(graph: Graph, plan: Plan, bound: float, of: BoundOf, target: str = OURS) -> Row:
    solution = Solution(plan, bound=bound, bound_of=of)
    found = of_bound(graph, plan, solution, simulate(graph, plan), target)
    return joined(make_row(status="ok"), found)


def measured_row(peak: int, requested: int | None, costmodel: str, accounting: str = "full") -> Row:
    """The row of a plan that peaks at 90 bytes, of a budget of 100, once it is measured."""
    unknown = {field.name: None for field in fields(Measurement)}
    known = {
        "measured_peak_bytes": peak,
        "requested_bytes": requested,
        "verdict": GradientVerdict.EXACT,
    }
    measurement = Measurement(**(unknown | known))
    settings = SimpleNamespace(accounting=accounting, costmodel=costmodel)
    return joined(make_row(status="ok"), of_measurement(measurement, settings, 90, 100))


def test_a_bound_below_the_cost_is_a_gap() -> None:
    graph = unit_chain(4)
    plan = program_order(graph)
    cost = simulate(graph, plan).cost
    row = bound_row(graph, plan, 0.75 * cost, "any")
    assert (row["bound"], row["bound_of"], row["gap"]) == (0.75 * cost, "any", 0.25)
    rounded = bound_row(graph, plan, cost * (1 + 1e-12), "any")
    assert (rounded["gap"], rounded["status"]) == (0.0, "ok")


def test_a_bound_above_the_cost_is_refused() -> None:
    graph = unit_chain(4)
    plan = program_order(graph)
    row = bound_row(graph, plan, 100.0, "F")
    assert (row["status"], row["bound"], row["gap"]) == ("failed", None, None)
    assert (
        "its bound of 100 (F) is above the plan's cost 9: a fault of the strategy" in row["reason"]
    )
    assert row["extra"]["refused_bound"] == 100.0
    theirs = bound_row(graph, plan, 100.0, "F", THEIRS)
    assert (theirs["status"], theirs["bound"]) == ("ok", None)
    assert theirs["reason"].endswith("the bound is refused")


def test_a_plan_outside_program_order_refutes_no_bound_of_plans_inside() -> None:
    graph = with_backward(random_graph(6, 3))
    orders = (np.random.default_rng(seed).permutation(5) for seed in range(1000))
    for order in orders:
        sequence = np.concatenate([order, np.arange(5, len(graph.ops))])
        try:
            codes = with_frees(graph, graph.tables.op_first[sequence])
            plan = Plan.from_codes(graph, codes)
            cost = simulate(graph, plan).cost
        except Exception:  # no order that ops can run in
            continue
        if not in_program_order(graph, plan):
            row = bound_row(graph, plan, cost + 1, "any")
            assert row["status"] == "ok"
            assert "not in program order" in row["reason"]
            return
    pytest.fail("the graph has one order only")


@pytest.mark.parametrize(
    ("costmodel", "requested", "status", "said"),
    [
        ("profiled", None, "failed", "which the simulator does not account for"),
        ("profiled", 90, "ok", "the caching allocator rounds up"),
        ("flops", None, "ok", "plan with costmodel=profiled"),
    ],
)
def test_a_peak_above_the_budget_is_said(
    costmodel: str, requested: int | None, status: str, said: str
) -> None:
    row = measured_row(107, requested, costmodel)
    assert row["extra"]["over_budget_bytes"] == 7
    assert row["status"] == status
    assert row["reason"].startswith("measured 7 bytes above the budget")
    assert said in row["reason"]


def test_a_peak_within_the_budget_is_not_mentioned() -> None:
    row = measured_row(100, None, "profiled")
    assert (row["status"], row["reason"]) == ("ok", None)
    assert "over_budget_bytes" not in row["extra"]


def test_a_peak_of_another_accounting_is_compared_with_nothing() -> None:
    row = measured_row(107, None, "profiled", accounting="activations")
    assert (row["status"], row["reason"], row["peak_error"]) == ("ok", None, None)


@pytest.mark.parametrize(
    ("threads", "cpu", "said"), [(1, 10.4, None), (1, 19.0, 1.9), (2, 19.0, None), (2, 35.0, 3.5)]
)
def test_a_planner_in_more_threads_than_it_was_given(
    threads: int, cpu: float, said: float | None
) -> None:
    row = joined(make_row(), of_planning(10.0, cpu, threads))
    assert row["extra"].get("threads_used") == said
