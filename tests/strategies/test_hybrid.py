"""hybrid: against every plan of small chains, its starts, its bound and its limits."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from copying import chain, is_there_a_better_plan, offloaded, scoped

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.engines.bridges.bound import makespan_bound
from rematbench.engines.bridges.gaps import Sequence
from rematbench.engines.bridges.rooms import again_after
from rematbench.engines.bridges.search import chosen
from rematbench.engines.bridges.weave import woven
from rematbench.engines.bridges.windows import carried, window_bound
from rematbench.engines.intervals.net import Net
from rematbench.engines.intervals.planner import IntervalSearch
from rematbench.graphs.builders.synthetic import random_graph, unit_chain, with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.link import Link
from rematbench.graphs.plan import Offload, Plan, program_order
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate
from rematbench.strategies.hybrid.planner import LARGE, _firsts
from rematbench.strategies.registry import make

LINKS = (Link(0.3, 0.3), Link(1.0, 0.5), Link(4.0, 4.0, 0.25), Link(1.0, 1.0, shared=True))


@pytest.fixture(scope="module", autouse=True)
def _warm() -> None:
    make("hybrid").warm_up()


def found_within(graph: Graph, budget: int, link: Link) -> tuple[Plan, float]:
    """A second's plan, which keeps to the budget, and its makespan, which no bound is above."""
    found = make("hybrid").plan(Problem(graph, budget, 1.0, link=link))
    assert str(found.solver).startswith("highs 1.")
    assert found.plan is not None
    assert found.bound is not None
    trace = simulate(graph, found.plan, link)
    assert trace.peak_bytes <= budget
    assert found.bound <= trace.cost + 1e-9
    return found.plan, trace.cost


CHAINS = (
    ([1, 1, 1], [1.0, 1.0, 1.0]),
    ([2, 4], [1.0, 3.0]),
    ([2, 4], [3.0, 1.0]),
)


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize(("sizes", "costs"), CHAINS)
def test_no_plan_of_a_small_chain_is_faster(sizes, costs, link: Link) -> None:
    graph = chain(sizes, costs)
    peak = simulate(graph, program_order(graph)).peak_bytes
    floor = graph.floor_bytes()
    assert floor < peak
    for budget in range(floor + 1, peak):
        found = make("hybrid").plan(Problem(graph, budget, 0.5, link=link))
        assert found.plan is not None
        trace = simulate(graph, found.plan, link)
        assert trace.peak_bytes <= budget
        assert not is_there_a_better_plan(graph, budget, link, trace.cost), (budget, trace.cost)


def eight_ops() -> Graph:
    """A chain of three layers, and one more op of the backward pass that reads an early value."""
    base = chain([1, 2, 2], [1.0, 2.0, 1.0])
    last = simple_op("more", Phase.BACKWARD, ["layer1", base.outputs[0]], ["more"], 1.0)
    values, ops = (*base.values, Value("more", 1)), (*base.ops, last)
    return Graph("eight", values, ops, ("more",))


@pytest.mark.parametrize(
    ("graph", "budget", "link"),
    [
        (chain([1, 2, 2], [1.0, 2.0, 1.0]), 7, LINKS[2]),  # one is computed again, one copied
        (with_backward(random_graph(3, 7)), 117, LINKS[2]),
        (with_backward(random_graph(3, 2)), 310, LINKS[1]),
        (eight_ops(), 7, LINKS[2]),
    ],
    ids=["chain", "random7", "random2", "eight"],
)
def test_small_graphs_are_planned_exactly(graph: Graph, budget: int, link: Link) -> None:
    assert 7 <= len(graph.ops) <= 8
    peak = simulate(graph, program_order(graph)).peak_bytes
    assert graph.floor_bytes() <= budget < peak
    found = make("hybrid").plan(Problem(graph, budget, 1.0, link=link))
    assert found.plan is not None
    cost = simulate(graph, found.plan, link).cost
    assert not is_there_a_better_plan(graph, budget, link, cost)


