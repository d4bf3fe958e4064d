"""MONeT's bounds and plans against the true optimum of small graphs; what known plans promise.

The optimum is found by a shortest path through all states of memory, over every plan whose first
computes run in the order that the bound speaks of.
"""

from __future__ import annotations

import functools
import heapq
import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from enough import AMPLE, until

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import ConfigError, Infeasible
from rematbench.engines.intervals.moments import best_chain
from rematbench.engines.joint import large as of_large
from rematbench.engines.joint.bound import Bound, Grain
from rematbench.engines.joint.implementations import VARIANTS, AllowedImplementations
from rematbench.engines.joint.model import bound_model, linear_minorant
from rematbench.engines.joint.search import spared, widened
from rematbench.engines.joint.space import ImplementationSpace
from rematbench.engines.joint.windows import Windows
from rematbench.graphs.files import write_plan
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.kinds import kinds_of
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.planning import Problem, Solution
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime_joint import planner
from rematbench.strategies.anytime_joint.planner import AnytimeJoint

SEEDS = range(7)
SECONDS = 0.5


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled beforehand, so that time limits are the planner's alone."""
    AnytimeJoint().warm_up()


@functools.cache
def small(seed: int, layers: int = 3) -> Graph:
    """A net with a skip connection: small or large gradients, other implementations at random.

    Values: x (resident), a<i>, loss, g<i> (gradient of a<i>), w<i> (of layer i's weights).
    """
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 6, layers).tolist()
    if random.random() < 0.5:
        sizes[1] = sizes[0]
    masks = random.random() < 0.3
    ops = [*_forward(random, sizes, masks), *_backward(random, layers, masks)]
    size = {f"{kind}{i}": sizes[i] for i in range(layers) for kind in "ag"}
    for i in range(layers):
        large = random.random() < 0.3
        size[f"w{i}"] = int(random.integers(6, 12) if large else random.integers(1, 3))
    values = (Value("x", 1, True), *(Value(op.name, size.get(op.name, 1)) for op in ops))
    outputs = ("loss", *(f"w{i}" for i in range(layers)))
    return Graph(f"small{seed}", values, tuple(ops), outputs)


def _implementation(random: np.random.Generator, name: str, *reads: str, **more) -> Implementation:
    return Implementation(name, reads, int(random.integers(1, 9)), **more)


def _forward(random: np.random.Generator, sizes: list[int], masks: bool) -> Iterator[Op]:
    layers = len(sizes)
    skip = int(random.integers(1, layers))
    for i in range(layers):
        before = "x" if i == 0 else f"a{i - 1}"
        reads = (before, "a0") if i == skip > 1 else (before,)
        implementations = [_implementation(random, "default", *reads)]
        if random.random() < 0.5:
            space = int(random.integers(1, 7))
            implementations.append(
                _implementation(random, "conv:big", *reads, workspace_bytes=space)
            )
        if i == 1 and sizes[0] == sizes[1]:
            implementations.append(_implementation(random, "inplace", "a0", overwrites=("a0",)))
        yield Op(f"a{i}", Phase.FORWARD, (f"a{i}",), tuple(implementations))
    if masks:
        yield Op(
            "bits",
            Phase.FORWARD,
            ("bits",),
            (_implementation(random, "default", f"a{layers - 1}"),),
        )
    yield Op("loss", Phase.LOSS, ("loss",), (_implementation(random, "default", f"a{layers - 1}"),))


def _backward(random: np.random.Generator, layers: int, masks: bool) -> Iterator[Op]:
    last = layers - 1
    implementations = [_implementation(random, "default", "loss", f"a{last}")]
    if masks:
        implementations.append(_implementation(random, "intermediate:bits", "loss", "bits"))
    yield Op(f"g{last}", Phase.BACKWARD, (f"g{last}",), tuple(implementations))
    for i in reversed(range(layers)):
        before = "x" if i == 0 else f"a{i - 1}"
        if i:
            implementations = [_implementation(random, "default", f"g{i}", before)]
            if random.random() < 0.5:
                implementations.append(_implementation(random, "output", f"g{i}", f"a{i}"))
            yield Op(f"g{i - 1}", Phase.BACKWARD, (f"g{i - 1}",), tuple(implementations))
        yield Op(
            f"w{i}",
            Phase.BACKWARD,
            (f"w{i}",),
            (_implementation(random, "default", f"g{i}", before),),
        )


