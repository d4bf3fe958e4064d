"""chain_dp: makespans equal to brute force over persistent schedules, and plans that fit."""

from __future__ import annotations

import heapq
import json
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rematbench import validator
from rematbench.base.errors import ConfigError, Infeasible, NotApplicable
from rematbench.engines.chain.chain import chain_of
from rematbench.graphs.builders.synthetic import unit_chain, with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem, Strategy
from rematbench.strategies.chain_dp import ChainDp, build, segments_of, solve_chain
from rematbench.strategies.chen import ApGreedy, ApSqrt, ChenGreedy, ChenSqrt
from rematbench.strategies.revolve import ApRevolve, Revolve
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

CASES = Path(__file__).parents[1] / "data" / "golden" / "rotor" / "cases.json"
Case = dict[str, Any]


def test_golden_cases() -> None:
    cases = json.loads(CASES.read_text())["cases"]
    assert len(cases) == 40
    for case in cases:
        assert solve_chain(case) == case["makespan"], case["id"]
        assert solve_chain(case, "published") == case["published_makespan"], case["id"]
        chain, limit = chain_of(case)
        leanest = build(chain, 10**6, least=True)
        assert leanest is not None
        assert int(leanest.steps()[0][0]) + chain.input_bytes == case["smallest_limit"]
        table = build(chain, limit)
        if table is not None and case["makespan"] is not None:
            assert replay(case, [*table.schedule(limit)]) == case["makespan"]


def make_case(length: int, seed: int) -> Case:
    random = np.random.default_rng(seed)

    def draw(most: int, n: int = length) -> list[int]:
        return random.integers(0, most, n).tolist()

    a = draw(5, length + 1)
    case = {"u_f": draw(6), "u_b": draw(6), "a": a, "o_f": draw(4), "o_b": draw(4)}
    case["abar"] = [x + y for x, y in zip(a[1:], draw(5), strict=True)]
    return case | {"loss_time": 1, "loss_overhead": int(random.integers(0, 4)), "limit": 0}


# States of a chain: the gradient that is live (L + 1 before the loss); which inputs are held
# plain, which stages are held whole, and which plain inputs a later backward pass waits for.
State = tuple[int, frozenset[int], frozenset[int], frozenset[int]]


def held(case: Case, state: State) -> int:
    gradient, plain, whole, _ = state
    size = sum(case["a"][i] for i in plain) + sum(case["abar"][i - 1] for i in whole)
    return int(size + (case["a"][gradient] if gradient <= len(case["u_f"]) else 0))


def moves(case: Case, state: State) -> list[tuple[str, int, int, State, int]]:
    """(operation, stage, time, state after it, memory while it runs), by the table of the paper."""
    gradient, plain, whole, waiting = state
    length, a = len(case["u_f"]), case["a"]
    found = []
    memory = held(case, state)
    for stage in range(1, length + 1):
        if stage - 1 not in plain | whole or stage in plain | whole or stage > gradient:
            continue
        time, room = case["u_f"][stage - 1], case["o_f"][stage - 1] + memory
        needed = waiting | ({stage - 1} & plain)
        after = (gradient, plain, whole | {stage}, needed)
        found.append(("all", stage, time, after, room + case["abar"][stage - 1]))
        after = (gradient, plain | {stage}, whole, needed)
        found.append(("ck", stage, time, after, room + a[stage]))
        if stage - 1 in plain - waiting:
            after = (gradient, plain - {stage - 1} | {stage}, whole, waiting)
            found.append(("empty", stage, time, after, room + a[stage]))
    if gradient == length + 1 and length in plain | whole:
        after = (length, plain - {length}, whole, waiting)
        room = memory + a[length] + case["loss_overhead"]
        found.append(("loss", length + 1, case["loss_time"], after, room))
    if gradient in whole and gradient - 1 in plain | whole:
        after = (gradient - 1, plain - {gradient - 1}, whole - {gradient}, waiting - {gradient - 1})
        room = memory + a[gradient - 1] + case["o_b"][gradient - 1]
        found.append(("back", gradient, case["u_b"][gradient - 1], after, room))
    return found


