"""Graph and plan files: what is written is read back, and bad files are told in one line."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from rematbench.base.errors import GraphError, PlanError
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.files import (
    graph_document,
    plan_document,
    read_graph,
    read_plan,
    write_graph,
    write_json,
    write_plan,
)
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.plan import Compute, Free, Plan, program_order


@pytest.mark.parametrize("ending", ["json", "json.gz"])
def test_round_trip(tmp_path: Path, ending: str) -> None:
    graph = random_graph(9, seed=3)
    plan = program_order(graph).labelled("mine", 500)
    write_graph(tmp_path / f"a.graph.{ending}", graph)
    write_plan(tmp_path / f"a.plan.{ending}", plan)
    assert read_graph(tmp_path / f"a.graph.{ending}") == graph
    found = read_plan(tmp_path / f"a.plan.{ending}")
    assert found == plan
    assert (found.strategy, found.budget_bytes, found.graph) == ("mine", 500, graph.name)


@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 20), seed=st.integers(0, 99))
def test_round_trip_of_random_graphs(tmp_path_factory, length: int, seed: int) -> None:
    path = tmp_path_factory.mktemp("files") / "g.json"
    graph = random_graph(length, seed)
    write_graph(path, graph)
    assert read_graph(path).hash == graph.hash


def test_implementations_round_trip(tmp_path: Path) -> None:
    implementations = (
        Implementation("default", ("x",), 2.0, 3),
        Implementation("lean", ("x",), 4.0),
    )
    inplace = (Implementation("take", ("y",), 1.0, 0, ("y",)),)
    graph = Graph(
        "ways",
        (Value("x", 1, True), Value("y", 2), Value("z", 2)),
        (
            Op("f", Phase.FORWARD, ("y",), implementations, "layers.0"),
            Op("g", Phase.FORWARD, ("z",), inplace, autograd_node=0, target="aten.relu_.default"),
        ),
        ("z",),
        "second",
    )
    plan = Plan((Compute("f", "lean"), Compute("g"), Free("z")), "ways")
    write_graph(tmp_path / "g", graph)
    write_plan(tmp_path / "p", plan)
    assert read_graph(tmp_path / "g") == graph
    assert read_plan(tmp_path / "p") == plan


def test_ops_know_their_operator_and_a_graph_is_called_the_same_without() -> None:
    graph = unit_chain(2)
    text = replace(graph, ops=tuple(replace(op, target="aten.add.Tensor") for op in graph.ops))
    assert text.hash == graph.hash
    assert {op.operator for op in text.ops} == {"add"}
    assert simple_op("_softmax_12", Phase.FORWARD, ["x"], ["y"], 1).operator == "_softmax"


def graph_with(**changes: Any) -> dict[str, Any]:
    return graph_document(unit_chain(2)) | changes


def chain_with_op(position: int, **changes: Any) -> dict[str, Any]:
    document = graph_document(unit_chain(2))
    document["ops"][position] |= changes
    return document


def without(key: str) -> dict[str, Any]:
    document = graph_document(unit_chain(2))
    del document[key]
    return document


BAD_GRAPHS = {
    "cycle": (
        chain_with_op(0, reads=["layer1"]),
        "ops form a cycle: layer1 -> layer0 -> layer1; remove one of these reads",
    ),
    "order": (
        graph_with(ops=graph_document(unit_chain(2))["ops"][::-1]),
        "list the ops in program",
    ),
    "unknown read": (chain_with_op(1, reads=["nix"]), "op 'layer1' reads the unknown value 'nix'"),
    "duplicate op": (chain_with_op(1, name="layer0"), "op 'layer0' appears twice"),
    "duplicate value": (
        graph_with(values=graph_document(unit_chain(2))["values"] * 2),
        "value 'layer0' appears twice",
    ),
    "unknown output": (graph_with(outputs=["nix"]), "output 'nix' is not a value"),
    "missing key": (without("outputs"), "key 'outputs' is missing"),
    "missing op key": (chain_with_op(0, cost=None), "op 'layer0': cost is None"),
    "unknown key": (graph_with(colour="red"), "unknown key 'colour'"),
    "negative bytes": (graph_with(values=[{"name": "a", "bytes": -1}]), "value 'a': bytes is -1"),
    "float bytes": (graph_with(values=[{"name": "a", "bytes": 1.5}]), "value 'a': bytes is 1.5"),
    "negative cost": (chain_with_op(1, cost=-2), "op 'layer1': cost is -2"),
    "text cost": (chain_with_op(1, cost="2"), "op 'layer1': cost is '2'"),
    "autograd node": (
        chain_with_op(1, autograd_node="mul"),
        "op 'layer1': autograd_node is 'mul'; give a whole number, 0 or more",
    ),
    "target": (chain_with_op(1, target=""), "op 'layer1': target is ''; give a non-empty string"),
    "phase": (chain_with_op(1, phase="sideways"), "give forward, loss or backward"),
    "version": (graph_with(version=2), "version is 2; this program reads version 1"),
    "format": (graph_with(format="other"), 'its "format" must be "rematbench-graph"'),
    "no op": (graph_with(ops=[3]), "op number 0 is not an object"),
    "no list": (graph_with(ops={}), "ops is {}; give a list"),
    "no writer": (graph_with(values=[*graph_with()["values"], {"name": "z", "bytes": 1}]), "'z'"),
}


@pytest.mark.parametrize("name", BAD_GRAPHS)
def test_bad_graph_is_told_in_one_line(tmp_path: Path, name: str) -> None:
    document, said = BAD_GRAPHS[name]
    path = tmp_path / "bad.graph.json"
    write_json(path, document)
    with pytest.raises(GraphError) as caught:
        read_graph(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert said in message
    assert "\n" not in message


TEXT = json.dumps(graph_document(unit_chain(2)))
BAD_BYTES = {
    "truncated": (TEXT[:-9].encode(), "is the file truncated?"),
    "nan": (TEXT.replace('"cost": 1', '"cost": NaN', 1).encode(), "holds NaN"),
    "infinity": (TEXT.replace('"cost": 1', '"cost": -Infinity', 1).encode(), "holds -Infinity"),
    "huge": (TEXT.replace('"cost": 1', '"cost": 1e999', 1).encode(), "cost is inf"),
    "twice": (TEXT.replace('"name"', '"name": "a", "name"', 1).encode(), "'name' appears twice"),
    "gzip": (gzip.compress(TEXT.encode())[:-20], "truncated gzip"),
    "a zero first": (b"\x00\x01\x02{}", "not text .UTF-8.; give a JSON file"),
    "a zero within": (b'{"a": "\x00"}', "not text .UTF-8.; give a JSON file"),
    "utf-16": ("{}".encode("utf-16-le"), "not text .UTF-8.; give a JSON file"),
    "binary": (b"\xff\xfe\x00", "not text .UTF-8.; give a JSON file"),
    "deep": (b"[" * 200_000 + b"]" * 200_000, "nested too deep"),
    "two": (f"{TEXT}\n{TEXT}".encode(), "goes on after its JSON ends, at line "),
    "empty": (b"", "not valid JSON"),
}


@pytest.mark.parametrize("name", BAD_BYTES)
def test_damaged_file_is_told_in_one_line(tmp_path: Path, name: str) -> None:
    content, said = BAD_BYTES[name]
    path = tmp_path / "bad.graph.json"
    path.write_bytes(content)
    with pytest.raises(GraphError, match=said) as caught:
        read_graph(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="cannot be read"):
        read_graph(tmp_path / "nix.json")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"statements": [["compute"]]}, "statement 0"),
        ({"statements": [["free", "a"], ["throw", "a"]]}, "statement 1"),
        ({"statements": [["compute", 3]]}, "statement 0"),
        ({"statements": None}, "give a list"),
        ({"budget_bytes": -1}, "budget_bytes is -1"),
        ({"graph": ""}, "graph is ''"),
    ],
)
def test_bad_plan_is_told_in_one_line(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    path = tmp_path / "bad.plan.json"
    write_json(path, plan_document(program_order(unit_chain(2))) | changes)
    with pytest.raises(PlanError, match=said) as caught:
        read_plan(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": 1})
    with pytest.raises(ValueError, match="JSON"):
        write_json(path, {"a": float("nan")})
    assert json.loads(path.read_text()) == {"a": 1}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]
