"""Chen's sqrt(n) heuristic and its generalisations."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import diamond
from hypothesis import example, given, settings, strategies as st

from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.engines.plans.stages import (
    dependencies,
    needed,
    optimal_recomputation,
    plan_from_stages,
    plan_with_checkpoints,
)
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.graphs.structure import articulation_points, chain, forward_ops, is_linear
from rematbench.strategies.base import Problem
from rematbench.strategies.chen import ApSqrt, ChenSqrt, LinearizedSqrt, every_sqrt

# Length, cost and peak of the published program; its peaks keep gradients and checkpoints that
# nobody reads any more, ours free them.
PUBLISHED = [
    (4, 11, 5),
    (9, 25, 7),
    (16, 45, 10),
    (25, 71, 13),
    (36, 103, 16),
    (49, 141, 19),
    (64, 185, 22),
]


@pytest.mark.parametrize(("length", "cost", "peak"), PUBLISHED)
@pytest.mark.parametrize("strategy", [ChenSqrt(), ApSqrt(), LinearizedSqrt()])
def test_unit_chains(strategy, length: int, cost: int, peak: int) -> None:
    graph = unit_chain(length)
    trace = simulate(graph, strategy.plan(Problem(graph)).plan)
    assert trace.cost == cost
    assert trace.peak_bytes <= peak
    assert trace.checkpoints == length // int(length**0.5)


def test_every_sqrt() -> None:
    assert every_sqrt(np.arange(16)).tolist() == [3, 7, 11, 15]
    assert every_sqrt(np.arange(5)).tolist() == [1, 3]
    assert every_sqrt(np.arange(0)).tolist() == []


def test_structure_of_a_diamond() -> None:
    graph = diamond()
    assert not is_linear(graph)
    assert [graph.ops[i].name for i in articulation_points(graph)] == ["a", "d", "e"]
    assert len(forward_ops(graph)) == 5
    with pytest.raises(NotApplicable, match="op 'a' is read by several ops"):
        chain(graph)
    with pytest.raises(NotApplicable, match="linear forward graph"):
        ChenSqrt().plan(Problem(graph))


def test_forward_only_graphs_have_nothing_to_plan() -> None:
    ops = (simple_op("a", Phase.FORWARD, [], ["a"], 1),)
    with pytest.raises(NotApplicable, match="no loss"):
        ChenSqrt().plan(Problem(Graph("one", (Value("a", 1),), ops, ("a",))))


def test_infeasible_says_the_smallest_peak() -> None:
    graph = unit_chain(16)
    with pytest.raises(Infeasible) as caught:
        ChenSqrt().plan(Problem(graph, budget=5))
    assert caught.value.smallest_peak_found == 8
    assert not caught.value.proven


@settings(max_examples=80, deadline=None)
@given(length=st.integers(1, 25), seed=st.integers(0, 10_000), data=st.data())
def test_any_checkpoints_give_a_valid_plan(length: int, seed: int, data: st.DataObject) -> None:
    graph = random_graph(length, seed)
    chosen = set(data.draw(st.lists(st.sampled_from(forward_ops(graph).tolist()), unique=True)))
    base = simulate(graph, program_order(graph))
    trace = simulate(graph, plan_with_checkpoints(graph, chosen))
    assert trace.cost >= base.cost
    assert trace.recomputations <= length
    everything = simulate(graph, plan_with_checkpoints(graph, forward_ops(graph).tolist()))
    assert (everything.cost, everything.peak_bytes) == (base.cost, base.peak_bytes)


@settings(max_examples=80, deadline=None)
@given(length=st.integers(1, 8), seed=st.integers(0, 10_000), bits=st.integers(0))
@example(length=6, seed=6, bits=17935)  # one more value in S takes three more computes
def test_optimal_recomputation_is_valid_and_least(length: int, seed: int, bits: int) -> None:
    graph = random_graph(length, seed)
    n = len(needed(graph))
    random = np.random.default_rng(bits)
    kept = np.tril(random.random((n, n)) < random.random(), -1)
    # Only what was computed or kept before can be kept: R makes up for the rest.
    computed = optimal_recomputation(graph, kept)
    assert computed.diagonal().all()
    assert not np.triu(computed, 1).any()
    simulate(graph, plan_from_stages(graph, computed))
    # Each is needed: it is not there, and an op of the stage reads it, or the next stage has it.
    depends = dependencies(graph)
    for t, i in zip(*np.nonzero(np.tril(computed, -1)), strict=True):
        read = (computed[t] & depends[i]).any()
        assert not kept[t, i]
        assert read or (t + 1 < n and kept[t + 1, i])
    everything = optimal_recomputation(graph, np.tril(np.ones((n, n), dtype=bool), -1))
    assert (everything == np.eye(n, dtype=bool)).all()
