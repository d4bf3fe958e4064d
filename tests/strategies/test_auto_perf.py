"""auto_perf: shares by its linear program, tags, and where copies stand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from copying import offloaded, scoped

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Compute, Fetch, Free, Plan, program_order
from rematbench.graphs.planning import Problem, Solution
from rematbench.graphs.simulate import Trace, simulate
from rematbench.strategies.offload.layers import (
    KEEP,
    OFFLOAD,
    RECOMPUTE,
    LayerCosts,
    _by_program,
    _greedy,
    _split,
)
from rematbench.strategies.offload.planner import blocks_of
from rematbench.strategies.registry import make

FAST, SLOW = Link(1e6, 1e6), Link(1e-3, 1e-3)


def planned(graph: Graph, share: float, link: Link, **options: Any) -> tuple[Solution, Trace]:
    budget = int(share * simulate(graph, program_order(graph)).peak_bytes)
    found = make("auto_perf", **options).plan(Problem(graph, budget, 5.0, link=link))
    assert found.plan is not None
    trace = simulate(graph, found.plan, link)
    assert trace.peak_bytes <= budget
    return found, trace


def computes(plan: Plan | None, name: str) -> int:
    assert plan is not None
    return sum(s == Compute(name) for s in plan.statements)


@pytest.mark.parametrize("solver", ["greedy", "ilp"])
def test_a_fast_link_takes_all_and_a_slow_one_nothing(solver: str) -> None:
    graph = scoped(6)
    once = simulate(graph, program_order(graph)).cost
    fast, trace = planned(graph, 0.7, FAST, solver=solver)
    assert offloaded(fast.plan)
    assert trace.cost <= once + 2  # one product runs again
    assert (fast.solver is None) == (solver == "greedy")
    slow, trace = planned(graph, 0.85, SLOW, solver=solver)
    assert not offloaded(slow.plan)
    assert trace.cost > once + 2
    assert sum(slow.details["shares"]) == pytest.approx(1)
    assert slow.details["shares"][1] > 0


def test_shares_of_layers() -> None:
    """LayerCosts of 2 x 2000 bytes; the link moves half of one while the layer after it runs."""
    graph = scoped(6)
    layers = LayerCosts(graph, blocks_of(graph))
    size, may, time = layers.totals
    assert size.tolist() == [4000.0] * 5 + [2000.0]  # what the loss reads goes nowhere
    assert may.tolist() == [0.5] * 5 + [1.0]  # the output of a layer is another's input
    assert time.tolist() == [2.0] * 6
    link = Link(500.0, 500.0)
    assert layers.windows[0].tolist() == [4.0] * 5 + [0.0]
    ample = int(layers.peaks.max() + size.sum())
    shares = _split(Problem(graph, ample, 5.0, link=link), layers, ample)
    assert shares is not None
    np.testing.assert_allclose(shares[:, KEEP], 1, atol=1e-9)
    shares = _split(Problem(graph, ample, 5.0, link=link), layers, ample - 4000)
    assert shares is not None
    assert shares[:, OFFLOAD].sum() == pytest.approx(1, abs=1e-6)  # in two layers, all hidden
    assert shares[:, OFFLOAD].max() <= 0.5 + 1e-9
    assert shares[:, RECOMPUTE].sum() == pytest.approx(0, abs=1e-6)
    none = _split(Problem(graph, ample, 5.0, link=link, host=0), layers, ample - 4000)
    assert none is not None
    assert none[:, RECOMPUTE].sum() == pytest.approx(1, abs=1e-6)
    assert _split(Problem(graph, ample, 5.0, link=link), layers, 4000) is None


def test_tags_of_a_layer() -> None:
    """Half is to go: the dear product; of the rest nothing is kept."""
    graph = scoped(3)
    layers = LayerCosts(graph, blocks_of(graph))
    ops = np.array(layers.blocks[0].ops)
    shares = np.array([0.0, 0.5, 0.5])
    for step in (_greedy, _by_program):
        tags = step(layers, ops, shares)
        assert tags.tolist() == [RECOMPUTE, OFFLOAD]  # the gelu's value is read by another layer
        assert step(layers, ops, np.array([1.0, 0.0, 0.0])).tolist() == [KEEP, KEEP]


def test_copies_free_one_layer_later_and_come_back_one_ahead() -> None:
    graph = scoped(6)
    found, _ = planned(graph, 0.6, Link(2000.0, 2000.0))
    assert found.plan is not None
    statements = list(found.plan.statements)
    gone = [name for name in offloaded(found.plan) if name.startswith("b1")]
    assert gone
    for name in gone:
        freed, back = statements.index(Free(name)), statements.index(Fetch(name))
        after = [s.op for s in statements[freed:] if isinstance(s, Compute)]
        assert after[0] == "b3_mm"  # the layer after it has run
        assert statements.index(Compute("grad_b2_gelu")) > back  # before that layer's backward


def test_random_ops_run_once() -> None:
    base = scoped(6)
    ops = tuple(replace(op, random=op.name.endswith("mm")) for op in base.ops)
    found, _ = planned(replace(base, ops=ops), 0.75, Link(2000.0, 2000.0))
    for n in range(6):
        assert computes(found.plan, f"b{n}_mm") == 1


def test_what_it_does_not_plan() -> None:
    with pytest.raises(NotApplicable, match="give link=pcie4"):
        make("auto_perf").plan(Problem(scoped(), 4))
    with pytest.raises(NotApplicable, match="no module is repeated"):
        make("auto_perf").plan(Problem(unit_chain(4), 4, link=FAST))
    with pytest.raises(Infeasible, match="no split of 3 layers is estimated to fit 4000 bytes"):
        make("auto_perf").plan(Problem(scoped(), 4000, link=FAST))
    with pytest.raises(ConfigError, match="greedy or ilp"):
        make("auto_perf", solver="simplex")