def brute_force(case: Case, limit: int) -> int | None:
    """The shortest persistent schedule: what a backward pass waits for is not dropped."""
    start: State = (len(case["u_f"]) + 1, frozenset({0}), frozenset(), frozenset({0}))
    tie = count()
    queue: list[tuple[int, int, State]] = [(0, next(tie), start)]
    settled: set[State] = set()
    while queue:
        time, _, state = heapq.heappop(queue)
        if state in settled:
            continue
        settled.add(state)
        if state[0] == 0:
            return time
        for _, _, cost, after, memory in moves(case, state):
            if memory <= limit and after not in settled:
                heapq.heappush(queue, (time + cost, next(tie), after))
    return None


def replay(case: Case, schedule: list[tuple[str, int, int]]) -> int:
    """The time of a schedule, which the table of the paper allows within the case's limit."""
    length = len(case["u_f"])
    state: State = (length + 1, frozenset({0}), frozenset(), frozenset({0}))
    total = 0
    for position, (kind, place, _) in enumerate(schedule):
        name = {"keep": "all", "base": "all", "plain": "ck", "back": "back"}[kind]
        if name == "back" and place == length:
            name = "loss"
        if name == "ck" and place in state[1] - state[3]:
            # Its input goes with it, unless it is read again before it is computed again.
            after = (p for k, p, _ in schedule[position + 1 :] if k != "back")
            if next((p for p in after if p in (place - 1, place)), place - 1) == place - 1:
                name = "empty"
        (move,) = [m for m in moves(case, state) if m[:2] == (name, place + 1)]
        _, _, time, state, memory = move
        assert memory <= case["limit"]
        total += time
    assert state[0] == 0
    return total


@pytest.mark.parametrize("seed", range(40))
def test_equals_brute_force_over_persistent_schedules(seed: int) -> None:
    case = make_case(1 + seed % 4, seed)
    for limit in range(2, 30, 3):
        case["limit"] = limit
        best = brute_force(case, limit)
        assert solve_chain(case) == best, limit
        chain, _ = chain_of(case)
        table = build(chain, limit)
        assert table is not None
        if best is not None:
            assert replay(case, [*table.schedule(limit)]) == best


def test_known_differences_of_the_published_recurrence() -> None:
    # Its makespan of 8 takes 16 bytes; the optimum within 14 is 9.
    unsound = {
        **{"u_f": [1, 1, 1], "u_b": [1, 1, 1], "a": [1, 1, 4, 1], "abar": [3, 4, 4]},
        **{"o_f": [8, 0, 0], "o_b": [0, 0, 0], "limit": 14, "loss_time": 0},
    }
    assert (solve_chain(unsound), solve_chain(unsound, "published")) == (9, 8)
    ones = [1, 1, 1]
    lazy = {"u_f": ones, "u_b": ones, "a": [1, *ones], "abar": [2, 1, 1], "limit": 5}
    lazy |= {"o_f": [0, 0, 0], "o_b": [0, 0, 0]}
    assert solve_chain(lazy) == 9


