"""MONeT's bounds and plans against the true optimum of small graphs, and promises about known plans.

The optimum is found by a shortest path through all states of memory, over every plan whose first
computes run in the order that the bound speaks of.
"""

from __future__ import annotations

import functools
import heapq
from collections.abc import Iterator
from math import inf
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest

from graphs.errors import ConfigError, Infeasible
from graphs.files import write_plan
from graphs.ir import Graph, Implementation, Op, Phase, Value
from graphs.kinds import kinds_of
from graphs.plan import Plan, program_order
from graphs.planning import Problem
from graphs.simulate import simulate
from strategies.monet.bound import Bound
from strategies.monet.model import BoundModel
from strategies.monet.planner import Monet
from strategies.monet.ways import VARIANTS, Ways

SEEDS = range(12)
SECONDS = 2


@functools.cache
def small(seed: int, layers: int = 3) -> Graph:
    """A net with a skip connection: weights' gradients, small or large, and other ways at random.

    Values: x (resident), a<i>, loss, g<i> (gradient of a<i>), w<i> (of layer i's weights).
    """
    random = np.random.default_rng(seed)
    values, ops = [Value("x", 1, True), Value("loss", 1)], []

    def way(name: str, *reads: str, workspace: int = 0, over: tuple[str, ...] = ()):
        return Implementation(name, reads, int(random.integers(1, 9)), workspace, over)

    before = ["x", *(f"a{i}" for i in range(layers - 1))]
    skip = int(random.integers(1, layers))
    sizes = random.integers(1, 6, layers).tolist()
    if random.random() < 0.5:
        sizes[1] = sizes[0]
    reads = [(before[i], "a0") if i == skip and i > 1 else (before[i],) for i in range(layers)]
    for i in range(layers):
        values.append(Value(f"a{i}", sizes[i]))
        ways = [way("default", *reads[i])]
        if random.random() < 0.5:
            ways.append(way("conv:big", *reads[i], workspace=int(random.integers(1, 7))))
        if i == 1 and sizes[0] == sizes[1]:
            ways.append(way("inplace", "a0", over=("a0",)))
        ops.append(Op(f"a{i}", Phase.FORWARD, (f"a{i}",), tuple(ways)))
    last = f"a{layers - 1}"
    if random.random() < 0.5:
        values.append(Value("bits", 1))
        ops.append(Op("bits", Phase.FORWARD, ("bits",), (way("default", last),)))
    ops.append(Op("loss", Phase.LOSS, ("loss",), (way("default", last),)))
    values.append(Value(f"g{layers - 1}", sizes[-1]))
    ways = [way("default", "loss", last)]
    ways += [way("intermediate:bits", "loss", "bits")] if Value("bits", 1) in values else []
    ops.append(Op(f"g{layers - 1}", Phase.BACKWARD, (f"g{layers - 1}",), tuple(ways)))
    outputs = ["loss"]
    for i in reversed(range(layers)):
        if i:
            values.append(Value(f"g{i - 1}", sizes[i - 1]))
            ways = [way("default", f"g{i}", f"a{i - 1}")]
            if random.random() < 0.5:
                ways.append(way("output", f"g{i}", f"a{i}"))
            ops.append(Op(f"g{i - 1}", Phase.BACKWARD, (f"g{i - 1}",), tuple(ways)))
        values.append(Value(f"w{i}", int(random.integers(1, 12))))
        ops.append(Op(f"w{i}", Phase.BACKWARD, (f"w{i}",), (way("default", f"g{i}", before[i]),)))
        outputs.append(f"w{i}")
    return Graph(f"small{seed}", tuple(values), tuple(ops), tuple(outputs))


class Optimum:
    """The cheapest plan of a graph within a budget, by Dijkstra's algorithm.

    A state: which values are live, how many steps of the order have begun, which of their ops
    are still to come. A free costs nothing, a compute its way's cost.
    """

    def __init__(self, graph: Graph, budget: int) -> None:
        self.graph, self.tables, self.budget = graph, graph.tables, budget
        ways = Ways.of(graph, VARIANTS["full"])
        needed, loss = ways.surely_needed(), graph.loss_index
        order = [(op,) for op in np.flatnonzero(needed[:loss]).tolist()]
        order += [tuple(op for op in step if needed[op]) for step in ways.steps]
        self.order = [step for step in order if step]
        self.may_wait = ways.may_wait
        self.optional = [op for op in range(len(graph.ops)) if not needed[op]]
        self.allowed = [ways.first_ways(op) for op in range(len(graph.ops))]

    def cost(self) -> float:
        """Infinite where there is no plan."""
        resident = frozenset(np.flatnonzero(self.tables.resident).tolist())
        outputs = frozenset(self.tables.outputs.tolist())
        start = (resident, 0, frozenset[int]())
        best, heap, ties = {start: 0.0}, [(0.0, 0, start)], 0
        while heap:
            cost, _, state = heapq.heappop(heap)
            if cost > best[state]:
                continue
            live, begun, waiting = state
            if begun == len(self.order) and not waiting and outputs <= live:
                return cost
            for more, following in self._moves(live, begun, waiting, resident):
                if cost + more < best.get(following, inf):
                    best[following] = cost + more
                    ties += 1
                    heapq.heappush(heap, (cost + more, ties, following))
        return inf

    def _moves(self, live, begun, waiting, resident) -> Iterator[tuple[float, tuple]]:
        for v in live - resident:
            yield 0.0, (live - {v}, begun, waiting)
        done = {op for step in self.order[:begun] for op in step} - waiting
        for op in [*done, *self.optional]:
            yield from self._computes(live, op, (begun, waiting))
        for op in waiting:
            yield from self._computes(live, op, (begun, waiting - {op}))
        if begun < len(self.order) and waiting <= self.may_wait:
            step = self.order[begun]
            for op in step:
                rest = waiting | (set(step) - {op})
                yield from self._computes(live, op, (begun + 1, frozenset(rest)))
            if set(step) <= self.may_wait:
                yield 0.0, (live, begun + 1, waiting | set(step))

    def _computes(self, live, op: int, rest: tuple) -> Iterator[tuple[float, tuple]]:
        tables, size = self.tables, self.tables.value_bytes
        writes = tables.writes[op].tolist()
        for way in self.allowed[op]:
            if not set(tables.reads[way].tolist()) <= live:
                continue
            taken = [v for v in tables.overwritten_by[way].tolist() if v >= 0]
            during = int(size[list(live)].sum()) + int(size[writes].sum())
            during += int(tables.workspace[way]) - int(size[taken].sum())
            if during <= self.budget:
                yield float(tables.cost[way]), ((live - set(taken)) | set(writes), *rest)


