"""Schedules by intervals: edits against the simulator, bounds and searches against brute force."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import islice, product
from math import inf

import numpy as np
import pytest
from enough import AMPLE, until
from hypothesis import given, settings, strategies as st
from test_checkmate_paper import brute_force, random_dag

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible
from rematbench.engines.intervals import improve
from rematbench.engines.intervals.blocks import Blocks
from rematbench.engines.intervals.edits import find, insert, prune, remove, resume
from rematbench.engines.intervals.improve import Improver
from rematbench.engines.intervals.memory import EXCESS, LIMIT, most_between, peak, profile, watch
from rematbench.engines.intervals.moments import best_chain, window
from rematbench.engines.intervals.moves import EDITS, scratch, undo
from rematbench.engines.intervals.net import (
    IntervalState,
    Net,
    follow,
    plan_of,
    start,
)
from rematbench.engines.intervals.planner import IntervalSearch, warm_up
from rematbench.engines.intervals.repetition import repeats
from rematbench.engines.intervals.search import anneal
from rematbench.engines.intervals.segments import segmentations
from rematbench.engines.intervals.soft import Softening, soften
from rematbench.engines.plans.stages import needed, plan_from_stages, recomputations
from rematbench.graphs.builders.layered import random_layered
from rematbench.graphs.builders.synthetic import random_graph, unit_chain, with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.hierarchical import BlockSearch, Hierarchical
from rematbench.strategies.registry import make


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled beforehand."""
    warm_up()


def cheapest(plans: list[tuple[float, int]], budget: int) -> float:
    """The least cost within a budget; infinite where there is no plan."""
    return min((cost for cost, highest in plans if highest <= budget), default=inf)