def test_times_may_be_any_numbers() -> None:
    case = make_case(3, 1) | {"limit": 40, "u_f": [0.5, 0.25, 1]}
    assert solve_chain(case) == pytest.approx(1.75 + sum(case["u_b"]) + 1)
    assert isinstance(solve_chain(case | {"u_f": [1, 2, 3]}), int)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"u_f": None}, "case: u_f is None; give a list of numbers"),
        ({"u_f": []}, "case: u_f is empty; give one stage or more"),
        ({"a": [1]}, "case: a has 1 entries; give 4"),
        ({"u_b": [1, -1, 2]}, "case: u_b has -1; give a finite number, 0 or more"),
        ({"o_f": [1, 0.5, 2]}, "case: o_f has 0.5; give a whole number of bytes"),
        ({"u_f": [1, float("nan"), 2]}, "case: u_f has nan"),
        ({"limit": None}, "case: limit has None"),
        ({"abar": [0, 0, 0], "a": [1, 1, 1, 1]}, "case: abar[0] is below a[1]"),
    ],
)
def test_bad_cases(change: Case, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        solve_chain(make_case(3, 0) | change)
    assert said in str(caught.value)


def test_bad_options() -> None:
    with pytest.raises(ConfigError, match="variant is 'fast'; choose exact or published"):
        solve_chain(make_case(3, 0), "fast")  # type: ignore[arg-type]
    for options in ({"slots": 1}, {"exact_steps": -1}, {"most_stages": 1}, {"slots": 0.5}):
        with pytest.raises(ConfigError, match=f"strategy.{next(iter(options))}="):
            ChainDp(**options)  # type: ignore[arg-type]


def random_chain(length: int, seed: int) -> Graph:
    random = np.random.default_rng(seed)
    names = [f"v{i}" for i in range(length)]
    ops = tuple(
        simple_op(
            name, Phase.FORWARD, [names[i - 1] if i else "x"], [name],
            int(random.integers(1, 10)), int(random.integers(0, 30)),
        )
        for i, name in enumerate(names)
    )  # fmt: skip
    values = (Value("x", 7, resident=True), *(Value(n, int(random.integers(1, 99))) for n in names))
    return with_backward(Graph(f"chain{length}_{seed}", values, ops, (names[-1],)))


def cost(strategy: Strategy, graph: Graph, budget: int) -> float:
    """Of its plan, which keeps within the budget; infinite without one."""
    try:
        plan = strategy.plan(Problem(graph, budget)).plan
    except Infeasible:
        return float("inf")
    assert plan is not None
    trace = simulate(graph, plan)
    assert trace.peak_bytes <= budget
    return trace.cost


GRAPHS = [unit_chain(3), unit_chain(12), unit_chain(25)] + [
    random_chain(n, seed) for n in (4, 8, 15) for seed in range(4)
]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda g: g.name)
def test_never_dearer_than_revolve_or_chen_on_chains(graph: Graph) -> None:
    whole = simulate(graph, program_order(graph)).peak_bytes
    for share in (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1):
        budget = int(share * whole)
        ours = cost(ChainDp(), graph, budget)
        for other in (Revolve(), ChenGreedy(), ChenSqrt()):
            assert ours <= cost(other, graph, budget), (budget, other)


@pytest.mark.parametrize("graph", [unit_chain(6), random_chain(5, 7)], ids=lambda g: g.name)
def test_never_cheaper_than_a_proven_bound(graph: Graph) -> None:
    whole = simulate(graph, program_order(graph)).peak_bytes
    for share in (0.6, 0.8):
        budget = max(int(share * whole), graph.floor_bytes())
        solution = Anytime().plan(Problem(graph, budget, time_limit=1))
        assert solution.bound is not None
        assert cost(ChainDp(), graph, budget) >= solution.bound - 1e-6


def test_ample_memory_recomputes_nothing() -> None:
    for graph in GRAPHS:
        plan = ChainDp().plan(Problem(graph)).plan
        assert plan is not None
        assert simulate(graph, plan).recomputations == 0


