"""Cost models of other distributions: what they may return, what is said of those that fail."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import EntryPoint

import pytest

from rematbench import costmodel
from rematbench.base import imports
from rematbench.base.errors import ConfigError, GraphError
from rematbench.costmodel import plugins
from rematbench.costmodel.costs import with_costs
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import Graph
from rematbench.training.compiled.options import read_options


def constant(graph: Graph, cost: float) -> Graph:
    return with_costs(
        graph,
        {
            (op.name, implementation.name): (cost, 8)
            for op in graph.ops
            for implementation in op.implementations
        },
        "s",
    )


def threes(graph: Graph, captured: object) -> Graph:
    return constant(graph, 3.0)


def endless(graph: Graph, captured: object) -> Graph:
    return constant(graph, math.inf)


def renamed(graph: Graph, captured: object) -> Graph:
    return replace(graph, name="another")


def table(graph: Graph, captured: object) -> object:
    return {op.name: 1.0 for op in graph.ops}


def raising(graph: Graph, captured: object) -> Graph:
    raise ValueError("no such machine")


NO_FUNCTION = 3


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each function here, by its name; ``flops`` is taken."""
    names = ("threes", "endless", "renamed", "table", "raising", "NO_FUNCTION", "missing")
    points = [EntryPoint(name, f"{__name__}:{name}", plugins.GROUP) for name in names]
    points.append(EntryPoint("flops", f"{__name__}:threes", plugins.GROUP))
    monkeypatch.setattr(imports, "entry_points", lambda group: points)
    plugins.registered.cache_clear()
    yield
    plugins.registered.cache_clear()


def test_it_costs_a_graph() -> None:
    graph = costmodel.apply("threes", unit_chain(3), None)
    assert ({op.cost for op in graph.ops}, graph.cost_unit) == ({3.0}, "s")
    assert graph.ops[0].implementations[0].workspace_bytes == 8


def test_it_is_a_choice_everywhere() -> None:
    assert costmodel.names()[:5] == costmodel.NAMES
    assert "threes" in costmodel.names()
    assert costmodel.names().count("flops") == 1  # ours
    options = {"budget": 0.5, "costmodel": "threes"}
    assert read_options(options).costmodel == "threes"
    with pytest.raises(ConfigError, match="did you mean threes"):
        costmodel.apply("three", unit_chain(3), None)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("renamed", "changed more of .* than costs"),
        ("table", "returned a dict; return a Graph"),
        ("raising", "costmodel=raising raised ValueError at .*: no such machine"),
        ("NO_FUNCTION", "is no function"),
        ("missing", "cannot be loaded .* repair or uninstall"),
    ],
)
def test_what_is_said_of_one_that_fails(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        costmodel.apply(name, unit_chain(3), None)


def test_costs_are_numbers() -> None:
    with pytest.raises(GraphError, match="cost"):
        costmodel.apply("endless", unit_chain(3), None)
