"""Why problems are hard: the rule, and what the pages say of it."""

from __future__ import annotations

from dataclasses import astuple, fields, replace
from pathlib import Path

import pytest

from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_graph
from rematbench.instances.difficulty import REASONS, all_reasons, effects, reasons
from rematbench.instances.features import features
from rematbench.instances.pages import pages
from rematbench.instances.records import Library, LibraryProblem, read_library, unsolved
from rematbench.instances.table import write_table

COMMITTED = read_library(Path(__file__).parents[2] / "instances")
CHAIN = unit_chain(8)
FOUND = features(CHAIN)  # by hand: both floors 3, peak 10, Chen's greedy heuristic needs 6
CASE = LibraryProblem(
    "unit_chain8@1", "chains/unit_chain8.graph.json.gz", 7, "chains", 17, 18, 3, 3, 10, 0
)


@pytest.fixture
def place(tmp_path: Path) -> Library:
    """A library of a chain with two budgets, of which nothing is known; it has no features."""
    write_graph(tmp_path / CASE.graph, CHAIN)
    rows = [CASE, replace(CASE, instance="unit_chain8@2", budget_bytes=5)]
    columns = [field.name for field in fields(LibraryProblem)]
    table = [dict(zip(columns, astuple(row), strict=True)) for row in rows]
    write_table(tmp_path / "problems.csv", columns, table)
    return read_library(tmp_path)


def test_each_reason_by_hand() -> None:
    assert reasons(CASE, FOUND) == ()
    reach = "out of a heuristic's reach"
    assert reasons(replace(CASE, budget_bytes=5), FOUND) == ("tight", reach)
    assert reasons(replace(CASE, budget_bytes=6), FOUND) == ()
    above = replace(CASE, floor_bytes=6)  # 1 of 4 bytes above the floor; of 3, of 10, of 11
    assert reasons(above, FOUND) == ("tight",)
    assert reasons(replace(above, peak_bytes=9), FOUND) == ()
    assert reasons(replace(above, peak_bytes=16), FOUND) == ("tight",)
    assert reasons(replace(above, peak_bytes=17), FOUND) == ("near the floor",)
    assert reasons(replace(CASE, once_floor_bytes=8), FOUND) == ("below the once floor",)
    assert reasons(replace(CASE, ops=2000), FOUND) == ()
    assert reasons(replace(CASE, ops=2001), FOUND) == ("large",)
    assert reasons(CASE, replace(FOUND, forward=1.0)) == ("no backward pass",)
    assert reasons(CASE, replace(FOUND, longest_skip=0.85)) == ("long skips",)


def test_effects_and_pages(place: Library) -> None:
    """One of two problems has a reason; a closed one is not among the open."""
    told = all_reasons(place)
    assert told == {"unit_chain8@1": (), "unit_chain8@2": ("tight", "out of a heuristic's reach")}
    closed = replace(unsolved(CASE), status="closed")
    library = replace(place, records={CASE.instance: closed})
    (tight, found) = (each for each in effects(library, told) if each.having)
    assert (tight.reason.name, found.reason.name) == ("tight", "out of a heuristic's reach")
    assert (found.having, found.closed, found.open) == (1, 0, 1)
    assert (found.without, found.closed_without) == (1, 1)
    made = pages(library)
    listed = made["index.html"].split("Open problems</h2>")[1]
    assert 'href="unit_chain8.html#unit_chain8@2"' in listed
    assert "unit_chain8@1" not in listed
    assert "<td>no plan</td><td>tight, out of a heuristic&#39;s reach</td>" in listed
    assert "<td>tight, out of a heuristic&#39;s reach</td>" in made["unit_chain8.html"]
    assert "<td>no reason is known</td>" in made["unit_chain8.html"]


def test_the_open_tier_has_reasons() -> None:
    """At least 50 open problems with a reason; and each reason is one of some open problem."""
    told = all_reasons(COMMITTED)
    opened = [names for name, names in told.items() if COMMITTED.record(name).status == "open"]
    assert sum(map(bool, opened)) >= 50
    assert {name for names in opened for name in names} == {reason.name for reason in REASONS}


def test_each_reason_explains_something() -> None:
    """Of the problems that have it, clearly fewer are closed than of the others."""
    for found in effects(COMMITTED, all_reasons(COMMITTED)):
        closed, others = found.closed / found.having, found.closed_without / found.without
        assert closed < others - 0.08, found.reason.name
