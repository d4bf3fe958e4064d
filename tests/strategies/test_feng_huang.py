"""Feng & Huang: division tree, solvers, plans."""

from __future__ import annotations

import csv
import itertools
import json
from collections.abc import Sequence
from pathlib import Path

import networkx as nx
import pytest
from hypothesis import given, settings, strategies as st

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.graphs.builders.synthetic import random_graph, unit_chain, with_backward
from rematbench.graphs.files import read_graph
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.feng_huang import (
    FengHuang,
    RandomCheckpoints,
    SegmentType,
    division_tree,
    solve as solve_network,
    solve_linear,
)
from rematbench.strategies.feng_huang.network import forward_network

DATA = Path(__file__).parents[1] / "data" / "golden" / "fenghuang"
Edge = tuple[int, int]


def brute_force(costs: Sequence[int], edges: Sequence[Edge]) -> int:
    """The least bytes of checkpoints + largest part, over every valid set of checkpoints."""
    net, end = nx.Graph(edges), len(costs) - 1
    best = None
    for count in range(end):
        for chosen in itertools.combinations(range(1, end), count):
            kept = {0, end, *chosen}
            parts = list(nx.connected_components(net.subgraph(set(net) - kept)))
            borders = [{v for u in part for v in net[u]} - part for part in parts]
            if all(
                len(b) == 2 and min(b) < min(p) <= max(p) < max(b)
                for p, b in zip(parts, borders, strict=True)
            ):
                largest = max((sum(costs[v] for v in part) for part in parts), default=0)
                total = sum(costs[v] for v in chosen) + largest
                best = total if best is None else min(best, total)
    assert best is not None
    return best


@st.composite
def networks(draw: st.DrawFn) -> tuple[list[int], list[Edge]]:
    count = draw(st.integers(2, 8))
    costs = draw(st.lists(st.integers(0, 20), min_size=count, max_size=count))
    edges = {(v, v + 1) for v in range(count - 1)}
    pairs = list(itertools.combinations(range(count), 2))
    edges |= set(draw(st.lists(st.sampled_from(pairs), max_size=5)))
    # Drop some steps of the spine where every vertex stays on a path from end to end.
    for edge in draw(st.lists(st.sampled_from(sorted(edges)), max_size=4)):
        rest = edges - {edge}
        if {v for _, v in rest} == set(range(1, count)) and {u for u, _ in rest} == set(
            range(count - 1)
        ):
            edges = rest
    return costs, sorted(edges)


@settings(max_examples=300, deadline=None)
@given(networks())
def test_optimal_on_random_networks(case: tuple[list[int], list[Edge]]) -> None:
    costs, edges = case
    assert solve_network(costs, edges).objective == brute_force(costs, edges)


def test_the_literal_algorithm_4_would_give_98() -> None:
    edges = [(0, 1), (0, 4), (0, 5), (1, 2), (1, 3), (2, 4), (3, 5), (4, 5)]
    assert solve_network([15, 28, 13, 30, 27, 7], edges).objective == 85


def test_parallel_branches_are_segments_of_their_own() -> None:
    found = solve_network([1, 5, 7, 1], [(0, 1), (0, 2), (1, 3), (2, 3)])
    assert found.objective == 7


