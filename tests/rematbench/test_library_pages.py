"""An instance's page: the graph, what strategies have beside records, files, and its size."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import astuple, fields, replace
from pathlib import Path

import pytest

from rematbench.base.errors import RematbenchError
from rematbench.graphs.builders.layered import random_layered
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_graph
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.instances import pages as written
from rematbench.instances.drawn_graph import MOST, drawn_graph
from rematbench.instances.pages import pages
from rematbench.instances.pictures import budget_curve
from rematbench.instances.records import (
    Library,
    LibraryProblem,
    graph_name,
    read_library,
    unsolved,
)
from rematbench.instances.strategy_plans import StrategyRows, by_strategy
from rematbench.instances.table import write_table
from rematbench.report.collect import collect
from rematbench.rows.row import Row, make_row

HOUSE = Path(__file__).parents[2]
QUICKLY = "runs/reference/library/families-1s.csv.gz"
QUICK = {
    *("dtr", "coop", "xla_remat", "chain_dp", "ap_greedy", "kusumoto"),
    *("linearized_greedy", "linearized_sqrt"),
}
CHAIN = unit_chain(8)
CASE = LibraryProblem(
    "unit_chain8@1", "chains/unit_chain8.graph.json.gz", 7, "chains", 17, 17, 3, 3, 10, 0
)


def row(strategy: str, budget: int, overhead: float | None, **given: object) -> Row:
    known = {
        **{"model": "unit_chain8", "graph_hash": CHAIN.hash, "ops": 17, "values": 17},
        **{"cost_unit": "unit", "checkpoint_all_cost": 17.0, "checkpoint_all_peak_bytes": 10},
        "status": "infeasible" if overhead is None else "ok",
        "extra": {"time_limit": 1.0},
    }
    return make_row(strategy=strategy, budget_bytes=budget, overhead=overhead, **known | given)


ROWS = [
    *(row("dtr", 7, 0.5), row("dtr", 7, 0.25), row("dtr", 5, None)),
    row("revolve", 7, 0.125),
    row("xla_remat", 7, 0.01, extra={"time_limit": 1.0, "in_program_order": False}),
    row("monet", 7, None, status="not_applicable"),
    row("coop", 7, 0.01, graph_hash="another", checkpoint_all_cost=18.0),
    row("coop", 7, 0.01, ops=18),
]


@pytest.fixture
def library(tmp_path: Path) -> Library:
    """A chain with two budgets; of the first one a value is known."""
    write_graph(tmp_path / CASE.graph, CHAIN)
    cases = [CASE, replace(CASE, instance="unit_chain8@2", budget_bytes=5)]
    columns = [field.name for field in fields(LibraryProblem)]
    table = [dict(zip(columns, astuple(each), strict=True)) for each in cases]
    write_table(tmp_path / "problems.csv", columns, table)
    known = replace(unsolved(CASE), value=18, bound=18, bound_of="any", by="dtr", status="closed")
    return replace(read_library(tmp_path), records={CASE.instance: known})


def test_rows_are_found_by_their_graph() -> None:
    plans = by_strategy(StrategyRows(ROWS).of(CHAIN, 10, 17.0))
    assert [*plans] == ["revolve", "dtr", "monet", "xla_remat"]  # most plans, then the cheapest
    assert [(each.budget_bytes, each.overhead, each.why) for each in plans["dtr"]] == [
        (5, None, "none"),
        (7, 0.25, ""),
    ]
    assert [plans[name][0].why for name in ("monet", "xla_remat")] == ["n/a", "moved"]


def test_a_graph_with_costs_in_seconds_is_equal_but_for_rounding() -> None:
    whole = Graph("n", CHAIN.values, CHAIN.ops, CHAIN.outputs, "ns")
    seconds = {"graph_hash": "theirs", "cost_unit": "second"}
    same = row("dtr", 7, 0.2, **seconds, checkpoint_all_cost=17.001e-9)
    other = row("revolve", 7, 0.2, **seconds, checkpoint_all_cost=17.1e-9)
    encoded = row("anytime_joint", 7, -0.1, **seconds, checkpoint_all_cost=17e-9)
    found = StrategyRows([same, other, encoded]).of(whole, 10, 17.0)
    assert [each.strategy for each in found] == ["dtr"]


def test_the_page_shows_graph_strategies_and_files(library: Library) -> None:
    made = pages(library, StrategyRows(ROWS))["unit_chain8.html"]
    assert f'<a href="{CASE.graph}" download>' in made
    assert '<svg class="graph"' in made
    assert made.count("<title>") == 1 + 4  # its own; revolve, the floor, bound and record
    line = made.split("</svg> dtr</td>")[1].split("</tr>")[0]
    assert line == "<td>none</td><td>+25.00%</td>"
    assert "<th>50.0%</th><th>70.0%</th>" in made
    assert "above 3 times the dearest record" in made  # dtr's, beside 1/17
    assert "was given 1 s" in made
    none = pages(library)["unit_chain8.html"]
    assert "No rows of strategies are of this graph" in none


def test_every_problem_has_rows_of_quick_strategies() -> None:
    """None cheaper than the record. Of the leaderboard's networks the leaderboard has rows."""
    library = read_library(HOUSE / "instances")
    problems = [each for each in library.instances.values() if each.family != "networks"]
    names = {(graph_name(each.graph), each.budget_bytes): each.instance for each in problems}
    asked: dict[str, set[str]] = defaultdict(set)
    for each in collect([HOUSE / QUICKLY]).rows:
        problem = names[str(each["model"]), each["budget_bytes"] or 0]
        asked[problem].add(str(each["strategy"]))
        if each["status"] == "ok" and each["extra"].get("in_program_order", True):
            value = library.record(problem).value
            assert value is not None, problem
            assert value <= each["cost"], (problem, each["strategy"])
    assert dict(asked) == dict.fromkeys(names.values(), QUICK)


def test_a_page_that_is_too_large_is_refused(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(written, "LARGEST", 3000)
    with pytest.raises(RematbenchError, match=r"unit_chain8\.html: \d+ bytes, more than 3000"):
        pages(library)


def test_the_curve_leaves_out_what_is_too_dear() -> None:
    points = [(0.5, 0.2, 0.1), (0.7, 0.1, None)]
    others = {"dtr": [(0.5, 0.7), (0.7, 0.3)], "coop": [(0.5, 0.9)]}
    picture, left = budget_curve(points, 0.3, others)
    assert left == 2  # above 3 * 0.2
    assert "<title>dtr</title>" in picture
    assert "<title>coop</title>" not in picture


def test_a_small_graphs_arcs_are_all_there() -> None:
    drawn = drawn_graph(CHAIN, simulate(CHAIN, program_order(CHAIN)))
    assert drawn.about.startswith("17 ops; ")
    assert drawn.about.endswith("each an arc.")
    reads = int(drawn.about.split("; ")[1].split()[0])
    assert drawn.picture.count("a", drawn.picture.index("<path")) > reads
    assert drawn.picture.count('class="across"') == 1


def test_a_large_graph_is_aggregated_and_says_so() -> None:
    graph = random_layered(500, seed=3)
    drawn = drawn_graph(graph, simulate(graph, program_order(graph)))
    assert f"drawn are the {MOST} of the most bytes" in drawn.about
    assert len(drawn.picture) < 40_000
