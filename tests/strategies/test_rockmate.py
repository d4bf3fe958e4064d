"""rockmate: its chain program against brute force, its blocks' figures against the simulator."""

from __future__ import annotations

from functools import cache
from math import inf

import numpy as np
import pytest
from executed import check_executed

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable, Stopped
from rematbench.engines.intervals.improve import Improver
from rematbench.engines.stages.search import StageSearch
from rematbench.graphs.builders.synthetic import random_graph, unit_chain, with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem
from rematbench.strategies.chain_dp import build as build_chain, segments_of
from rematbench.strategies.rockmate import Rockmate, planner
from rematbench.strategies.rockmate.blocks import Stage, block_of
from rematbench.strategies.rockmate.options import (
    Effort,
    RunOption,
    measured,
    options_of,
    undominated,
)
from rematbench.strategies.rockmate.table import Choices


def network(blocks: int = 3, seed: int | None = None) -> Graph:
    """Blocks of a wide branch that is added to their input; with a seed, each of its own sizes."""
    random = np.random.default_rng(seed)

    def size(usual: int) -> int:
        return usual if seed is None else int(random.integers(1, 2 * usual))

    values, ops, last = [Value("x", 4, resident=True)], [], "x"
    for i in range(blocks):
        names = [f"wide{i}", f"act{i}", f"thin{i}", f"sum{i}"]
        reads = [[last], names[:1], names[1:2], [last, names[2]]]
        costs = [size(6), 1, size(6), 1]
        sizes = [size(12), size(12), size(4), 4]
        for name, read, cost, each in zip(names, reads, costs, sizes, strict=True):
            ops.append(simple_op(name, Phase.FORWARD, read, [name], cost))
            values.append(Value(name, each))
        last = names[-1]
    return with_backward(Graph(f"blocks{blocks}", tuple(values), tuple(ops), (last,)))


def peak_of(graph: Graph) -> int:
    return simulate(graph, program_order(graph)).peak_bytes


def keep_all(graph: Graph) -> tuple[Choices, object]:
    """A chain whose stages have the option that chain_dp gives them."""
    chain = segments_of(graph, 50).chain
    options = [
        [] if s == len(chain) - 1 else [
            RunOption((), (), int(chain.kept[s]), int(chain.kept_peak[s]), int(chain.back_peak[s]),
                   float(chain.kept_time[s] + chain.back_time[s]))
        ]
        for s in range(len(chain))
    ]  # fmt: skip
    return Choices.of(chain, options), chain


@pytest.mark.parametrize("seed", range(4))
def test_with_the_stages_own_option_it_is_rotors_program(seed: int) -> None:
    choices, chain = keep_all(network(4, seed))
    mine = build_chain(choices.chain, choices.ample, options=choices.options)
    rotors = build_chain(chain, choices.ample)  # type: ignore[arg-type]
    assert rotors is not None
    for ours, theirs in zip(mine.steps(), rotors.steps(), strict=True):
        assert ours.tolist() == pytest.approx(theirs.tolist())


def least_time(choices: Choices, memory: int) -> float:
    """The recurrence, word by word."""
    chain, n = choices.chain, len(choices.chain)

    @cache
    def best(s: int, t: int, m: int) -> float:
        g, found = int(chain.gradient[t]), inf
        if s == t and m >= max(g + int(chain.base_peak[s]), int(chain.back_peak[s])):
            found = float(chain.base_time[s] + chain.back_time[s])
        for o in range(int(choices.options.first[s]), int(choices.options.first[s + 1])):
            if m >= max(
                g + int(choices.options.forward_peak[o]), int(choices.options.back_peak[o])
            ):
                rest = 0.0 if s == t else best(s + 1, t, m - int(choices.options.kept[o]))
                found = min(found, float(choices.options.time[o]) + rest)
        need, forward = g + int(chain.plain_peak[s]), 0.0
        for c in range(s + 1, t + 1):
            if c - 1 > s:
                need = max(need, g + int(chain.moved_peak[c - 1]))
            forward += float(chain.plain_time[c - 1])
            if m >= need:
                rest = best(c, t, m - int(chain.output[c - 1])) + best(s, c - 1, m)
                found = min(found, forward + rest)
        return found

    return best(0, n - 1, memory)