@pytest.mark.parametrize("inner", range(60))
def test_unit_chains(inner: int) -> None:
    expected = min(k + -(-(inner - k) // (k + 1)) for k in range(inner + 1))
    assert solve_linear([1] * (inner + 2)).objective == expected


# Figure 4: a linear, a branch and a complicate segment.
FIGURE_4 = {
    SegmentType.LINEAR: [(0, 1), (0, 2), (1, 3), (2, 3), (3, 4), (3, 5), (4, 6), (5, 6)],
    SegmentType.BRANCH: [(0, 1), (1, 4), (0, 2), (2, 4), (0, 3), (3, 4)],
    SegmentType.COMPLICATE: [(0, 1), (0, 2), (1, 2), (1, 3), (2, 3)],
}


@pytest.mark.parametrize("kind", FIGURE_4)
def test_kinds_of_figure_4(kind: SegmentType) -> None:
    edges = FIGURE_4[kind]
    count = 1 + max(v for _, v in edges)
    root = division_tree([10] * count, edges)
    assert root.kind is kind
    assert (
        len(root.members)
        == {SegmentType.LINEAR: 2, SegmentType.BRANCH: 3, SegmentType.COMPLICATE: 5}[kind]
    )
    if kind is SegmentType.LINEAR:
        assert [(m.source, m.target) for m in root.members] == [(0, 3), (3, 6)]


def test_figure_6_breaks_only_the_large_member() -> None:
    """Members of 10, 5, 10, 10, 30 and 10: the 30 is split, and the ends of it are kept."""
    costs, edges, tail = [1], [], 0
    for inner in (10, 5, 10, 10, 30, 10):
        arms = [inner // 2, inner - inner // 2]
        first = len(costs)
        costs += [*arms, 1]
        edges += [(tail, first), (tail, first + 1), (first, first + 2), (first + 1, first + 2)]
        tail = first + 2
    found = solve_network(costs, edges)
    assert found.objective == brute_force_linear_of_diamonds()
    assert found.largest <= 25


def brute_force_linear_of_diamonds() -> int:
    """Every choice of the five vertices between the members of Figure 6; arms of 15 in the 30."""
    members, best = [10, 5, 10, 10, 30, 10], 10**9
    for kept in itertools.product([False, True], repeat=5):
        parts, part = [], [0]
        for i, member in enumerate(members):
            part.append(i)
            parts.append(member)
        sums, alone, total = [], [], 0
        for i, member in enumerate(members):
            total += member
            alone.append(i)
            if i == 5 or kept[i]:
                # A member that stands alone falls into its two arms.
                sums.append(total if len(alone) > 1 else members[alone[0]] - members[alone[0]] // 2)
                total, alone = 0, []
            else:
                total += 1
        best = min(best, sum(kept) + max(sums))
    return best


@pytest.mark.parametrize(
    ("costs", "edges", "said"),
    [
        ([1, 1, 1], [(0, 2), (2, 1)], "not in topological order"),
        ([1, 1, 1], [(0, 2)], "vertex 1 is on no path"),
    ],
)
def test_bad_networks(costs: list[int], edges: list[Edge], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        division_tree(costs, edges)


@settings(max_examples=60, deadline=None)
@given(length=st.integers(1, 25), seed=st.integers(0, 10_000))
def test_plans_are_valid(length: int, seed: int) -> None:
    graph = random_graph(length, seed)
    base = simulate(graph, program_order(graph))
    solution = FengHuang().plan(Problem(graph))
    trace = simulate(graph, solution.plan)
    assert base.cost <= trace.cost
    assert trace.recomputations <= length
    assert solution.objective is not None
    assert solution.objective <= solution.details["no_checkpoint_bytes"]


def test_lcg_takes_chains_only() -> None:
    assert FengHuang("lcg").plan(Problem(unit_chain(9))).objective == 4
    edges = {"a": ["x"], "b": ["a"], "c": ["a", "b"]}
    ops = tuple(simple_op(n, Phase.FORWARD, reads, [n], 1) for n, reads in edges.items())
    values = (Value("x", 1, True), *(Value(n, 1) for n in edges))
    skip = with_backward(Graph("skip", values, ops, ("c",)))
    with pytest.raises(NotApplicable, match="no chain"):
        FengHuang("lcg").plan(Problem(skip))
    with pytest.raises(ConfigError, match="choose acg or lcg"):
        FengHuang("abc")


def test_random_checkpoints_repeat_with_the_seed() -> None:
    graph = unit_chain(30)
    plans = [RandomCheckpoints().plan(Problem(graph, seed=s)).plan for s in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    with pytest.raises(Infeasible):
        RandomCheckpoints().plan(Problem(graph, budget=4))
    with pytest.raises(NotApplicable, match="no vertex between"):
        RandomCheckpoints().plan(Problem(unit_chain(1)))


def test_totals_of_the_papers_networks() -> None:
    with (DATA / "totals.csv").open() as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        graph = with_backward(read_graph(DATA / f"{row['network']}.graph.json"))
        network = forward_network(graph)
        assert len(network.costs) == int(row["vertices"])
        solution = FengHuang().plan(Problem(graph))
        assert solution.objective == int(row["objective_bytes"])
        assert solution.details["no_checkpoint_bytes"] == int(row["no_checkpoint_bytes"])


def test_optima_of_300_random_dags() -> None:
    for case in json.loads((DATA / "random_dags.json").read_text()):
        edges = [(u, v) for u, v in case["edges"]]
        assert solve_network(case["cost"], edges).objective == case["opt"]
