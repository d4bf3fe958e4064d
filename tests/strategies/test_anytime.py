"""Our own search: against brute force, against problem (9), and its bounds against schedules."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from enough import AMPLE, until
from exhaustive import frontier
from hypothesis import given, settings, strategies as st
from test_checkmate_paper import (
    brute_force,
    cost_or_none,
    notes_example,
    random_dag,
)

from benchmarks.graphs import layers
from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.engines.stages import search
from rematbench.engines.stages.local_search import repair
from rematbench.engines.stages.paths import violated_paths
from rematbench.engines.stages.relaxation import Relaxation, merged_stages, single_stages
from rematbench.engines.stages.space import Schedule, Space
from rematbench.graphs.builders.keras import keras_graph
from rematbench.graphs.builders.synthetic import random_graph, unit_chain, with_backward
from rematbench.graphs.ir import Graph, Implementation, Op, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem, Solution
from rematbench.strategies.checkmate.ilp import CheckmateIlp
from rematbench.strategies.dtr.planner import Dtr
from rematbench.strategies.hierarchical import Hierarchical

EXACT = Anytime(gap=0.0)


@pytest.fixture(scope="module", autouse=True)
def kernels() -> None:
    """Compiled beforehand, so that time limits are the solver's alone."""
    EXACT.warm_up()


def solved(graph: Graph, budget: int, strategy: Anytime = EXACT) -> Solution:
    """A solution whose plan is in the budget, and whose bound is no higher than its cost."""
    solution = strategy.plan(Problem(graph, budget, time_limit=20))
    trace = simulate(graph, solution.plan)
    assert trace.peak_bytes <= budget
    assert solution.bound is not None
    assert solution.bound <= trace.cost * (1 + 1e-6)
    json.dumps(dict(solution.details), allow_nan=False)
    return solution


def no_schedule(graph: Graph, budget: int) -> None:
    """That (9) has none is proven, whether another plan was found or not."""
    try:
        solution = solved(graph, budget)
    except Infeasible as error:
        is_proven = error.proven and error.details.get("no_plan_in", ["9"]) == ["9"]
    else:
        is_proven = "9" in solution.details["no_plan_in"] and solution.bound_of == "any"
    assert is_proven


def cost_of(graph: Graph, solution: Solution) -> float:
    return simulate(graph, solution.plan).cost


def test_the_papers_chain() -> None:
    graph = unit_chain(8)
    solution = solved(graph, 4)
    assert cost_of(graph, solution) == 26
    assert solution.bound == pytest.approx(26)
    assert solution.bound_of == "9"
    assert list(solution.details["bounds"]) == ["9"]  # so small that F is no faster
    assert solution.details["integrality_gap"] < 1.19  # that of (9) is 1.18
    assert solution.details["seconds_to_gap_2"] is not None


def test_recomputation_during_the_forward_pass() -> None:
    graph = notes_example()
    solution = solved(graph, 15)
    assert cost_of(graph, solution) == 54
    assert solution.bound == pytest.approx(54)
    assert solution.bound_of == "9"


@pytest.mark.parametrize("seed", range(5))
def test_brute_force(seed: int) -> None:
    graph = random_dag(seed, count=5, most_writes=1 + seed % 2)
    plans = brute_force(graph)
    leanest = min(peak for _, peak in plans)
    for budget in sorted({peak for _, peak in plans})[:4]:
        best = min(cost for cost, peak in plans if peak <= budget)
        solution = solved(graph, budget)
        found = cost_of(graph, solution)
        assert solution.bound == pytest.approx(found)
        # Of several outputs per op each is freed by itself, which brute force does not.
        assert found == pytest.approx(best) if seed % 2 == 0 else found <= best
    if seed % 2 == 0:
        no_schedule(graph, leanest - 1)


@pytest.mark.parametrize("seed", range(0, 6, 2))
def test_the_way_of_larger_graphs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """F, the fullest moments, intervals, then (9): where one program cannot hold all stages."""
    monkeypatch.setattr(search.StageSearch, "_in_one", lambda *arguments: False)
    graph = random_dag(seed, count=5)
    plans = brute_force(graph)
    leanest = min(peak for _, peak in plans)
    for budget in sorted({peak for _, peak in plans})[:4]:
        best = min(cost for cost, peak in plans if peak <= budget)
        solution = solved(graph, budget)
        assert cost_of(graph, solution) == pytest.approx(best)
        assert solution.details.get("bounds", {}).get("any", 0.0) <= best * (1 + 1e-9)
        assert solution.bound_of in ("any", "9")
    no_schedule(graph, leanest - 1)


