"""Checkmate's section 6.2: an S for the baselines' checkpoints, and the R of least cost for it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.baselines62 import SCHEDULES, as_planned, kept_by, only_checkpoints, segments
from rematbench.graphs.builders.keras import keras_graph
from rematbench.graphs.builders.synthetic import unit_chain, with_backward
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.graphs.structure import forward_ops

RECORD = Path(__file__).parents[2] / "runs/benchmarks/baselines62.json"


def test_every_schedule_is_a_plan_and_ours_has_the_r_of_least_cost() -> None:
    graph = unit_chain(9)
    chosen = tuple(forward_ops(graph)[2::3].tolist())
    costs = {name: simulate(graph, make(graph, chosen)).cost for name, make in SCHEDULES.items()}
    assert costs["S of ours, R of least cost"] == costs["ours, before"] == costs["S of segments"]
    # Without its segment a stage goes back to the checkpoint, again and again.
    assert costs["S of checkpoints"] > costs["ours, before"]


def test_what_is_kept() -> None:
    graph = unit_chain(9)
    everything = kept_by(graph, program_order(graph))
    assert not np.triu(everything).any()
    chosen = tuple(forward_ops(graph)[2::3].tolist())
    lean, whole = only_checkpoints(graph, chosen), segments(graph, chosen)
    assert (whole | ~lean).all()  # a segment is kept besides
    assert whole.sum() > lean.sum()
    assert not np.triu(as_planned(graph, chosen)).any()


def test_r_of_least_cost_never_costs_more_than_ours_on_a_network_that_branches() -> None:
    graph = with_backward(keras_graph("resnet50", 1, 64, 64))
    ops = forward_ops(graph)
    for step in (3, 10, 40):
        chosen = tuple(ops[step::step].tolist())
        ours, least = (
            simulate(graph, SCHEDULES[name](graph, chosen)).cost
            for name in ("ours, before", "S of ours, R of least cost")
        )
        assert least <= ours


def test_the_record_says_that_the_step_changes_nothing() -> None:
    """What docs/papers/checkmate.md and the claims say of it."""
    lines = json.loads(RECORD.read_text())["trial"]
    by = {(x["network"], x["strategy"], x["schedule"]): x["ratios"] for x in lines}
    assert len(by) == 160
    for (network, strategy, schedule), ratios in by.items():
        if schedule == "S of ours, R of least cost":
            before = by[network, strategy, "ours, before"]
            assert [r is None for r in ratios] == [r is None for r in before]
            met = [r for r in ratios if r]
            assert met == pytest.approx([r for r in before if r], rel=1e-3)
