"""The reference simulator against a naive one, on random graphs and random plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from naive import Rejected, naive_simulate

from rematbench.base.errors import InvalidPlan
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.plan import Compute, Free, Plan, program_order
from rematbench.graphs.simulate import simulate


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Ops with several outputs, workspaces, residents and in-place implementations."""
    count = draw(st.integers(1, 6))
    sizes = st.integers(0, 5)
    values = [Value("x", draw(sizes), resident=True)]
    ops: list[Op] = []
    for i in range(count):
        names = [v.name for v in values]
        reads = tuple(draw(st.lists(st.sampled_from(names), max_size=3, unique=True)))
        new = [Value(f"v{i}_{k}", draw(sizes)) for k in range(draw(st.integers(1, 2)))]
        phase = Phase.FORWARD if i < count // 2 else Phase.BACKWARD
        implementations = [Implementation("default", reads, draw(st.integers(0, 9)), draw(sizes))]
        taken = next(
            (v for v in values if v.name in reads and not v.resident and v.bytes == new[0].bytes),
            None,
        )
        if taken is not None:
            implementations.append(Implementation("in_place", reads, 1, 0, (taken.name,)))
        values += new
        ops.append(Op(f"op{i}", phase, tuple(v.name for v in new), tuple(implementations)))
    overwritten = {
        name
        for op in ops
        for implementation in op.implementations
        for name in implementation.overwrites
    }
    free = [v.name for v in values[1:] if v.name not in overwritten]
    outputs = draw(st.lists(st.sampled_from(free), unique=True)) if free else []
    return Graph("random", tuple(values), tuple(ops), tuple(outputs))


@st.composite
def cases(draw: st.DrawFn) -> tuple[Graph, Plan]:
    """A graph, and a plan that is often valid for a while."""
    graph = draw(graphs())
    statements: list[Compute | Free] = [Compute(op.name) for op in graph.ops]
    extra = [
        Compute(op.name, implementation.name)
        for op in graph.ops
        for implementation in op.implementations
    ]
    extra += [Free(v.name) for v in graph.values]
    for item in draw(st.lists(st.sampled_from(extra), max_size=6)):
        statements.insert(draw(st.integers(0, len(statements))), item)
    return graph, Plan(tuple(statements), graph.name)


@settings(max_examples=400, deadline=None)
@given(cases())
def test_agrees_with_the_naive_simulator(case: tuple[Graph, Plan]) -> None:
    graph, plan = case
    assert verdict(simulate_briefly, graph, plan) == verdict(naive_simulate, graph, plan)


def simulate_briefly(graph: Graph, plan: Plan) -> tuple[int, float, list[int]]:
    trace = simulate(graph, plan)
    return trace.peak_bytes, trace.cost, trace.bytes_after.tolist()


def verdict(judge, graph: Graph, plan: Plan) -> object:
    try:
        return judge(graph, plan)
    except (InvalidPlan, Rejected) as rejected:
        return rejected.index


@settings(max_examples=200, deadline=None)
@given(graphs(), st.randoms())
def test_frees_are_valid_and_earliest(graph: Graph, random) -> None:
    computes = graph.tables.op_first[:-1].tolist()
    computes = sorted(computes + random.choices(computes, k=3))
    plan = Plan.of_computes(graph, computes)
    bare = Plan.from_codes(graph, computes)
    peak, cost, after = naive_simulate(graph, plan)
    assert simulate(graph, plan).cost == cost
    assert peak <= naive_simulate(graph, bare)[0]
    # Without any one of its frees a plan needs as much or more, and stays valid.
    for i, statement in enumerate(plan.statements):
        if isinstance(statement, Free):
            kept = Plan(plan.statements[:i] + plan.statements[i + 1 :], graph.name)
            assert naive_simulate(graph, kept)[0] >= peak
    assert min(after, default=0) >= 0


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 30), st.integers(0, 1000))
def test_no_plan_undercuts_the_floor(length: int, seed: int) -> None:
    graph = random_graph(length, seed)
    assert simulate(graph, program_order(graph)).peak_bytes >= graph.floor_bytes()