@functools.cache
def optimum(seed: int, share: float) -> tuple[int, float]:
    """(budget, cost)."""
    graph = small(seed)
    floor, peak = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    budget = int(floor + share * (peak - floor))
    return budget, Optimum(graph, budget).cost()


def models(ways: Ways, budget: int) -> Iterator[Bound]:
    """The coarse and the fine bound, and one that looks at everything."""
    yield Bound(ways, budget, 0)
    yield Bound(ways, budget, 0, fine=True)
    everything = Bound(ways, budget, 0)
    loss = ways.graph.loss_index
    everything.model = BoundModel(ways, budget, range(len(ways.steps)), range(loss))
    yield everything


@pytest.mark.parametrize("share", [0.2, 0.6])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_is_above_the_optimum(seed: int, share: float) -> None:
    budget, best = optimum(seed, share)
    ways = Ways.of(small(seed), VARIANTS["full"])
    for bound in models(ways, budget):
        bound.integral(perf_counter() + 20, lambda: False, 0.0, lambda: False)
        assert bound.best <= best * (1 + 1e-9)


@pytest.mark.parametrize("share", [0.2, 0.6])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_is_below_the_optimum(seed: int, share: float) -> None:
    budget, best = optimum(seed, share)
    try:
        found = Monet(gap=0.0).plan(Problem(small(seed), budget, time_limit=SECONDS / 4))
    except Infeasible as error:
        assert not error.proven or best == inf
        return
    trace = simulate(small(seed), found.plan)
    assert trace.peak_bytes <= budget
    assert found.bound <= best * (1 + 1e-9)
    assert best <= trace.cost * (1 + 1e-9)


def test_large_gradients_wait() -> None:
    """Some plan computes the gradient of a weight after a later step's op."""
    assert any(Ways.of(small(seed), VARIANTS["full"]).may_wait for seed in SEEDS)


def plans_in(order: list[float], seed: int) -> dict[float, tuple[float, tuple[Plan, ...]]]:
    """Per share of the room: the cost, each solve knowing the plans of those before it."""
    found: dict[float, float] = {}
    known: tuple[Plan, ...] = ()
    graph = small(seed)
    floor, peak = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    for share in order:
        problem = Problem(graph, int(floor + share * (peak - floor)), 0.2, known=known)
        try:
            plan = Monet().plan(problem).plan
        except Infeasible:
            found[share] = inf
            continue
        known = (*known, plan)
        found[share] = simulate(graph, plan).cost
    return found


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_cost_falls_with_the_budget(seed: int) -> None:
    """Upwards by construction; downwards, what fits of the larger budgets' plans is known, too."""
    shares = [0.0, 0.3, 0.6, 1.0]
    upwards = plans_in(shares, seed)
    assert [upwards[s] for s in shares] == sorted((upwards[s] for s in shares), reverse=True)
    again = plans_in(shares[::-1], seed)
    assert [again[s] for s in shares] == sorted((again[s] for s in shares), reverse=True)


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_full_knows_its_ablations(seed: int) -> None:
    graph = small(seed)
    floor, peak = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    budget, plans = (floor + peak) // 2, {}
    for variant in ("noop", "conv", "output", "intermediate", "full"):
        known = tuple(plans.values()) if variant == "full" else tuple(plans.values())[:1]
        try:
            found = Monet(variant).plan(Problem(graph, budget, 0.2, known=known))
        except Infeasible:
            continue
        plans[variant] = found.plan
        allowed = VARIANTS[variant]
        tables = graph.tables
        ran = found.plan.codes(graph)
        names = {
            graph.ops[tables.op_of[c]].implementations[c - tables.op_first[tables.op_of[c]]].name
            for c in ran[ran >= 0]
        }
        assert all(kinds_of(name) <= allowed for name in names)
    cost = {variant: simulate(graph, plan).cost for variant, plan in plans.items()}
    for variant in ("conv", "output", "intermediate"):
        if variant in cost:
            assert cost["full"] <= cost[variant] <= cost.get("noop", inf)


def test_known_plan_files(tmp_path: Path) -> None:
    graph = small(0)
    peak = simulate(graph, program_order(graph)).peak_bytes
    file = tmp_path / "known.plan.json"
    write_plan(file, program_order(graph))
    found = Monet(known=[str(file)]).plan(Problem(graph, peak, 0.2))
    assert found.details["known"][0]["fits"]
    with pytest.raises(ConfigError, match=r"strategy\.known"):
        Monet(known="file")
