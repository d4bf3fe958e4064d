"""The library of instances: committed files are what the rules make, and what features say."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rematbench.base.errors import ConfigError
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import graph_document, read_graph
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.instances import library
from rematbench.instances.choosing import chosen_graphs, representatives
from rematbench.instances.families import Candidate, fixed
from rematbench.instances.features import features, gini, rank_correlation
from rematbench.instances.making import COLUMNS, budgets, make, problems, whole
from rematbench.instances.table import features_of, read_table, row_of, source_of

HOUSE = Path(__file__).parents[2]
PLACE = HOUSE / "instances"
ROWS = library.read(PLACE)
PROBLEMS = read_table(PLACE / "problems.csv")
CHOSEN = {row["name"]: row for row in ROWS if row["chosen"] == "1"}
# One of each way to make a graph: a chain, a builder of ours, layers, a random DAG, a log, a join,
# a captured network.
MADE_AGAIN = (
    *("unit_chain4", "uneven_chain10", "keras_vgg16_b64_h100", "moccasin20_s101", "log_unet"),
    *("join2_3", "vgg16_b128"),
)


@pytest.mark.parametrize("name", MADE_AGAIN)
def test_made_again_a_graph_is_the_committed_one(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(HOUSE)  # logs are named from here
    row = CHOSEN[name]
    source = source_of(row)
    graph = make(source)
    assert graph.hash == row["hash"]
    document = json.loads(json.dumps(graph_document(graph)))
    assert document == json.loads(gzip.decompress((PLACE / source.graph).read_bytes()))
    found = features(graph)
    assert found == features_of(row)
    lines = [p for p in PROBLEMS if p["graph"] == source.graph]
    made = problems(source, found, row["loss"] == "1")
    assert [{k: str(v) for k, v in p.items() if k != "in_100"} for p in made] == [
        {k: v for k, v in p.items() if k != "in_100"} for p in lines
    ]


def test_the_rule_gives_the_committed_selection() -> None:
    """Graphs and problems, from the features that are committed."""
    assert chosen_graphs(ROWS) == {*CHOSEN}
    found = [{k: str(v) for k, v in p.items()} for p in library.all_problems(ROWS)]
    assert found == PROBLEMS


def test_each_candidate_has_features_or_a_reason() -> None:
    assert all(bool(row["ops"]) != bool(row["reason"]) for row in ROWS)


def test_fixed_families_are_in_the_table() -> None:
    known = {row["name"]: row for row in ROWS}
    for source in fixed():
        assert source_of(known[source.name]) == source


def test_the_files_are_those_of_the_chosen() -> None:
    """Each is there, of the size and hash in the table, in whole numbers; small ones are read."""
    files = {str(p.relative_to(PLACE)) for p in PLACE.rglob("*.graph.json.gz")}
    assert (
        files == {source_of(row).graph for row in CHOSEN.values()} == {p["graph"] for p in PROBLEMS}
    )
    small = [row for row in CHOSEN.values() if int(row["ops"]) < 150]
    assert len(small) > 40
    for row in small:
        graph = read_graph(PLACE / source_of(row).graph)
        assert (graph.name, graph.hash) == (row["name"], row["hash"])
        costs = [i.cost for op in graph.ops for i in op.implementations]
        assert {type(cost) for cost in costs} == {int}, graph.name
        assert simulate(graph, program_order(graph)).peak_bytes == int(row["peak_bytes"])


def test_what_the_library_has() -> None:
    """300 graphs, 1,000 problems, from 8 to 50,000 ops, a hundred in REMATLIB-100."""
    assert len(CHOSEN) >= 300
    assert len(PROBLEMS) >= 1000
    assert tuple(PROBLEMS[0]) == COLUMNS
    assert len({p["instance"] for p in PROBLEMS}) == len(PROBLEMS)
    sizes = [int(p["ops"]) for p in PROBLEMS]
    assert min(sizes) == 8
    assert 40_000 < max(sizes) <= 50_000
    hundred = [p for p in PROBLEMS if p["in_100"] == "1"]
    assert len(hundred) == 100
    assert len({p["graph"] for p in hundred}) == 100
    assert {p["family"] for p in hundred} == {p["family"] for p in PROBLEMS}
    for p in PROBLEMS:
        floor, budget, peak = (int(p[f"{k}_bytes"]) for k in ("floor", "budget", "peak"))
        assert floor <= budget < peak, p["instance"]


def test_budgets_lie_where_it_is_hard() -> None:
    """Worked by hand: 9 values of a byte; floor 3, Chen's greedy 5 (checkpoints after 3 layers)."""
    graph = unit_chain(8)
    found = features(graph)
    assert (found.floor_bytes, found.once_floor_bytes, found.peak_bytes) == (3, 3, 10)
    assert found.lean_bytes == 6
    assert budgets(found, True) == [4, 6, 8]  # (3 + 6) / 2; 6; 6 + 4 / 2; 6 + 4 / 6 is 6 again
    assert budgets(found, True, (0.9, 0.7)) == [4, 6, 7, 9]
    assert budgets(found, False) == [4, 6, 8, 9]  # 3 + 7 / 4, 7 / 2, 21 / 4, 63 / 10


def test_costs_become_whole() -> None:
    ops = tuple(
        simple_op(name, Phase.FORWARD, [], [name], cost)
        for name, cost in (("a", 1.5e-6), ("b", 1e-12), ("c", 0.0))
    )
    graph = Graph("g", tuple(Value(op.name, 1) for op in ops), ops, ("a", "b", "c"), "second")
    made = whole(graph)
    assert [op.implementations[0].cost for op in made.ops] == [1500, 1, 0]
    assert made.cost_unit == "ns"
    with pytest.raises(ConfigError, match=r"'g': a cost of 1.5e-06 flop is no whole number"):
        whole(replace(graph, cost_unit="flop"))


def test_skews_and_correlations() -> None:
    assert gini(np.array([1, 1, 1, 1])) == pytest.approx(0)
    assert gini(np.array([0, 0, 0, 1])) == pytest.approx(0.75)
    assert gini(np.array([0, 0])) == 0
    assert rank_correlation(np.array([1, 2, 9]), np.array([10, 11, 12])) == pytest.approx(1)
    assert rank_correlation(np.array([1, 1, 1]), np.array([10, 11, 12])) == 0


def test_representatives_are_one_of_each_heap() -> None:
    """Two heaps and a single point; of each heap the middle one."""
    points = [[0.0], [1.0], [2.0], [100.0], [101.0], [102.0], [9000.0]]
    assert representatives([*points, [9001.0], [9002.0]], 3) == [1, 4, 7]
    assert representatives(points, 10) == list(range(7))


def test_a_candidate_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    words = ("model=timm", "model.arch=resnet5O", "costmodel=roofline")
    rows = [row_of(Candidate("timm", "timm_wrong", words))]
    library.measure(rows, (), tmp_path)
    assert rows[0]["reason"].startswith("model=timm model.arch=resnet5O: unknown; did you mean")
    assert read_table(tmp_path / "features.csv") == rows
    assert chosen_graphs(rows) == set()


def test_what_takes_too_long_is_stopped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def endless(source: Candidate) -> Graph:
        while True:
            pass

    monkeypatch.setattr(library, "make", endless)
    monkeypatch.setattr(library, "SECONDS", 1)
    rows = [row_of(Candidate("chains", "endless", ()))]
    library.measure(rows, (), tmp_path)
    assert rows[0]["reason"] == "stopped after 1 s"