def same_as_simulated(graph: Graph, net: Net, state: IntervalState) -> None:
    """Peak, cost, profile and excess are those of the plan."""
    trace = simulate(graph, plan_of(graph, state))
    assert peak(state) == trace.peak_bytes
    assert state.cost[0] == pytest.approx(trace.cost)
    during = trace.bytes_during[trace.codes >= 0]
    keys = [
        stage * len(net.cost) + int(state.op[at])
        for stage in range(len(net.cost))
        for at in stage_of(state, stage)
    ]
    levels = [
        max(m for m, key in zip(during, keys, strict=True) if key // len(net.cost) == stage)
        for stage in range(len(net.cost))
    ]
    assert profile(state).tolist() == levels
    if state.counts[LIMIT] >= 0:
        assert state.counts[EXCESS] == sum(max(0, level - state.counts[LIMIT]) for level in levels)
    low, high = sorted((keys[len(keys) // 3], keys[2 * len(keys) // 3]))
    inside = [m for m, key in zip(during, keys, strict=True) if low <= key <= high]
    assert most_between(state, low, high) == max(inside)


def stage_of(state: IntervalState, stage: int) -> list[int]:
    """The computes of a stage, in order."""
    found, at = [], int(state.head[stage])
    while at >= 0:
        found.append(at)
        at = int(state.after[at])
    return found


@given(st.integers(2, 14), st.integers(0, 10**6), st.floats(1, 3), st.booleans())
@settings(max_examples=60, deadline=None)
def test_edits_are_what_the_simulator_sees(
    length: int, seed: int, edges: float, watched: bool
) -> None:
    """After any edits the state is the plan's simulation, and undoing them restores it."""
    graph = random_graph(length, seed, edges)
    net = Net.of(graph)
    state = start(net, graph.resident_bytes)
    random = np.random.default_rng(seed)
    if watched:
        watch(state, int(0.6 * peak(state)))
    before = peak(state), float(state.cost[0])
    there: list[tuple[int, int]] = []
    for _ in range(12):
        if there and random.random() < 0.4:
            stage, op = there.pop(int(random.integers(len(there))))
            remove(net, state, find(state, stage, op))
        else:
            stage = int(random.integers(1, len(net.cost)))
            op = int(random.integers(0, stage))
            if insert(net, state, stage, op):
                there.append((stage, op))
        same_as_simulated(graph, net, state)
    again = start(net, graph.resident_bytes)
    follow(net, again, recomputations(graph, plan_of(graph, state)))
    prune(net, state)
    assert (peak(again), again.cost[0]) == (peak(state), pytest.approx(state.cost[0]))
    for op in range(len(net.cost)):
        while state.again[op] >= 0:
            remove(net, state, int(state.again[op]))
    assert (peak(state), state.cost[0]) == (before[0], pytest.approx(before[1]))


@pytest.mark.parametrize("most", [1, 2, 3])
def test_a_search_keeps_to_the_computes_of_an_op_that_are_allowed(most: int) -> None:
    """Where more of them lead to a cheaper plan, or to a plan at all."""
    graph = unit_chain(10)
    search = Improver(Problem(graph, 6, 60, 0), 6, planning_seconds(), 0.0, most)
    looks = 20 if most == 1 else 500  # between which it searches for a tenth of a second each
    for _ in islice(search.anneal(), looks):
        if search.progress.plan is not None:
            break
    assert (search.progress.plan is None) == (most == 1)
    if search.progress.plan is not None:
        times = np.bincount(recomputations(graph, search.progress.plan)[:, 1])
        assert 1 + times.max() <= most


@pytest.mark.parametrize("seed", [6, 15, 16, 24, 33, 36])
def test_bounds_hold(seed: int) -> None:
    """No plan of (9) is cheaper than any window says, nor than windows added up."""
    graph = random_dag(seed)
    plans, net = brute_force(graph), Net.of(graph)
    count = len(net.cost)
    for budget in sorted({highest for _, highest in plans})[:6]:
        best = cheapest(plans, budget)
        for first in range(count):
            found = window(net, graph.resident_bytes, budget, first, count, inf)
            assert found.cost <= best - net.cost.sum() + 1e-6
        solve = partial(window, net, graph.resident_bytes, budget, deadline=inf)
        total, _ = best_chain(list(range(count + 1)), solve, inf)
        assert total <= best - net.cost.sum() + 1e-6


def schedules(graph: Graph) -> list[tuple[float, int]]:
    """(cost, peak) of every set of recomputations; more than (9) knows if ops write several."""
    n = len(needed(graph))
    below, found = np.tril_indices(n, -1), set()
    for bits in product((False, True), repeat=len(below[0])):
        computed = np.eye(n, dtype=bool)
        computed[below] = bits
        trace = simulate(graph, plan_from_stages(graph, computed))
        found.add((trace.cost, trace.peak_bytes))
    return sorted(found)


# Where the leanest plans recompute; 16 and those with two writes drop an output that nobody reads
# any more, and make it again for the end alone.
@pytest.mark.parametrize(
    ("seed", "most_writes"),
    [(seed, 1) for seed in (6, 15, 16, 24, 33, 36)]
    + [(seed, 2) for seed in (5, 47, 63, 75, 87, 127)],
)
def test_annealing_finds_the_optimum_of_small_graphs(seed: int, most_writes: int) -> None:
    """General graphs, against all schedules, at each budget; by steps, not by time."""
    graph = random_dag(seed, most_writes=most_writes)
    plans, net = schedules(graph), Net.of(graph)
    least = sum(net.cost)
    budgets = [b for b in sorted({b for _, b in plans}) if cheapest(plans, b) > least]
    assert budgets
    for budget in budgets:
        state, notes = start(net, graph.resident_bytes), scratch(len(net.cost), seed)
        watch(state, budget)
        best = np.zeros((len(state.op), 2), dtype=np.int64)
        cost, rows, _ = soften(net, state, notes, Softening(budget, 20_000, 2.0, 1.0), best, inf)
        assert rows >= 0
        found = start(net, graph.resident_bytes)
        follow(net, found, best[:rows])
        same_as_simulated(graph, net, found)
        assert peak(found) <= budget
        assert cost == pytest.approx(cheapest(plans, budget))


def softened(state: IntervalState, net: Net, budget: int) -> IntervalState | None:
    """The best schedule of some annealing, by number, not by time."""
    watch(state, budget)
    best = np.zeros((len(state.op), 2), dtype=np.int64)
    price = 2 * float(net.cost.sum()) / int(state.counts[EXCESS])
    notes = scratch(len(net.cost), 0)
    _, rows, _ = soften(net, state, notes, Softening(budget, 40_000, 0.1, price), best, inf)
    found = start(net, 0)
    follow(net, found, best[: max(0, rows)])
    return found if rows >= 0 else None


def test_annealing_makes_a_lean_schedule_fit() -> None:
    """Twelve slots for 120 layers: from segments, which alone need 22; not from every op once."""
    graph, budget = unit_chain(120), 12
    net = Net.of(graph)
    moment = int(np.argmax(profile(start(net, 0))))
    leanest = start(net, 0)
    for kept in segmentations(net, moment):
        state = start(net, 0)
        assert resume(net, state, moment, kept)
        leanest = min(leanest, state, key=peak)
    assert peak(leanest) == 22
    found = softened(leanest, net, budget)
    assert found is not None
    same_as_simulated(graph, net, found)
    assert peak(found) <= budget
    assert softened(start(net, 0), net, budget) is None


def test_large_graphs_are_annealed_as_long_as_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside local search, which alone comes to rest far above the optimum of a wide graph."""
    monkeypatch.setattr(improve, "LARGE", 0)
    tried: list[str] = []

    def soft(self: Improver, *arguments: object) -> Iterator[None]:
        tried.append("soft")
        if len(tried) == 1:
            self._cost -= 1
        yield

    def hard(self: Improver, *arguments: object) -> Iterator[None]:
        tried.append("hard")
        yield

    monkeypatch.setattr(Improver, "soft", soft)
    monkeypatch.setattr(Improver, "hard", hard)
    graph = unit_chain(8)
    improver = Improver(Problem(graph, 100, time_limit=AMPLE), 100, planning_seconds(), 0.0)
    improver.see(start(improver.net, 0))
    assert [None for _ in islice(improver.anneal(), 6)]
    assert tried == ["soft", "hard", "soft", "hard", "hard", "hard"]


def test_blocks_say_what_to_keep_beside_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed ones only where open ones do not fit; afterwards all is as it was."""
    tried: list[tuple[bool, bool]] = []

    def shares(self: IntervalSearch) -> Iterator[None]:
        tried.append((self.by_blocks, self._closed))
        yield

    monkeypatch.setattr(IntervalSearch, "_shares", shares)
    graph = with_backward(random_graph(12, 1))
    budget = int(0.9 * simulate(graph, program_order(graph)).peak_bytes)
    problem = Problem(graph, budget, time_limit=AMPLE)
    search = IntervalSearch(problem, budget, planning_seconds(), 0.0)
    monkeypatch.setattr(IntervalSearch, "soft", lambda *arguments: iter(()))
    for _ in search.first(start(search.net, search.resident)):
        pass
    assert tried[:2] == [(False, False), (True, False)]
    assert tried[2:] in ([], [(True, True)])
    assert not search.by_blocks


def annealed(seed: int) -> tuple[float, list[list[int]]]:
    """Some steps of both searches, by number, not by time."""
    graph = random_graph(40, 3)
    net = Net.of(graph)
    state, notes = start(net, graph.resident_bytes), scratch(len(net.cost), seed)
    budget = int(0.85 * peak(state))
    watch(state, budget)
    best = np.zeros((len(state.op), 2), dtype=np.int64)
    cost, rows, _ = soften(net, state, notes, Softening(budget, 3000, 5.0, 1.0), best, inf)
    assert rows >= 0
    begin = start(net, graph.resident_bytes)
    follow(net, begin, best[:rows])
    cost, rows, _ = anneal(net, begin, notes, budget, 50, 5.0, 8, best)
    end = start(net, graph.resident_bytes)
    follow(net, end, best[:rows])
    assert end.cost[0] == pytest.approx(cost)
    assert peak(end) <= budget
    same_as_simulated(graph, net, end)
    return float(cost), best[:rows].tolist()


def test_a_seed_says_it_all() -> None:
    """Equal seeds and steps make equal schedules."""
    assert annealed(5) == annealed(5)


def test_undo_restores() -> None:
    """A log of edits is taken back from its end."""
    graph = random_graph(20, 1)
    net = Net.of(graph)
    state, notes = start(net, 0), scratch(len(net.cost), 0)
    before = profile(state).tolist()
    for number, (stage, op) in enumerate(((20, 3), (25, 4), (30, 3))):
        insert(net, state, stage, op)
        notes.log[number] = stage, op, 1
    notes.counts[EDITS] = 3
    undo(net, state, notes, 0)
    assert profile(state).tolist() == before


def test_a_thousand_layers_within_a_tenth() -> None:
    """A long chain has a plan, and a bound above the trivial one."""
    graph = unit_chain(1000)
    budget = int(0.1 * simulate(graph, program_order(graph)).peak_bytes)
    problem = Problem(graph, budget, time_limit=AMPLE)
    search = IntervalSearch(problem, budget, planning_seconds(), 0.05)
    search.run(polish=False)
    assert search.progress.cost < 2 * search.least
    assert search.progress.bound > search.least
    assert not search.bound_by.startswith("trivial")


def repeated(count: int, odd_size: int = 10) -> Graph:
    """``count`` times a block of three ops, one with a skip; one block's value has another size."""
    values, ops = [Value("x", 5, resident=True)], []
    before = "x"
    for i in range(count):
        sizes = (10, 20, 10 if i != count // 2 else odd_size)
        names = [f"{letter}{i}" for letter in "abc"]
        values += [Value(name, size) for name, size in zip(names, sizes, strict=True)]
        a, b, c = names
        ops.append(simple_op(a, Phase.FORWARD, [before], [a], 3))
        ops.append(simple_op(b, Phase.FORWARD, [a], [b], 1))
        ops.append(simple_op(c, Phase.FORWARD, [b, before], [c], 2))
        before = c
    return with_backward(Graph("repeated", tuple(values), tuple(ops), (before,)))


def test_blocks_that_repeat_are_found() -> None:
    """By structure, sizes and costs: names say nothing, a single other size does."""
    net = Net.of(repeated(20))
    (found,) = repeats(net, 60)
    assert (found.period, found.times) in ((3, 19), (3, 20))
    assert found.end >= 57
    first, second = repeats(Net.of(repeated(20, odd_size=11)), 60)
    assert first.period == second.period == 3
    assert first.end <= 3 * 11 <= second.first + 3
    assert repeats(Net.of(random_graph(40, 2)), 40) == []
    kinds = Blocks.of(net, 60)
    assert len(kinds.kinds) <= 4 < len(kinds.kind_of)
    assert kinds.ends[-1] == 60


@pytest.mark.parametrize("seed", [6, 15, 16, 24, 33, 36])
def test_bounds_of_blocks_hold(seed: int) -> None:
    """Added up over blocks they are below every plan of (9), from any moment on."""
    graph = random_dag(seed)
    plans, net = brute_force(graph), Net.of(graph)
    for budget in sorted({highest for _, highest in plans})[:4]:
        best = cheapest(plans, budget)
        for moment in range(2, len(net.cost)):
            fixed = graph.resident_bytes + int(net.written[moment] + net.workspace[moment])
            bound = Blocks.of(net, moment).bound(budget - fixed)
            assert bound <= best - net.cost.sum() + 1e-6


def test_bounds_are_below_the_plans_of_all_strategies() -> None:
    """On a graph that is too large for brute force."""
    graph = repeated(30)
    budget = int(0.45 * simulate(graph, program_order(graph)).peak_bytes)
    problem = Problem(graph, budget, time_limit=AMPLE, report=until(gap=0.02))
    bounds, costs = [], []
    names = ("hierarchical", "anytime", "dtr", "ap_greedy", "linearized_greedy", "xla_remat")
    for name in names:
        try:
            solution = make(name).plan(problem)
        except Infeasible:
            continue
        trace = simulate(graph, solution.plan)
        assert trace.peak_bytes <= budget
        costs.append(trace.cost)
        bounds.append(solution.bound or 0.0)
    assert len(costs) >= 5
    assert max(bounds) <= min(costs) * (1 + 1e-9)
    assert bounds[0] > Net.of(graph).cost.sum()
    assert costs[0] <= 1.05 * min(costs)


def test_hierarchical_says_what_it_did() -> None:
    """Blocks and the bound's name are in the row's extra; a loose budget needs none of it."""
    graph = repeated(30)
    highest = simulate(graph, program_order(graph)).peak_bytes
    solution = Hierarchical(polish=False).plan(Problem(graph, highest // 2, time_limit=AMPLE))
    assert solution.details["block_kinds"] < solution.details["blocks"]
    assert solution.details["bound_by"].startswith("blocks' bounds")
    assert Hierarchical().plan(Problem(graph, highest)).plan == program_order(graph)
    with pytest.raises(Infeasible, match="alone must have"):
        Hierarchical().plan(Problem(graph, 3))


def planned(graph: Graph, share: float = 0.4, seconds: float = AMPLE) -> BlockSearch:
    """The search after its first schedules; its best plan fits, and its bound is below it.

    The limit is far off, so that no slow machine fails, unlike in use.
    """
    highest = simulate(graph, program_order(graph)).peak_bytes
    budget = int(share * highest)
    problem = Problem(graph, budget, time_limit=seconds)
    search = BlockSearch(problem, budget, planning_seconds(), gap=0.002)
    search.run(polish=False)
    assert search.progress.plan is not None
    trace = simulate(graph, search.progress.plan)
    assert trace.peak_bytes <= budget
    assert trace.cost == pytest.approx(search.progress.cost)
    # Not what ends up in the row, which is the lower of the two.
    assert search.progress.bound <= trace.cost * (1 + 1e-12)
    return search


def test_fifty_thousand_ops() -> None:
    """A chain gets a plan next to the optimum."""
    search = planned(unit_chain(25_000), 0.1)
    assert search.progress.bound > 0.999999 * search.progress.cost


def test_one_block_a_thousand_times() -> None:
    """Few kinds of blocks, whatever their number; another size makes one block of another kind."""
    search, odd = planned(repeated(1000)), planned(repeated(1000, odd_size=11))
    assert len(search.blocks.kind_of) > 300
    assert len(search.blocks.kinds) < len(odd.blocks.kinds) <= 8
    for each in (search, odd):
        assert each.progress.cost <= 1.02 * each.progress.bound


def priced(graph: Graph, every: int) -> Graph:
    """Only every so many-th op costs something; 0 for none."""
    ops = [
        simple_op(op.name, op.phase, op.reads, op.writes, float(every > 0 and i % every == 0))
        for i, op in enumerate(graph.ops)
    ]
    return replace(graph, ops=tuple(ops))


@pytest.mark.parametrize("every", [0, 2])
def test_blocks_that_cost_nothing(every: int) -> None:
    """Their recomputation is free; a bound of 0 is no division by 0."""
    search = planned(priced(repeated(100), every))
    assert search.progress.cost == pytest.approx(search.least, rel=0.7)
    assert (search.progress.cost == 0) == (every == 0)


def test_random_layered_graphs() -> None:
    """As asked for; equal seeds make equal graphs; nothing is in vain."""
    graph = random_layered(200, 0.4, seed=3)
    assert len(graph.ops) == 200
    assert graph == random_layered(200, 0.4, seed=3) != random_layered(200, 0.4, seed=4)
    assert graph.needed_ops().all()
    edges = sum(len(op.reads) for op in graph.ops)
    denser = sum(len(op.reads) for op in random_layered(200, 0.4, density=0.6, seed=3).ops)
    assert denser > 1.5 * edges
    assert [len(random_layered(n).ops) for n in (3, 4, 5, 7)] == [3, 4, 5, 7]
    assert random_layered(30, skips=0.0).loss_index is None
