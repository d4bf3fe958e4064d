"""xla_remat: what the pass does to small schedules, and plans that fit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from executed import check_executed

from rematbench import capture
from rematbench.base.errors import ConfigError, Infeasible, InvalidPlan, Stopped
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.xla_remat import XlaRemat
from rematbench.zoo import make_model


def schedule(edges: dict[str, tuple[list[str], int, int]], output: str) -> Graph:
    """Ops by name: what they read, their bytes and their cost; ``x`` is resident."""
    ops = tuple(
        simple_op(name, Phase.FORWARD, reads, [name], cost)
        for name, (reads, _, cost) in edges.items()
    )
    values = (Value("x", 1, resident=True), *(Value(n, size) for n, (_, size, _) in edges.items()))
    return Graph("schedule", values, ops, (output,))


def computes(graph: Graph, budget: int, **options: object) -> list[str]:
    plan = XlaRemat(**options).plan(Problem(graph, budget)).plan  # type: ignore[arg-type]
    assert plan is not None
    trace = simulate(graph, plan)
    assert trace.peak_bytes <= budget
    return [graph.ops[i].name for i in graph.tables.op_of[trace.codes[trace.codes >= 0]]]


def test_a_value_that_lives_across_a_peak_is_computed_again() -> None:
    """The pass's own example: a broadcast, used before and after the largest value."""
    graph = schedule(
        {
            "bcast": (["x"], 1024, 1),
            "negate": (["bcast"], 1024, 1),
            "concat_1": (["negate"], 2048, 1),
            "slice_1": (["concat_1"], 1, 1),
            "concat_2": (["bcast", "slice_1"], 1025, 1),
            "slice_2": (["concat_2"], 1, 1),
        },
        "slice_2",
    )
    assert simulate(graph, program_order(graph)).peak_bytes == 1 + 1024 + 1024 + 2048
    again = ["bcast", "negate", "concat_1", "slice_1", "bcast", "concat_2", "slice_2"]
    assert computes(graph, 3100) == again
    # Below what one op needs, nothing helps.
    with pytest.raises(Infeasible) as caught:
        XlaRemat().plan(Problem(graph, 3000))
    assert caught.value.smallest_peak_found == 1 + 1024 + 2048
    # With room for it there is nothing to do.
    assert computes(graph, 4097) == list(graph.op_index)


def test_a_block_where_single_computations_do_not_help() -> None:
    """Computing b again would only keep a of the same size alive; both together free it."""
    graph = schedule(
        {
            "a": (["x"], 10, 1),
            "b": (["a"], 10, 1),
            "c": (["b"], 1, 1),
            "large": (["c"], 25, 1),
            "small": (["large"], 1, 1),
            "end": (["b", "small"], 1, 1),
        },
        "end",
    )
    assert simulate(graph, program_order(graph)).peak_bytes == 37
    with pytest.raises(Infeasible):
        XlaRemat(block_size=1).plan(Problem(graph, 30))
    found = computes(graph, 30, block_size=2)
    assert found == ["a", "b", "c", "large", "small", "a", "b", "end"]


def test_ranks() -> None:
    """By bytes the larger value goes, whatever it costs; by cost the cheaper per byte."""
    graph = schedule(
        {
            "dear": (["x"], 12, 100),
            "cheap": (["x"], 10, 1),
            "use": (["dear", "cheap"], 1, 1),
            "large": (["use"], 30, 1),
            "small": (["large"], 1, 1),
            "end": (["dear", "cheap", "small"], 1, 1),
        },
        "end",
    )
    assert computes(graph, 46, rank="bytes").count("dear") == 2
    assert computes(graph, 46, rank="cost").count("cheap") == 2
    assert computes(graph, 46).count("cheap") == 2


def test_a_value_made_too_early_moves() -> None:
    graph = schedule(
        {
            "early": (["x"], 10, 1),
            "large": (["x"], 30, 1),
            "small": (["large"], 1, 1),
            "end": (["early", "small"], 1, 1),
        },
        "end",
    )
    assert computes(graph, 33) == ["large", "small", "early", "end"]


@pytest.mark.parametrize("graph", [unit_chain(12), *(random_graph(20, s) for s in range(5))])
def test_plans_fit(graph: Graph) -> None:
    whole = simulate(graph, program_order(graph))
    assert computes(graph, whole.peak_bytes) == [
        graph.ops[i].name for i in np.flatnonzero(graph.needed_ops())
    ]
    for rank in ("bytes", "cost", "both"):
        for share in (0.5, 0.7, 0.9):
            try:
                found = computes(graph, int(share * whole.peak_bytes), rank=rank)
            except Infeasible as error:
                smallest = error.smallest_peak_found
                found = []
            if not found:
                assert smallest is not None
                assert smallest > int(share * whole.peak_bytes)


@pytest.mark.parametrize("rank", ["bytes", "cost"])
def test_random_ops_are_not_moved(rank: str) -> None:
    sizes = {"batch_size": 64, "hidden": 16, "sequence_length": 8, "vocabulary": 16}
    captured = capture(make_model("lstm_lm", **sizes))
    graph = captured.graph
    budget = int(0.7 * simulate(graph, program_order(graph)).peak_bytes)
    plan = XlaRemat(rank=rank).plan(Problem(graph, budget, captured=captured)).plan  # type: ignore[arg-type]
    assert plan is not None
    assert simulate(graph, plan).peak_bytes <= budget
    check_draws(graph, plan)
    unaware = replace(graph, ops=tuple(replace(op, random=False) for op in graph.ops))
    moved = XlaRemat(rank=rank).plan(Problem(unaware, budget)).plan  # type: ignore[arg-type]
    assert moved is not None
    with pytest.raises(InvalidPlan, match=r"random op .* out of program order"):
        check_draws(graph, moved)


def test_bad_options_and_no_budget() -> None:
    for options in ({"rank": "size"}, {"block_size": 0}):
        with pytest.raises(ConfigError, match=f"strategy.{next(iter(options))}\\b"):
            XlaRemat(**options)  # type: ignore[arg-type]
    plan = XlaRemat().plan(Problem(unit_chain(5))).plan
    assert plan is not None
    assert simulate(unit_chain(5), plan).recomputations == 0


def test_runs_with_the_bits_of_eager_training() -> None:
    check_executed(XlaRemat())


def test_a_pass_that_the_time_limit_cuts_short_says_so() -> None:
    graph = unit_chain(12)
    with pytest.raises(Stopped, match=r"it was stopped after 0 s: give more") as caught:
        XlaRemat().plan(Problem(graph, 10, 0.0))
    assert caught.value.smallest_peak_found == simulate(graph, program_order(graph)).peak_bytes
    assert computes(graph, 10)