def test_never_worse_than_recomputation_or_its_bound() -> None:
    for seed in range(3):
        graph = with_backward(random_graph(12, seed))
        base = simulate(graph, program_order(graph))
        budget = int(0.7 * base.peak_bytes)
        try:
            alone = make("anytime").plan(Problem(graph, budget, 1.0))
        except Infeasible:
            continue
        assert alone.plan is not None
        for link in LINKS[:2]:
            _, cost = found_within(graph, budget, link)
            assert cost <= simulate(graph, alone.plan).cost + 1e-9


@pytest.mark.parametrize(
    ("name", "graph", "budget", "link"),
    [
        ("pofo", unit_chain(24), 10, Link(0.3, 0.3)),
        ("pofo", chain([3, 4, 3, 1, 2, 4], [1.0, 3.0, 3.0, 2.0, 1.0, 2.0]), 14, Link(1.0, 1.0)),
        ("auto_perf", scoped(6), 21000, Link(1000.0, 1000.0)),
        ("poet", unit_chain(6), 4, Link(0.5, 0.5)),
    ],
)
def test_never_worse_than_other_planners_with_a_host(name, graph, budget, link: Link) -> None:
    problem = Problem(graph, budget, 2.0, link=link)
    theirs = make(name).plan(problem).plan
    ours = make("hybrid").plan(problem).plan
    assert theirs is not None
    assert ours is not None
    least = simulate(graph, theirs, link).cost
    assert simulate(graph, ours, link).cost <= least + 1e-9


def test_it_begins_from_their_plans() -> None:
    """Before any move of its own."""
    graph, link = unit_chain(24), Link(0.3, 0.3)
    problem = Problem(graph, 10, 5.0, link=link)
    plans = {plan.hash(graph) for plan in _firsts(problem, program_order(graph))}
    theirs = make("pofo").plan(problem).plan
    assert theirs is not None
    assert theirs.hash(graph) in plans


def test_bounds_are_below_all_woven_plans_and_fall_with_the_link() -> None:
    random, higher = Random(1), 0
    for seed in range(0, 24, 2):
        graph = with_backward(random_graph(4 + seed % 20, seed))
        order = program_order(graph)
        codes = order.codes(graph)
        sequence = Sequence.of(graph, codes[codes >= 0])
        peak = simulate(graph, order).peak_bytes
        assert sequence.levels.max() == peak
        budget = int(random.choice([0.5, 0.7, 0.9]) * peak)
        bridged = chosen(sequence, np.ones(len(sequence.value)), budget)
        bounds = []
        for rate in (0.0, 0.1, 1.0, 100.0):
            link = Link(rate, rate)
            simple = makespan_bound(graph, budget, link)
            bounds.append(window_bound(Problem(graph, budget, 1.0, link=link), simple, math.inf))
            assert bounds[-1] >= simple
            higher += bounds[-1] > simple * (1 + 1e-3)
            if rate:
                plan = woven(sequence, bridged, budget, link)
                assert plan is not None
                trace = simulate(graph, plan, link)
                if trace.peak_bytes <= budget:
                    assert bounds[-1] <= trace.cost + 1e-9
                else:
                    assert sequence.levels_with(bridged).max() > budget
        falling = sorted(bounds, reverse=True)
        assert bounds == pytest.approx(falling, rel=1e-4)  # each is sought so far
    assert higher > 5


def test_schedules_keep_to_the_room_of_each_moment() -> None:
    """More around the loss than at both ends: what the link carries, and no more."""
    graph, budget, started = unit_chain(24), 9, planning_seconds()
    problem = Problem(graph, budget, 0.5, link=Link(0.2, 0.2))
    least = makespan_bound(graph, budget, problem.link)
    room = carried(problem, Net.of(graph), least).astype(np.int64)
    most = int(room.max())
    assert max(room[0], room[-1]) < most
    asked = replace(problem, budget=budget + most)
    search = IntervalSearch(asked, budget + most, started, 0.0, taken=most - room)
    search.run()
    assert search.progress.plan is not None
    codes = search.progress.plan.codes(graph)
    sequence = Sequence.of(graph, codes[codes >= 0])
    first = np.unique(sequence.computes, return_index=True)[1]
    stage = np.searchsorted(first, np.arange(len(sequence.computes)))
    assert (sequence.levels <= budget + room[stage]).all()
    assert (sequence.levels > budget).any()
    alone = make("anytime").plan(replace(problem, link=Link())).plan
    assert search.progress.cost < simulate(graph, alone).cost


