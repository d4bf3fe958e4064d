"""What puts a row in doubt: a bound above its plan's cost, a measured peak above the budget."""

from __future__ import annotations

import numpy as np
import pytest

from rematbench.graphs.builders.synthetic import random_graph, unit_chain, with_backward
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, in_program_order, program_order, with_frees
from rematbench.graphs.planning import BoundOf, Solution
from rematbench.graphs.simulate import simulate
from rematbench.jobs.doubts import judge_bound, judge_peak, judge_threads
from rematbench.rows.row import Row, make_row

OURS, THEIRS = "rematbench.strategies.chen.ApSqrt", "somebody.planner.Theirs"


def bound_row(graph: Graph, plan: Plan, bound: float, of: BoundOf, target: str = OURS) -> Row:
    row = make_row(status="ok")
    solution = Solution(plan, bound=bound, bound_of=of)
    judge_bound(row, graph, solution, simulate(graph, plan), target)
    return row


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
    row = make_row(status="ok", costmodel=costmodel, budget_bytes=100, measured_peak_bytes=107)
    row["extra"]["requested_bytes"] = requested
    judge_peak(row)
    assert row["extra"]["over_budget_bytes"] == 7
    assert row["status"] == status
    assert row["reason"].startswith("measured 7 bytes above the budget")
    assert said in row["reason"]


def test_a_peak_within_the_budget_is_not_mentioned() -> None:
    row = make_row(status="ok", costmodel="profiled", budget_bytes=100, measured_peak_bytes=100)
    judge_peak(row)
    assert (row["status"], row["reason"]) == ("ok", None)
    assert "over_budget_bytes" not in row["extra"]


@pytest.mark.parametrize(
    ("threads", "cpu", "said"), [(1, 10.4, None), (1, 19.0, 1.9), (2, 19.0, None), (2, 35.0, 3.5)]
)
def test_a_planner_in_more_threads_than_it_was_given(
    threads: int, cpu: float, said: float | None
) -> None:
    row = make_row(threads=threads, plan_seconds=10.0, extra={"plan_cpu_seconds": cpu})
    judge_threads(row)
    assert row["extra"].get("threads_used") == said