def test_units_round_up_and_say_what_they_may_have_lost() -> None:
    graph = random_chain(15, 3)
    budget = int(0.6 * simulate(graph, program_order(graph)).peak_bytes)
    exact = ChainDp().plan(Problem(graph, budget))
    assert exact.details["unit_bytes"] == 1
    assert "rounding_loss_at_most" not in exact.details
    coarse = ChainDp(slots=40, exact_steps=0).plan(Problem(graph, budget))
    assert coarse.details["unit_bytes"] > 1
    assert coarse.details["slots"] in (40, 41, 42)
    assert coarse.details["rounding_loss_at_most"] >= 0
    chain = segments_of(graph, 200).chain
    tables = [build(c, 10**6) for c in (chain.in_units(7, up=False), chain, chain.in_units(7))]
    for memory in range(chain.ample // 4, chain.ample, chain.ample // 9):
        optimistic, true, safe = (
            table.time_within(m) or float("inf")
            for table, m in zip(tables, (-(-memory // 7), memory, memory // 7), strict=True)
            if table is not None
        )
        assert optimistic <= true <= safe


def test_long_chains_are_merged() -> None:
    solution = ChainDp(most_stages=5).plan(Problem(unit_chain(40), 20))
    assert solution.details["stages"] == 5
    assert solution.plan is not None
    assert simulate(unit_chain(40), solution.plan).peak_bytes <= 20


def test_keeping_what_outlives_its_input_helps() -> None:
    graph = random_chain(8, 3)
    budget = int(0.7 * simulate(graph, program_order(graph)).peak_bytes)
    assert cost(ChainDp(), graph, budget) <= cost(ChainDp(retain=False), graph, budget)


def test_small_shared_values_stay() -> None:
    """A mask that every stage reads does not make them one stage."""
    ops = [simple_op("mask", Phase.FORWARD, [], ["mask"], 1)]
    for i in range(8):
        reads = ["mask", f"v{i - 1}"] if i else ["mask"]
        ops.append(simple_op(f"v{i}", Phase.FORWARD, reads, [f"v{i}"], 1))
    values = (Value("mask", 1), *(Value(f"v{i}", 100) for i in range(8)))
    whole = with_backward(Graph("masked", values, tuple(ops), ("v7",)))
    kept = tuple(op for op in whole.ops if op.name != "grad_mask")
    values = tuple(v for v in whole.values if v.name != "grad_mask")
    graph = Graph("masked", values, kept, ("loss", "grad_v0"))
    parts = segments_of(graph, 200)
    assert len(parts.forward) > 5
    assert {graph.values[v].name for v in parts.held} == {"mask"}
    plan = ChainDp().plan(Problem(graph, 700)).plan
    assert plan is not None
    assert simulate(graph, plan).peak_bytes <= 700


def test_what_it_does_not_apply_to() -> None:
    forward = random_chain(3, 0)
    ops = tuple(op for op in forward.ops if op.phase is Phase.FORWARD)
    values = tuple(v for v in forward.values if v.name[0] in "vx")
    with pytest.raises(NotApplicable, match="no loss op"):
        ChainDp().plan(Problem(Graph("forward", values, ops, ("v2",))))
    for graph in (unit_chain(1), with_backward(_two_branches())):
        with pytest.raises(NotApplicable, match=r"one stage.*use kusumoto"):
            ChainDp().plan(Problem(graph))


def _two_branches() -> Graph:
    edges = {"a": ["x"], "b": ["x"], "c": ["a"], "d": ["b"]}
    ops = tuple(simple_op(name, Phase.FORWARD, reads, [name], 1) for name, reads in edges.items())
    values = (Value("x", 1, resident=True), *(Value(name, 10) for name in edges))
    return Graph("branches", values, ops, ("c", "d"))


def test_infeasible_tells_the_smallest_peak() -> None:
    with pytest.raises(Infeasible) as caught:
        ChainDp().plan(Problem(unit_chain(12), 2))
    assert caught.value.smallest_peak_found == 3


@pytest.mark.parametrize("model", ["mobilenet_v1", "resnet32"])
def test_runs_with_the_bits_of_eager_training(model: str) -> None:
    options = {"blocks": 1, "resolution": 32} if model == "resnet32" else {"resolution": 64}
    captured = capture(make_model(model, batch_size=16, **options))
    graph = captured.graph
    budget = int(0.8 * simulate(graph, program_order(graph)).peak_bytes)
    plan = ChainDp().plan(Problem(graph, budget, captured=captured)).plan
    assert plan is not None
    trace = simulate(graph, plan)
    assert trace.recomputations > 0
    for other in (ApRevolve(), ApGreedy(), ApSqrt()):
        assert trace.cost <= cost(other, graph, budget) * (1 + 1e-9)
    found = validator.measure(captured, plan, device="cpu", repeats=1)
    assert found.verdict == "exact"
    assert found.gradient_bitwise