def test_timeline_and_counts() -> None:
    graph = unit_chain(8)
    trace = simulate(graph, program_order(graph))
    assert (trace.peak_bytes, trace.cost, trace.recomputations) == (10, 17, 0)
    assert trace.checkpoints == 8
    assert trace.bytes_during.max() == trace.peak_bytes


def test_duplicates_of_multi_output_ops_count() -> None:
    graph = Graph(
        "two",
        (Value("a", 5), Value("b", 7), Value("c", 1)),
        (
            simple_op("f", Phase.FORWARD, [], ["a", "b"], 1),
            simple_op("g", Phase.FORWARD, ["a", "b"], ["c"], 1),
        ),
        ("c",),
    )
    steps = (Compute("f"), Free("b"), Compute("f"), Compute("g"))
    trace = simulate(graph, Plan(steps, "two"))
    assert trace.peak_bytes == 5 + 12  # a, and f's new outputs beside it
    assert trace.bytes_after.tolist() == [12, 5, 12, 13]


@pytest.mark.parametrize(
    ("statements", "index", "said"),
    [
        ((Compute("layer1"),), 0, "op 'layer1' reads 'layer0', which is not live"),
        ((Free("layer0"),), 0, "not live"),
        ((Compute("layer0"), Compute("nix")), 1, "compute of 'nix'"),
        ((Compute("layer0"), Free("nix")), 1, "free of 'nix'"),
        ((Compute("layer0", "fast"),), 0, "no implementation 'fast'"),
        ((Compute("layer0"),), 1, "output 'grad_layer0' is not live at the end"),
    ],
)
def test_rejections_name_the_statement(statements, index: int, said: str) -> None:
    with pytest.raises(InvalidPlan, match=said) as caught:
        simulate(unit_chain(2), Plan(statements, "unit_chain2"))
    assert caught.value.index == index


def test_a_resident_value_cannot_be_freed() -> None:
    graph = random_graph(2, 0)
    plan = Plan((*program_order(graph).statements, Free("x")), graph.name)
    with pytest.raises(InvalidPlan, match="resident and stays"):
        simulate(graph, plan)


def test_random_codes_are_rejected() -> None:
    graph = unit_chain(3)
    for code in (99, -99):
        with pytest.raises(InvalidPlan, match="no statement"):
            simulate(graph, Plan.from_codes(graph, np.array([code])))


def test_hash_sees_every_change() -> None:
    graph = unit_chain(3)
    assert graph.hash == unit_chain(3).hash
    other = replace(graph, values=(Value("layer0", 2), *graph.values[1:]))
    assert other.hash != graph.hash


def drawing_chain() -> Graph:
    """A chain of four forward layers, of which the first two draw random numbers."""
    graph = unit_chain(4)
    ops = tuple(replace(op, random=i < 2) for i, op in enumerate(graph.ops))
    return replace(graph, ops=ops, random_state_bytes=100)


def test_states_of_the_random_generator_stay_from_the_first_draw_on() -> None:
    graph = drawing_chain()
    bare = replace(graph, random_state_bytes=0)
    assert (
        simulate(graph, program_order(graph)).peak_bytes
        == simulate(bare, program_order(bare)).peak_bytes
    )
    first = graph.tables.op_first
    order = first[[0, 1, 2, 3, 4, 0, 1, 2, 3, 5, 6, 7, 8]]
    plan = Plan.of_computes(graph, order)
    with_states, without = simulate(graph, plan), simulate(bare, plan)
    saved = with_states.bytes_after - without.bytes_after
    computes = np.flatnonzero(with_states.codes >= 0)
    assert saved[computes].tolist() == [100] + [200] * 12
    aside = with_states.bytes_during - without.bytes_during - saved
    assert np.flatnonzero(aside).tolist() == computes[[5, 6]].tolist()  # the present state