class Optimum:
    """The cheapest plan of a graph within a budget, by Dijkstra's algorithm.

    A state: which values are live, how many steps of the order have begun, which of their ops
    are still to come. A free costs nothing, a compute its implementation's cost.
    """

    def __init__(self, graph: Graph, budget: int) -> None:
        self.graph, self.tables, self.budget = graph, graph.tables, budget
        implementations = AllowedImplementations.of(graph, VARIANTS["full"])
        needed, loss = implementations.surely_needed, graph.loss_index
        order = [(op,) for op in np.flatnonzero(needed[:loss]).tolist()]
        order += [tuple(op for op in step if needed[op]) for step in implementations.steps]
        self.order = [step for step in order if step]
        self.deferrable = implementations.deferrable
        self.optional = [op for op in range(len(graph.ops)) if not needed[op]]
        self.allowed = [implementations.allowed[op].tolist() for op in range(len(graph.ops))]

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
        if begun < len(self.order) and waiting <= self.deferrable:
            step = self.order[begun]
            for op in step:
                rest = waiting | (set(step) - {op})
                yield from self._computes(live, op, (begun + 1, frozenset(rest)))
            if set(step) <= self.deferrable:
                yield 0.0, (live, begun + 1, waiting | set(step))

    def _computes(self, live, op: int, rest: tuple) -> Iterator[tuple[float, tuple]]:
        tables, size = self.tables, self.tables.value_bytes
        writes = tables.writes[op].tolist()
        for implementation in self.allowed[op]:
            if not set(tables.reads[implementation].tolist()) <= live:
                continue
            taken = [v for v in tables.overwritten_by[implementation].tolist() if v >= 0]
            during = int(size[list(live)].sum()) + int(size[writes].sum())
            during += int(tables.workspace[implementation]) - int(size[taken].sum())
            if during <= self.budget:
                yield float(tables.cost[implementation]), ((live - set(taken)) | set(writes), *rest)


