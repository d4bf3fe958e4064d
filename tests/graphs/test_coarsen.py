"""Coarse graphs: nothing is lost, and expanding never raises the peak."""

from __future__ import annotations

from rematbench.graphs.coarsen import coarsen
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate


def graph_with_bookkeeping() -> Graph:
    values = [
        Value("x", 100, resident=True),
        Value("count", 8, resident=True),
        Value("counted", 8),
        *(Value(name, 500) for name in ("a", "b", "c")),
        Value("loss", 4),
        Value("grad", 50),
    ]
    ops = [
        simple_op("count_up", Phase.FORWARD, ["count"], ["counted"], 0.0),
        simple_op("conv", Phase.FORWARD, ["x"], ["a"], 10.0, 30),
        simple_op("scale", Phase.FORWARD, ["a"], ["b"], 0.1),
        simple_op("conv2", Phase.FORWARD, ["b"], ["c"], 10.0),
        simple_op("loss", Phase.LOSS, ["c"], ["loss"], 1.0),
        simple_op("back", Phase.BACKWARD, ["c", "b", "loss"], ["grad"], 20.0),
    ]
    return Graph("g", tuple(values), tuple(ops), ("loss", "grad", "counted"))


def test_bookkeeping_goes_with_the_next_op() -> None:
    coarse = coarsen(graph_with_bookkeeping())
    assert [op.name for op in coarse.graph.ops] == ["conv", "scale", "conv2", "loss", "back"]
    assert coarse.graph.ops[0].writes == ("counted", "a")


def test_cheap_ops_with_one_reader_are_contracted() -> None:
    coarse = coarsen(graph_with_bookkeeping(), contract_below=0.5)
    assert "a" not in coarse.graph.value_index
    assert coarse.members[0] == (0, 1, 2)


def test_expanding_keeps_cost_and_never_raises_the_peak() -> None:
    fine = graph_with_bookkeeping()
    for fraction in (0.0, 0.5):
        coarse = coarsen(fine, fraction)
        plan = program_order(coarse.graph)
        small, large = simulate(coarse.graph, plan), simulate(fine, coarse.expand(plan))
        assert large.cost == small.cost
        assert large.peak_bytes <= small.peak_bytes


def test_a_graph_with_nothing_to_group_is_kept() -> None:
    values = (Value("x", 1, True), Value("y", 100), Value("loss", 4))
    ops = (
        simple_op("f", Phase.FORWARD, ["x"], ["y"], 1.0),
        simple_op("loss", Phase.LOSS, ["y"], ["loss"], 1.0),
    )
    graph = Graph("g", values, ops, ("loss",))
    assert coarsen(graph).graph.ops == graph.ops