@pytest.mark.parametrize("seed", range(6))
def test_the_table_is_the_recurrence_and_schedules_are_as_long(seed: int) -> None:
    random = np.random.default_rng(seed)
    _, chain = keep_all(network(3, seed))
    options = [
        [
            RunOption((), (), *random.integers(0, 30, 3).tolist(), float(random.integers(5, 60)))
            for _ in range(int(random.integers(0, 4)))
        ]
        for _ in range(len(chain))  # type: ignore[arg-type]
    ]
    choices = Choices.of(chain, options)  # type: ignore[arg-type]
    table = build_chain(choices.chain, choices.ample, options=choices.options)
    for memory in range(0, choices.ample, 3):
        found = table.time_within(memory)
        assert (inf if found is None else found) == pytest.approx(least_time(choices, memory))
        if found is not None:
            assert spent(choices, table.schedule(memory), options) == pytest.approx(found)


def spent(choices: Choices, schedule: object, options: list[list[RunOption]]) -> float:
    total, chain = 0.0, choices.chain
    for kind, stage, number in schedule:  # type: ignore[attr-defined]
        if kind == "plain":
            total += float(chain.plain_time[stage])
        elif kind == "base":
            total += float(chain.base_time[stage])
        elif number < 0:
            total += float(chain.back_time[stage])
        elif kind == "keep":
            total += options[stage][number].time
    return total


def test_options_are_what_the_simulator_says() -> None:
    parts = segments_of(network(3), 50)
    stage = max(range(len(parts.forward) - 1), key=lambda s: len(parts.forward[s]))
    block = block_of(parts, stage)
    everything = measured(block, program_order(block.graph))
    assert everything.kept == int(parts.chain.kept[stage])
    assert everything.time == float(parts.chain.kept_time[stage] + parts.chain.back_time[stage])
    options, _ = options_of(block, Effort(5, 3, 1e-4, 0), inf)
    assert undominated(options) == options
    assert len(options) > 1
    assert min(each.kept for each in options) < everything.kept
    for option in options:
        assert option.time >= everything.time
        assert set(range(len(block.ops))) - {block.graph.loss_index} == {
            *option.forward,
            *option.back,
        }


@pytest.mark.parametrize("seed", [None, *range(3)])
def test_plans_stay_within_what_was_planned(seed: int | None) -> None:
    graph = network(4, seed)
    for share in (0.9, 0.65):
        found = Rockmate().plan(Problem(graph, int(share * peak_of(graph))))
        assert found.plan is not None
        trace = simulate(graph, found.plan)
        assert trace.peak_bytes <= found.details["planned_bytes"]
        assert trace.cost == pytest.approx(found.objective)


def test_the_smallest_peak_is_one_that_it_meets() -> None:
    graph = network(4, 2)
    with pytest.raises(Infeasible) as caught:
        Rockmate().plan(Problem(graph, int(0.6 * peak_of(graph))))
    smallest = caught.value.smallest_peak_found
    assert smallest is not None
    found = Rockmate().plan(Problem(graph, smallest))
    assert found.plan is not None
    assert simulate(graph, found.plan).peak_bytes <= smallest


def test_equal_blocks_are_solved_once() -> None:
    found = Rockmate().plan(Problem(network(8), int(0.6 * peak_of(network(8)))))
    assert found.details["stages"] > 10
    assert found.details["blocks_solved"] < 6


@pytest.mark.parametrize("seed", range(3))
def test_between_the_bound_and_whole_stages(seed: int) -> None:
    """No plan is cheaper than the proven optimum; options never cost more than whole stages."""
    graph = network(4, seed)
    budget = int(0.7 * peak_of(graph))
    found = Rockmate(gap=0.0).plan(Problem(graph, budget))
    assert found.plan is not None
    exact = Anytime().plan(Problem(graph, budget, 4))
    assert exact.bound is not None
    assert simulate(graph, found.plan).cost >= exact.bound * (1 - 1e-9)
    parts = segments_of(graph, 50)
    room = budget - parts.fixed_bytes
    whole = build_chain(parts.chain, room)
    assert whole is not None
    rotors = whole.time_within(room)
    assert rotors is not None
    assert simulate(graph, found.plan).cost <= rotors + 1e-9