def twice(dear: float = 0) -> Graph:
    """c needs a and b at once, each of which is leanest when r is computed for it alone.

    Args:
        dear: cost of one more op that c reads, and that schedules of (9) may have to repeat.
    """
    sizes = {"r": 100, "p": 100, "q": 100, "a": 20, "b": 20, "e": 20, "big": 215, "w": 1, "c": 1}
    reads = {"r": "x", "p": "r", "q": "p", "a": "q", "b": "r", "e": "x", "big": "x", "w": ["big"]}
    reads["c"] = "abwe"
    if not dear:
        sizes.pop("e")
        reads["c"] = "abw"
    values = Value("x", 1, resident=True), *(Value(name, size) for name, size in sizes.items())
    ops = tuple(
        simple_op(name, Phase.FORWARD, reads[name], [name], dear if name == "e" else 1)
        for name in sizes
    )
    return Graph("twice", values, ops, ("c",))


def test_a_plan_leaner_than_every_schedule() -> None:
    graph = twice()
    assert cost_or_none(graph, 231) is None
    solution = solved(graph, 231)
    assert cost_of(graph, solution) == 15
    assert (solution.bound, solution.bound_of) == (8, "any")
    assert solution.details["no_plan_in"] == ["9"]


def test_a_plan_cheaper_than_every_schedule() -> None:
    """(9) repeats e; nothing that is proven of its schedules is said of this plan."""
    graph, budget = twice(100), 240
    assert cost_or_none(graph, budget) == 211
    solution = solved(graph, budget)
    assert cost_of(graph, solution) == 115
    assert solution.bound_of == "any"
    assert solution.details["seconds_to_gap_5"] is None
    assert all(bound <= 115 for _, _, bound in solution.details["incumbents"])
    ratio = solution.details["integrality_gap"]
    assert ratio is None or ratio >= 1
    given = Problem(graph, budget, time_limit=2, warm_starts=(solution.plan,))
    assert cost_of(graph, Hierarchical().plan(given)) == 115


def test_a_bound_of_every_plan_is_none_where_ops_have_other_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(search, "COLUMNS", (1, 1, 1))  # so that the fullest moments are looked at
    chain = unit_chain(8)
    ops = tuple(
        replace(
            op,
            implementations=(
                *op.implementations,
                replace(op.implementations[0], name="2", cost=0.5),
            ),
        )
        for op in chain.ops
    )
    solution = solved(replace(chain, ops=ops), 6)
    assert "any" not in solution.details["bounds"]


def test_memory_has_its_price_at_the_fullest_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bound on every plan, where programs of stages say nothing; annealing finds its plan."""
    monkeypatch.setattr(search.StageSearch, "_in_one", lambda *arguments: False)
    monkeypatch.setattr(search, "search", lambda *arguments: iter(()))
    monkeypatch.setattr(Relaxation, "linear", lambda *arguments, **options: iter(()))
    monkeypatch.setattr(Relaxation, "integral", lambda *arguments, **options: iter(()))
    graph = with_backward(keras_graph("mobilenet", 4, 224, 224))
    peak = simulate(graph, program_order(graph)).peak_bytes
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # seconds are then the processor's
    solution = EXACT.plan(Problem(graph, int(0.5 * peak), time_limit=2))
    assert solution.bound_of == "any"
    assert "moment" in solution.details["bound_by"] or "windows" in solution.details["bound_by"]
    assert solution.bound > search.Space.full(graph).base_cost
    assert solution.bound <= cost_of(graph, solution)


def test_every_schedule_of_seven_ops() -> None:
    """Two million of them: anytime and the printed program find each peak's least cost."""
    graph = random_dag(16, count=7)
    known = frontier(graph)
    assert len(known) > 1
    for peak, cost in known:
        solution = solved(graph, peak)
        assert cost_of(graph, solution) == pytest.approx(cost)
        assert solution.bound == pytest.approx(cost)
        assert cost_or_none(graph, peak) == pytest.approx(cost)
    no_schedule(graph, known[0][0] - 1)