@functools.cache
def optima(seed: int) -> list[tuple[int, float]]:
    """(budget, cost) at the smallest budget that has a plan, and at two larger ones."""
    graph = small(seed)
    least, peak = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    while (cost := Optimum(graph, least).cost()) == inf:
        least += 1
    budgets = {least + 1, (least + peak) // 2} - {least}
    return [(least, cost), *((budget, Optimum(graph, budget).cost()) for budget in sorted(budgets))]


def models(implementations: AllowedImplementations, budget: int) -> Iterator[Bound]:
    """The bounds of each grain, and one that looks at everything."""
    for grain in get_args(Grain):
        yield Bound(implementations, budget, 0, grain)
    everything = Bound(implementations, budget, 0)
    loss = implementations.graph.loss_index
    everything.model = bound_model(
        implementations, budget, range(len(implementations.steps)), range(loss)
    )
    yield everything


@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_is_above_the_optimum(seed: int) -> None:
    for budget, best in optima(seed):
        for bound in models(
            AllowedImplementations.of(small(seed), VARIANTS["full"], budget), budget
        ):
            bound.integral(planning_seconds() + 20, lambda: False, 0.0, lambda: False)
            assert bound.best <= best * (1 + 1e-9)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_window_is_above_the_optimum(seed: int) -> None:
    """From each moment to the end, and the most that windows add up to."""
    graph = small(seed)
    count, risen = len(graph.ops), 0
    for budget, best in optima(seed):
        implementations = AllowedImplementations.of(graph, VARIANTS["full"], budget)
        windows = Windows(implementations, budget)
        moments = [op for op in range(count) if windows.is_moment(op)]
        for moment in moments:
            found = windows.solve(moment, count, inf)
            assert found is not None
            assert implementations.least_cost + found.cost <= best * (1 + 1e-9)
        total, _ = best_chain([*moments, count], partial(windows.solve, deadline=inf), inf)
        assert implementations.least_cost + total <= best * (1 + 1e-9)
        risen += total > 0
    assert risen or seed


@pytest.mark.parametrize(("seed", "above"), [(4, 2), (6, 1)])
def test_fine_bounds_are_better(seed: int, above: int) -> None:
    graph = small(seed, layers=4)
    implementations, budget = (
        AllowedImplementations.of(graph, VARIANTS["full"]),
        graph.floor_bytes() + above,
    )
    found = []
    for bound in models(implementations, budget):
        bound.integral(planning_seconds() + 20, lambda: False, 0.0, lambda: False)
        found.append(bound.best)
    assert found[0] < min(found[-2:]) - 0.5


@pytest.mark.parametrize("seed", range(20))
def test_one_row_for_all_positions_of_a_stage(seed: int) -> None:
    """It asks for no more bytes than the position that needs least, and for that when all stay."""
    random = np.random.default_rng(seed)
    positions = []
    for _ in range(int(random.integers(1, 5))):
        sizes = random.integers(0, 6, 4) * (random.random(4) < 0.6)
        live = float(sizes.sum() + random.integers(0, 3))
        positions.append((live, [(i, -float(size)) for i, size in enumerate(sizes) if size]))
    constant, relief = linear_minorant(positions)
    assert constant == min(live for live, _ in positions)
    for chosen in itertools.product((0, 1), repeat=4):
        row = constant + sum(relief.get(i, 0.0) for i in range(4) if chosen[i])
        least = min(live + sum(size for i, size in terms if chosen[i]) for live, terms in positions)
        assert row <= least + 1e-9


def plan_or_none(problem: Problem) -> Solution | None:
    """None where none was found, though there is one."""
    try:
        return AnytimeJoint(gap=0.0).plan(problem)
    except Infeasible as error:
        if error.proven:
            raise
        return None


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_plan_is_below_the_optimum(seed: int, large: bool, monkeypatch) -> None:
    if large:  # by the search of large graphs
        monkeypatch.setattr(planner, "LARGE", 0)
    for budget, best in optima(seed):
        seconds = 0.1 if large else SECONDS
        found = plan_or_none(Problem(small(seed), budget, time_limit=seconds))
        if found is None:
            continue
        trace = simulate(small(seed), found.plan)
        assert trace.peak_bytes <= budget
        assert found.bound <= best * (1 + 1e-9)
        if not large:  # which may be late with an output, by giving up its first compute
            assert best <= trace.cost * (1 + 1e-9)


def skip_connection(steps: int) -> Graph:
    """A large gradient, made from a small one, is read at once and again at the end."""

    def op(name: str, phase: Phase, *reads: str) -> Op:
        return Op(name, phase, (name,), (Implementation("default", reads, 1),))

    ops = [op("loss", Phase.LOSS, "x"), op("small", Phase.BACKWARD, "loss")]
    ops += [op("large", Phase.BACKWARD, "small"), op("g0", Phase.BACKWARD, "large")]
    ops += [op(f"g{i}", Phase.BACKWARD, f"g{i - 1}") for i in range(1, steps)]
    ops += [op("end", Phase.BACKWARD, "large", f"g{steps - 1}")]
    size = {"large": 5} | {f"g{i}": 3 for i in range(1, steps - 1)}
    values = (Value("x", 1, True), *(Value(each.name, size.get(each.name, 1)) for each in ops))
    return Graph("skip_connection", values, tuple(ops), ("loss", "end"))


def test_gradients_of_skip_connections_are_computed_again() -> None:
    graph = skip_connection(10)
    found = AnytimeJoint().plan(Problem(graph, 9, time_limit=AMPLE))
    assert found.plan is not None
    trace = simulate(graph, found.plan)
    codes = trace.codes[trace.codes >= 0].tolist()
    names = [graph.ops[graph.tables.op_of[code]].name for code in codes]
    assert trace.peak_bytes <= 9 < simulate(graph, program_order(graph)).peak_bytes
    assert [name for name in set(names) if names.count(name) > 1] == ["large"]


def waiting_part(seed: int) -> Graph:
    """A large gradient of which a part waits for a sum, by itself or as a copy."""
    random = np.random.default_rng(seed)
    size = {"large": int(random.integers(3, 7)), "copy": int(random.integers(1, 3))}
    size |= {name: int(random.integers(1, 4)) for name in ("a", "b", "g0", "g1", "g2")}

    def op(name: str, phase: Phase, *reads: tuple[str, ...]) -> Op:
        named = zip(("default", "parts:copy"), reads, strict=False)
        return Op(
            name,
            phase,
            (name,),
            tuple(_implementation(random, implementation, *row) for implementation, row in named),
        )

    ops = [op("a", Phase.FORWARD, ("x",)), op("b", Phase.FORWARD, ("a",))]
    ops += [op("loss", Phase.LOSS, ("b",)), op("g0", Phase.BACKWARD, ("loss", "b"))]
    ops += [op("large", Phase.BACKWARD, ("g0",)), op("g1", Phase.BACKWARD, ("large", "a"))]
    ops += [op("copy", Phase.BACKWARD, ("large",)), op("g2", Phase.BACKWARD, ("g1", "a"))]
    ops += [op("sum", Phase.BACKWARD, ("g2", "large"), ("g2", "copy"))]
    values = (Value("x", 1, True), *(Value(each.name, size.get(each.name, 1)) for each in ops))
    return Graph(f"waiting_part{seed}", values, tuple(ops), ("loss", "sum"))


@pytest.mark.parametrize("seed", range(1, 12, 2))
def test_copies_of_parts_against_the_optimum(seed: int) -> None:
    """Bounds below it, and plans above it."""
    graph = waiting_part(seed)
    least, peak = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    for budget in range(least, peak + 1):
        best = Optimum(graph, budget).cost()
        implementations = AllowedImplementations.of(graph, VARIANTS["full"], budget)
        for bound in models(implementations, budget):
            bound.integral(planning_seconds() + 20, lambda: False, 0.0, lambda: False)
            assert bound.best <= best * (1 + 1e-9)
        found = plan_or_none(Problem(graph, budget, time_limit=SECONDS)) if best < inf else None
        if found is not None:
            assert found.bound <= best * (1 + 1e-9)
            assert best <= simulate(graph, found.plan).cost * (1 + 1e-9)


def test_a_waiting_part_is_counted() -> None:
    """Whole or copied, it is in memory: only so is the optimum proven."""
    graph, budget = waiting_part(1), 11
    *_, everything = models(AllowedImplementations.of(graph, VARIANTS["full"], budget), budget)
    everything.integral(planning_seconds() + 20, lambda: False, 0.0, lambda: False)
    assert everything.best == pytest.approx(Optimum(graph, budget).cost(), rel=1e-5)


@pytest.mark.parametrize("seed", [2, 11])
def test_ways_that_no_plan_can_run_are_left_out(seed: int) -> None:
    graph = small(seed)
    tables, budget = graph.tables, graph.floor_bytes()
    size = np.where(tables.resident, 0, tables.value_bytes)
    every, fit = (
        AllowedImplementations.of(graph, VARIANTS["full"], room) for room in (None, budget)
    )
    left_out = set(every.members.items.tolist()) - set(fit.members.items.tolist())
    assert left_out
    assert fit.everything
    for implementation in left_out:
        assert (
            fit.extra[implementation]
            + size[tables.reads[implementation]].sum()
            + graph.resident_bytes
            > budget
        )


def test_large_gradients_deferrable() -> None:
    assert any(
        AllowedImplementations.of(small(seed), VARIANTS["full"]).deferrable for seed in SEEDS
    )


def sweep(
    seed: int, shares: list[float], known: tuple[Plan, ...] = ()
) -> tuple[list[float], tuple[Plan, ...]]:
    """Costs at shares of the room above the floor, each solve knowing the plans before it."""
    costs, graph = [], small(seed)
    floor, peak = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    for share in shares:
        problem = Problem(graph, int(floor + share * (peak - floor)), 0.2, warm_starts=known)
        try:
            plan = AnytimeJoint().plan(problem).plan
        except Infeasible:
            costs.append(inf)
            continue
        known = (*known, plan)
        costs.append(simulate(graph, plan).cost)
    return costs, known


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_cost_falls_with_the_budget(seed: int) -> None:
    """Upwards by construction; after a sweep downwards, too, that knows its plans."""
    shares = [0.0, 0.3, 0.6, 1.0]
    upwards, _ = sweep(seed, shares)
    assert upwards == sorted(upwards, reverse=True)
    downwards, known = sweep(seed, shares[::-1])
    again, _ = sweep(seed, shares, known)
    assert again == sorted(again, reverse=True)
    assert all(after <= before for after, before in zip(again, downwards[::-1], strict=True))


@pytest.mark.parametrize("seed", SEEDS[:4])
def test_full_knows_its_ablations(seed: int) -> None:
    graph = small(seed)
    floor, peak = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    budget, plans = (floor + peak) // 2, {}
    for variant in ("noop", "conv", "output", "intermediate", "full"):
        known = tuple(plans.values()) if variant == "full" else tuple(plans.values())[:1]
        try:
            found = AnytimeJoint(variant).plan(Problem(graph, budget, 0.2, warm_starts=known))
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
    strategy = AnytimeJoint(known=[str(file)])
    strategy.warm_up()  # on another graph
    found = strategy.plan(Problem(graph, peak, 0.2))
    assert found.details["known"][0]["fits"]
    with pytest.raises(ConfigError, match=r"strategy\.known"):
        AnytimeJoint(known="file")


def normalised(costs: tuple[float, float, float]) -> Graph:
    """A batch norm between two ops: its default, and two that read its own statistics."""
    default, statistics, both = costs
    norm = (
        Implementation("default", ("c",), default),
        Implementation("statistics", ("c", "s"), statistics),
        Implementation("statistics+inplace", ("c", "s"), both, overwrites=("c",)),
        Implementation("inplace", ("c",), default, overwrites=("c",)),
    )
    ops = (
        simple_op("c", Phase.FORWARD, ["x"], ["c"], 9),
        Op("norm", Phase.FORWARD, ("b", "s"), norm),
        simple_op("r", Phase.FORWARD, ["b"], ["r"], 1),
        Op("h", Phase.FORWARD, ("h",), (Implementation("default", ("r",), 1, workspace_bytes=8),)),
        simple_op("loss", Phase.LOSS, ["h"], ["loss"], 1),
        simple_op("gr", Phase.BACKWARD, ["loss", "b"], ["gr"], 1),
        simple_op("gc", Phase.BACKWARD, ["gr", "c", "s"], ["gc"], 1),
    )
    size = dict.fromkeys(("c", "b", "r", "gr"), 4)
    names = ["c", "b", "s", "r", "h", "loss", "gr", "gc"]
    values = (Value("x", 1, True), *(Value(name, size.get(name, 1)) for name in names))
    return Graph("normalised", values, ops, ("loss", "gc"))


@pytest.mark.parametrize(
    ("costs", "cheapest"),
    [((5, 6, 4), (33, 24)), ((5, 9, 4), (33, 24)), ((5, 4, 6), (32, 23)), ((5, 6, 6), (33, 24))],
)
def test_statistics_whatever_they_cost(
    costs: tuple[float, float, float], cheapest: tuple[float, float]
) -> None:
    """Where the only cheap implementation to recompute overwrites, another takes its place."""
    graph = normalised(costs)
    for budget, cost in zip((15, 19), cheapest, strict=True):
        problem = Problem(graph, budget, time_limit=AMPLE, report=until(cost))
        found = AnytimeJoint(gap=0.0).plan(problem)
        assert found.plan is not None
        assert simulate(graph, found.plan).cost == cost == Optimum(graph, budget).cost()
        for bound in models(AllowedImplementations.of(graph, VARIANTS["full"], budget), budget):
            bound.integral(planning_seconds() + 20, lambda: False, 0.0, lambda: False)
            assert bound.best <= cost * (1 + 1e-9)


def test_an_op_that_fits_only_in_place() -> None:
    graph = normalised((5, 6, 6))
    reading, wide = 1 + 4 + 4 + 1, 1 + 4 + 1  # bytes of the default, and of what overwrites
    fit = AllowedImplementations.of(graph, VARIANTS["full"], (reading + wide) // 2)
    names = [
        graph.ops[1].implementations[int(implementation) - 1].name
        for implementation in fit.members[1]
    ]
    assert names == [
        "default",
        "inplace",
    ]  # the first stays beside: all implementations of a group read alike


def repeated(layers: int) -> Graph:
    """Layers whose gradients need their input, or a little more time and their output."""
    ops = []
    for i in range(layers):
        before = "x" if i == 0 else f"b{i - 1}"
        ops.append(simple_op(f"a{i}", Phase.FORWARD, [before], [f"a{i}"], 8))
        ops.append(simple_op(f"b{i}", Phase.FORWARD, [f"a{i}"], [f"b{i}"], 4))
    ops.append(simple_op("loss", Phase.LOSS, [f"b{layers - 1}"], ["loss"], 1))
    after = "loss"
    for i in reversed(range(layers)):
        before = "x" if i == 0 else f"b{i - 1}"
        implementations = (
            Implementation("default", (after, f"a{i}"), 4),
            Implementation("output", (after, f"b{i}"), 5),
        )
        ops.append(Op(f"h{i}", Phase.BACKWARD, (f"h{i}",), implementations))
        ops.append(simple_op(f"g{i}", Phase.BACKWARD, [f"h{i}", before], [f"g{i}"], 8))
        after = f"g{i}"
    values = (Value("x", 1, True), *(Value(op.name, 10) for op in ops))
    return Graph("repeated", values, tuple(ops), ("loss", "g0"))


def test_large_graphs_choose_ways() -> None:
    """Every other layer's value is never needed: one extra unit each, and little computed again."""
    layers = 300
    graph = repeated(layers)
    assert len(graph.ops) > planner.LARGE
    budget = 10 * (layers + 5)
    found = AnytimeJoint().plan(Problem(graph, budget, time_limit=AMPLE))
    trace = simulate(graph, found.plan)
    base = simulate(graph, program_order(graph))
    assert trace.peak_bytes <= budget < base.peak_bytes
    assert base.cost < trace.cost <= base.cost + 1.1 * layers
    assert base.cost < found.bound
    assert trace.cost - found.bound <= 0.005 * trace.cost
    plain = AnytimeJoint("noop").plan(Problem(graph, budget, time_limit=AMPLE))
    names = [implementation.name for op in graph.ops for implementation in op.implementations]
    codes = plain.plan.codes(graph)
    assert {names[code] for code in codes[codes >= 0].tolist()} == {"default"}
    assert simulate(graph, plain.plan).cost > trace.cost


@pytest.mark.parametrize("seed", range(12))
def test_waiting_parts_of_large_graphs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What only some implementations read is computed by the first plans, too."""
    monkeypatch.setattr(planner, "LARGE", 0)
    graph = waiting_part(seed)
    peak = simulate(graph, program_order(graph)).peak_bytes
    for budget in (graph.floor_bytes(), peak - 1, peak, None):
        if found := plan_or_none(Problem(graph, budget, time_limit=0.2)):
            assert simulate(graph, found.plan).peak_bytes <= (budget or peak)


def test_matrices_only_where_they_are_small_and_ways_can_be_chosen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(planner, "LARGE", 0)
    graph = repeated(60)

    def enough(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        for share in ("INTERVALS", "AGAIN"):
            patched.setattr(of_large, share, 0.5 / AMPLE)
        patched.setattr(Bound, "linear", enough)
        chosen = AnytimeJoint(gap=0.0).plan(Problem(graph, 10 * (40 + 5), time_limit=AMPLE))
    assert chosen.details["build_seconds"] > 0
    short = Problem(graph, 10 * (40 + 5), time_limit=3)
    monkeypatch.setattr(of_large, "HUGE", len(graph.ops) - 1)
    huge = AnytimeJoint(gap=0.0).plan(short)
    ops = tuple(replace(op, implementations=op.implementations[:1]) for op in graph.ops)
    plain = replace(short, graph=replace(graph, ops=ops))
    monkeypatch.setattr(of_large, "HUGE", len(graph.ops))
    for found in (huge, AnytimeJoint(gap=0.0).plan(plain)):
        assert found.details["build_seconds"] == 0


def test_widening_a_wide_space_changes_nothing() -> None:
    implementations = AllowedImplementations.of(repeated(20), VARIANTS["full"])
    once = widened(ImplementationSpace.start(implementations, 1000, joint=True).everything())
    twice = widened(once)
    assert twice.space.whole() is twice.space
    assert (twice.keep == once.keep).all()
    assert (twice.cost, twice.peak) == (once.cost, once.peak)


def test_large_graphs_say_that_nothing_fits() -> None:
    graph = repeated(300)
    with pytest.raises(Infeasible):
        AnytimeJoint().plan(Problem(graph, graph.floor_bytes() + 10, time_limit=1))
    everything = AnytimeJoint().plan(Problem(graph, None, time_limit=5))
    assert simulate(graph, everything.plan).cost == simulate(graph, program_order(graph)).cost


def test_spared_reads_the_fewest_bytes() -> None:
    """Where gradients by masks fit only all together, no single switch gets there."""
    implementations = AllowedImplementations.of(repeated(4), VARIANTS["full"])
    graph = implementations.graph
    values = tuple(
        Value(v.name, 1 if v.name.startswith("b") else v.bytes, v.resident) for v in graph.values
    )
    implementations = AllowedImplementations.of(
        Graph("masks", values, graph.ops, graph.outputs), VARIANTS["full"]
    )
    start = ImplementationSpace.start(implementations, 100, joint=True).everything()
    chosen = spared(start).space.choice
    for i in range(4):
        op = implementations.graph.op_index[f"h{i}"]
        names = [
            implementations.graph.values[v].name for v in implementations.reads(int(chosen[op]))
        ]
        assert f"b{i}" in names
        assert start.space.choice[op] != chosen[op]