def test_what_follows_a_block_runs_once() -> None:
    """It costs next to nothing in a block's graph, where a plan might compute it again."""
    values, ops, last = [Value("x", 5, resident=True)], [], "x"
    for i in range(10):
        names = [f"a{i}", f"b{i}", f"c{i}"]
        reads = [[last], names[:1], [names[1], last]]
        for name, read, cost, size in zip(names, reads, (3, 1, 2), (10, 20, 10), strict=True):
            ops.append(simple_op(name, Phase.FORWARD, read, [name], cost))
            values.append(Value(name, size))
        last = names[-1]
    graph = with_backward(Graph("residual", tuple(values), tuple(ops), (last,)))
    budget = int(0.4 * peak_of(graph))
    found = Rockmate().plan(Problem(graph, budget))
    assert found.plan is not None
    assert simulate(graph, found.plan).peak_bytes <= budget


def test_what_it_does_not_apply_to() -> None:
    forward = Graph(
        "forward", (Value("a", 1),), (simple_op("a", Phase.FORWARD, [], ["a"], 1),), ("a",)
    )
    with pytest.raises(NotApplicable, match="no loss op"):
        Rockmate().plan(Problem(forward))
    with pytest.raises(NotApplicable, match="one stage"):
        Rockmate().plan(Problem(unit_chain(1)))


def test_infeasible_tells_the_smallest_peak() -> None:
    with pytest.raises(Infeasible) as caught:
        Rockmate().plan(Problem(unit_chain(8), 2))
    assert caught.value.smallest_peak_found is not None
    assert caught.value.smallest_peak_found > 2


@pytest.mark.parametrize("seed", range(4))
def test_any_graph_has_a_plan_or_a_reason(seed: int) -> None:
    graph = random_graph(12, seed)
    try:
        found = Rockmate().plan(Problem(graph, int(0.8 * peak_of(graph))))
    except (Infeasible, NotApplicable):
        return
    assert found.plan is not None
    assert simulate(graph, found.plan).peak_bytes <= 0.8 * peak_of(graph)


def test_later_rounds_never_make_a_plan_dearer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks that find nothing more in longer rounds: the first round's plan is the answer."""
    seen: list[object] = []

    def worse_and_worse(
        block: Stage, effort: Effort, deadline: float
    ) -> tuple[list[RunOption], bool]:
        again = seen.count(block.shape)
        seen.append(block.shape)
        found, _ = options_of(block, effort, deadline)
        return found[:1] if again else found, again == 2

    graph, handed = unit_chain(16), list[float]()
    monkeypatch.setattr(planner, "options_of", worse_and_worse)
    see = lambda found: handed.append(simulate(graph, found.plan).cost)  # noqa: E731
    best = Rockmate().plan(Problem(graph, 8, time_limit=60.0, hand_over=see))
    assert len(seen) == 3 * len(set(seen))
    assert handed == sorted(handed, reverse=True)
    assert simulate(graph, best.plan).cost == handed[-1]


def test_time_that_ends_without_a_plan_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def late(block: Stage, effort: Effort, deadline: float) -> tuple[list[RunOption], bool]:
        return options_of(block, effort, deadline)[0], False

    monkeypatch.setattr(planner, "options_of", late)
    with pytest.raises(Stopped, match="give more time_limit"):
        Rockmate().plan(Problem(unit_chain(8), 2, time_limit=0.5))


def test_nothing_of_ours_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*arguments: object, **options: object) -> None:
        pytest.fail("rockmate uses our own search")

    monkeypatch.setattr(StageSearch, "__init__", refused)
    monkeypatch.setattr(Improver, "__init__", refused)
    graph = unit_chain(12)
    assert simulate(graph, Rockmate().plan(Problem(graph, 8)).plan).peak_bytes <= 8


@pytest.mark.parametrize("options", [{"staying": 0}, {"peaks": True}, {"slots": 5}, {"gap": -1}])
def test_options_out_of_range(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="strategy"):
        Rockmate(**options)  # type: ignore[arg-type]


def test_executed() -> None:
    check_executed(Rockmate(staying=3, peaks=2))