@pytest.mark.parametrize("seed", [15, 16, 33])
def test_two_ways_of_trying_every_schedule_agree(seed: int) -> None:
    graph = random_dag(seed)
    plans = brute_force(graph)  # through the simulator
    for peak, cost in frontier(graph):
        assert min(price for price, needs in plans if needs <= peak) == cost
        assert min(needs for price, needs in plans if price <= cost) == peak


@pytest.mark.parametrize("seed", range(3))
def test_problem_9_on_training_graphs(seed: int) -> None:
    graph = random_graph(4, seed, edges_per_op=1.8)
    floor, most = graph.floor_bytes(), Space.full(graph).everything().trace.peak_bytes
    for share in (0.3, 0.6):
        budget = int(floor + share * (most - floor))
        paper = cost_or_none(graph, budget)
        if paper is None:
            no_schedule(graph, budget)
        else:
            solution = solved(graph, budget)
            assert cost_of(graph, solution) == pytest.approx(paper)
            assert solution.bound_of in ("9", "any")


def random_schedule(space: Space, random: np.random.Generator) -> Schedule:
    keep = random.random(space.shape) < random.random()
    return space.evaluate(keep)


def assert_satisfies(relaxation: Relaxation, schedule: Schedule) -> None:
    x = relaxation.encode(schedule)
    rows = relaxation.program.matrix
    for i, (start, end) in enumerate(zip(rows.start[:-1], rows.start[1:], strict=True)):
        total = rows.value[start:end] @ x[rows.column[start:end]]
        assert rows.lower[i] - 1e-9 <= total <= rows.upper[i] + 1e-9
    assert not len(relaxation.violated(x).upper)
    cost = np.ones(len(relaxation.space.ops))
    assert not len(violated_paths(relaxation.values, relaxation.layout, x, cost).upper)


@given(
    seed=st.integers(0, 10**6), length=st.integers(2, 9), full=st.booleans(), pieces=st.integers(1)
)
@settings(max_examples=60, deadline=None)
def test_every_schedule_satisfies_every_row(
    seed: int, length: int, full: bool, pieces: int
) -> None:
    graph = random_graph(length, seed)
    random = np.random.default_rng(seed)
    space = Space.full(graph) if full else Space.reduced(graph)
    schedule = random_schedule(space, random)
    stages = len(space.stages)
    cuts = sorted({0, *random.integers(0, stages, pieces % 6).tolist()})
    for groups in (single_stages(space), list(zip(cuts, [*cuts[1:], stages], strict=True))):
        relaxation = Relaxation(space, schedule.trace.peak_bytes, groups)
        assert_satisfies(relaxation, schedule)
        again = relaxation.decode(relaxation.encode(schedule))
        assert again is not None
        if relaxation.exact:
            assert again.trace.peak_bytes <= schedule.trace.peak_bytes
            assert again.trace.cost <= schedule.trace.cost


def test_f_lives_in_9() -> None:
    graph = random_graph(8, 5)
    reduced, full = Space.reduced(graph), Space.full(graph)
    schedule = random_schedule(reduced, np.random.default_rng(0))
    assert full.adopt(schedule).plan == schedule.plan
    assert reduced.adopt(full.adopt(schedule)).plan == schedule.plan
    recomputed = np.zeros(full.shape, dtype=bool)
    recomputed[4, 0] = True  # in the forward pass
    outside = full.explicit(recomputed)
    assert outside is not None
    assert reduced.adopt(outside) is None


@pytest.mark.parametrize("seed", [15, 16, 33])
def test_late_stages_bound_all_of_9(seed: int) -> None:
    """The stages from the first op above the budget on cost no more than an optimum."""
    graph = random_dag(seed)
    fewer = 0
    for highest, cost in frontier(graph):
        space = Space.late(graph, highest)
        fewer += len(space.ops) - len(space.stages)
        program = Relaxation(space, highest, single_stages(space))
        *_, last = program.integral(float("inf"), lambda: False, 0.0)
        assert last.bound <= cost * (1 + 1e-6)
        found = program.decode(last.x)
        assert found.peak > highest or found.cost == pytest.approx(cost)
    assert fewer


