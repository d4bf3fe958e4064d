"""The floor of plans that compute each backward op once, against all schedules of such plans."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import weights
from hypothesis import given, settings, strategies as st

from rematbench.engines.stages.space import Space
from rematbench.graphs.builders.layered import random_layered
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.floors import once_floor
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op


def test_gradients_that_are_there_count() -> None:
    """Four layers: while the first weight's gradient is made, three others lie there."""
    graph = weights(4)
    assert graph.floor() == (1 + 4 * 10 + 2, "the outputs")
    floor, what = once_floor(graph)
    assert floor == 1 + 4 * 10 + 2 + 2  # the gradient that g0 reads, and g0
    assert what.startswith("op 'g0', with the gradients")


def test_what_some_way_avoids_is_no_floor() -> None:
    """A concatenation that its only reader can do without, part by part."""
    values = (Value("x", 1, True), Value("a", 2), Value("joint", 9), Value("y", 1))
    implementations = (
        Implementation("default", ("joint",), 1),
        Implementation("parts", ("a", "x"), 1),
    )
    ops = (
        simple_op("a", Phase.FORWARD, ["x"], ["a"], 1),
        simple_op("joint", Phase.FORWARD, ["a", "x"], ["joint"], 1),
        Op("y", Phase.FORWARD, ("y",), implementations),
    )
    graph = Graph("joined", values, ops, ("y",))
    assert graph.needed_ops().tolist() == [True, True, True]
    assert graph.always_needed_ops().tolist() == [False, False, True]
    assert graph.floor() == (1 + 2 + 1, "op 'y'")  # x, a and y


@given(seed=st.integers(0, 10**6), length=st.integers(2, 9))
@settings(max_examples=80, deadline=None)
def test_no_schedule_of_f_is_below_it(seed: int, length: int) -> None:
    graph = random_graph(length, seed)
    random, space = np.random.default_rng(seed), Space.reduced(graph)
    floor = once_floor(graph)[0]
    assert floor >= graph.floor_bytes()
    for share in (0.0, random.random(), 1.0):
        assert space.evaluate(random.random(space.shape) < share).peak >= floor


@pytest.mark.parametrize("graph", [random_layered(30), unit_chain(6)])
def test_it_is_the_graphs_floor_where_nothing_stays(graph: Graph) -> None:
    assert once_floor(graph) == graph.floor()