def test_windows_prove_no_more_than_the_best_plan_takes() -> None:
    more = (([3, 1, 2], [2.0, 1.0, 3.0]), ([4, 1], [4.0, 1.0]))
    for (sizes, costs), link in itertools.product((*CHAINS, *more), LINKS):
        graph = chain(sizes, costs)
        peak = simulate(graph, program_order(graph)).peak_bytes
        for budget in range(graph.floor_bytes() + 1, peak):
            problem = Problem(graph, budget, 0.5, link=link)
            simple = makespan_bound(graph, budget, link)
            proven = window_bound(problem, simple, math.inf)
            assert not is_there_a_better_plan(graph, budget, link, proven * (1 - 1e-9))


def test_waiting_for_copies_and_recomputation_after_them_add_up() -> None:
    """What the link has until a moment does not grow by what is computed again after it."""
    graph, link = unit_chain(24), Link(0.2, 0.2)
    problem = Problem(graph, 9, 1.0, link=link)
    least = makespan_bound(graph, 9, link)
    alone = carried(problem, Net.of(graph), least)
    later = carried(problem, Net.of(graph), least, 2.0)
    assert (later <= alone).all()
    assert (later < alone).any()
    plan = make("anytime").plan(replace(problem, link=Link())).plan
    assert plan is not None
    after = again_after(graph, plan)
    again = simulate(graph, plan).cost - simulate(graph, program_order(graph)).cost
    assert after[0] == pytest.approx(again)
    assert (np.diff(after) <= 0).all()


def test_large_graphs_begin_with_room_and_keep_to_the_limits() -> None:
    graph, link = unit_chain(260), Link(0.2, 0.2)
    budget = 60
    assert len(graph.ops) > LARGE
    plan, _ = found_within(graph, budget, link)
    assert any(isinstance(s, Offload) for s in plan.statements)


def test_a_fast_link_closes_the_gap_and_no_link_is_recomputation() -> None:
    graph = unit_chain(12)
    fast = make("hybrid").plan(Problem(graph, 8, 1.0, link=Link(1e6, 1e6)))
    assert fast.plan is not None
    assert simulate(graph, fast.plan, Link(1e6, 1e6)).cost == pytest.approx(25, abs=1e-3)
    assert fast.bound == pytest.approx(25, abs=1e-3)
    none = make("hybrid").plan(Problem(graph, 8, 1.0))
    assert none.plan is not None
    assert not any(isinstance(s, Offload) for s in none.plan.statements)


def test_the_host_may_be_too_small() -> None:
    graph, link = unit_chain(12), Link(1.0, 1.0)
    for host in (0, 1, 3, 100):
        found = make("hybrid").plan(Problem(graph, 8, 1.0, link=link, host=host))
        assert found.plan is not None
        assert simulate(graph, found.plan, link).host_peak_bytes <= host


def test_below_the_floor_is_proven() -> None:
    graph = unit_chain(6)
    with pytest.raises(Infeasible, match="alone must have 3 bytes") as caught:
        make("hybrid").plan(Problem(graph, 2, 1.0, link=LINKS[0]))
    assert caught.value.proven


def test_the_rules_offload_what_they_say() -> None:
    graph, link = scoped(), Link(4000.0, 4000.0)
    problem = Problem(graph, None, 5.0, link=link)
    hidden = offloaded(make("offload_hidden").plan(problem).plan)
    assert set(hidden) <= {"b0_gelu", "b1_gelu"}
    assert hidden
    dots = offloaded(make("offload_dots").plan(problem).plan)
    assert dots
    assert all(name.endswith("_mm") for name in dots)
    all_ = make("offload_all", newest=0).plan(problem)
    assert len(offloaded(all_.plan)) > len(dots)
    newest = offloaded(make("offload_all", newest=2).plan(problem).plan)
    assert newest == offloaded(all_.plan)[:-2]
    assert offloaded(make("offload_all", least_bytes=2001).plan(problem).plan) == []
    for name in ("offload_all", "offload_hidden", "offload_dots"):
        with pytest.raises(NotApplicable, match="no link to the host; give link=pcie4"):
            make(name).plan(Problem(graph, None, 5.0))