def test_cheaper_strategies_know_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where local search finds none, theirs is the first one, and is improved."""
    graph = random_graph(30, 3)
    budget = int(0.6 * simulate(graph, program_order(graph)).peak_bytes)
    dtr = Dtr().plan(Problem(graph, budget))
    monkeypatch.setattr(search, "search", lambda *arguments: iter(()))
    monkeypatch.setattr(Relaxation, "linear", lambda *arguments, **options: iter(()))
    monkeypatch.setattr(Relaxation, "integral", lambda *arguments, **options: iter(()))
    least = simulate(graph, dtr.plan).cost
    found = Anytime().plan(Problem(graph, budget, time_limit=AMPLE, report=until(least)))
    trace = simulate(graph, found.plan)
    assert trace.peak_bytes <= budget
    assert trace.cost <= least


def test_groups_only_lower_the_bound() -> None:
    space, budget = Space.reduced(unit_chain(14)), 6
    groups = ([(0, len(space.stages))], merged_stages(space, budget, 150), single_stages(space))
    assert len(groups[1]) not in (1, len(space.stages))
    bounds = []
    for each in groups:
        *_, last = Relaxation(space, budget, each).integral(float("inf"), lambda: False, 0.0)
        bounds.append(last.bound)
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1]


def test_path_rows_raise_the_linear_bound() -> None:
    graph = unit_chain(14)
    space, bounds = Space.reduced(graph), []
    for paths in (False, True):
        relaxation = Relaxation(space, 6, single_stages(space))
        *_, last = relaxation.linear(float("inf"), lambda: False, paths)
        bounds.append(last.bound)
    *_, last = relaxation.integral(float("inf"), lambda: False, 0.0)
    assert bounds[0] < bounds[1] <= last.bound * (1 + 1e-9)


def test_repair_stops_at_its_deadline() -> None:
    space = Space.reduced(unit_chain(30))
    random = np.random.default_rng(0)
    start = space.everything()
    assert repair(start, 5, random, deadline=0.0) is start


def test_one_thread() -> None:
    graph = unit_chain(8)
    costs = {cost_of(graph, solved(graph, 4, Anytime(threads=t, gap=0.0))) for t in (1, 2)}
    assert len(costs) == 1


@pytest.mark.parametrize(
    ("length", "seconds"), [(8, search.SMALL_SECONDS), (30, search.ALONE * AMPLE)]
)
def test_programs_of_small_graphs_wait_for_little(
    monkeypatch: pytest.MonkeyPatch, length: int, seconds: float
) -> None:
    """On one thread, search alone comes before them: of a small graph they prove all in no time."""
    given = list[float]()

    def note(_: search.StageSearch, leg: search.Leg, deadline: float) -> Iterator[None]:
        given.append(deadline - leg.begun)
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(search.StageSearch, "_search", note)
    problem = Problem(unit_chain(length), length // 2, time_limit=AMPLE)
    assert Anytime(gap=0.0, threads=1).plan(problem).plan is not None
    assert given == [pytest.approx(seconds, rel=0.2)]


def test_no_more_work_than_the_gap_asks_for() -> None:
    wide, exact = (solved(unit_chain(8), 4, Anytime(gap=g)).details for g in (0.5, 0.0))
    assert wide["integer_programs"] == 0
    assert wide["solver_runs"] < exact["solver_runs"]


def test_no_time_is_no_traceback() -> None:
    graph = unit_chain(30)
    with pytest.raises(Infeasible, match="give more time") as caught:
        Anytime().plan(Problem(graph, 6, time_limit=0.0))
    assert not caught.value.proven


def test_under_the_largest_op() -> None:
    graph = random_graph(6, 3)
    floor, what = graph.floor()
    with pytest.raises(Infeasible, match=f"{what} alone must have {floor} bytes") as caught:
        Anytime().plan(Problem(graph, floor - 1))
    assert caught.value.proven


def test_overwriting_ops_are_refused() -> None:
    in_place = Implementation("in place", ("a",), 1.0, overwrites=("a",))
    ops = (
        simple_op("a", Phase.FORWARD, [], ["a"], 1),
        Op("b", Phase.FORWARD, ("b",), (in_place,)),
    )
    graph = Graph("two", (Value("a", 4), Value("b", 4)), ops, ("b",))
    with pytest.raises(NotApplicable, match="op 'b' overwrites what it reads"):
        Anytime().plan(Problem(graph, 3))


def test_enough_memory() -> None:
    graph = random_graph(6, 4)
    for budget in (None, 10**12):
        solution = Anytime().plan(Problem(graph, budget))
        assert solution.bound_of == "any"
        assert solution.bound == cost_of(graph, solution)


def test_zeros_and_huge_ranges() -> None:
    sizes = [4, 10**11, 0, 3 * 10**10, 7, 10**11, 10**10, 12]
    for cost in (0, 1e15):
        ops = tuple(
            simple_op(f"v{i}", Phase.FORWARD, [f"v{i - 1}"] if i else [], [f"v{i}"], cost)
            for i in range(len(sizes))
        )
        values = tuple(Value(f"v{i}", size) for i, size in enumerate(sizes))
        graph = with_backward(Graph("odd", values, ops, ("v7",)))
        most = Space.full(graph).everything().trace.peak_bytes
        floor = graph.floor_bytes()
        assert floor < most
        solution = solved(graph, (floor + most) // 2)
        assert solution.bound == pytest.approx(cost_of(graph, solution))


@pytest.mark.parametrize("seed", range(6))
def test_smallest_peak(seed: int) -> None:
    graph = random_dag(seed, count=5)
    leanest = min(peak for _, peak in brute_force(graph))
    solution = Anytime(minimise="peak").plan(Problem(graph, time_limit=10))
    assert simulate(graph, solution.plan).peak_bytes == leanest
    assert solution.details["peak_bound_bytes"] <= leanest


def vgg16() -> Graph:
    """VGG-16 layer by layer, as the paper has it."""
    return layers("vgg16", merged=True, batch_size=2)


@pytest.mark.parametrize(
    ("graph", "share"),
    [(unit_chain(6), 0.2), (vgg16, 0.7), (vgg16, 0.1)],
    ids=["chain", "vgg16", "vgg16 lean"],
)
def test_ours_and_the_programs_agree(graph: Graph | Callable[[], Graph], share: float) -> None:
    """Ours, and both forms of (9), prove the same optimum."""
    graph = graph() if callable(graph) else graph
    floor, most = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    budget = int(floor + share * (most - floor))
    costs = []
    planners = (Anytime(gap=0.0), CheckmateIlp(gap=0.0), CheckmateIlp("paper", gap=0.0))
    for planner in planners:
        solution = solved(graph, budget, planner)
        costs.append(cost_of(graph, solution))
        assert solution.bound == pytest.approx(costs[-1])
    assert costs[1:] == pytest.approx(costs[:1] * 2)
    assert costs[0] > simulate(graph, program_order(graph)).cost


@pytest.mark.parametrize(("option", "value"), [("minimise", "time"), ("gap", 1), ("threads", 3)])
def test_options(option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"strategy.{option} is {value!r}"):
        Anytime(**{option: value})


def test_interrupted() -> None:
    graph = unit_chain(20)
    text = []

    def interrupt(words: str) -> None:
        text.append(words)
        if len(text) == 2:
            signal.raise_signal(signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    solution = Anytime().plan(Problem(graph, 7, report=interrupt))
    assert solution.details["interrupted"]
    assert simulate(graph, solution.plan).peak_bytes <= 7
    assert "gap" in text[0]
    assert signal.getsignal(signal.SIGINT) is before


def test_a_small_graph_where_cheap_strategies_have_no_plan() -> None:
    """U-Net's layers at 0.42: annealing has a plan long before the program of (9) has one."""
    options = {"batch_size": 2, "resolution": "32x48"}
    graph = layers("unet", merged=True, **options)
    everything = simulate(graph, program_order(graph))
    budget = int(0.42 * everything.peak_bytes)
    with pytest.raises(Infeasible):
        Dtr().plan(Problem(graph, budget))
    report = until(1.6 * everything.cost)
    found = Anytime().plan(Problem(graph, budget, time_limit=AMPLE, report=report))
    assert found.plan is not None
    trace = simulate(graph, found.plan)
    assert trace.peak_bytes <= budget
    assert trace.cost < 1.7 * everything.cost
