"""Two-phase rounding, and what it is compared with."""

from __future__ import annotations

import json
from math import inf

import highspy
import numpy as np
import pytest

from rematbench.base.errors import ConfigError, Infeasible, NotApplicable, Stopped
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem, Strategy
from rematbench.strategies.checkmate import fractional
from rematbench.strategies.checkmate.fractional import NAMES, RelaxationName, Relaxed
from rematbench.strategies.checkmate.published.paper_model import PaperModel
from rematbench.strategies.checkmate.rounding import (
    CheckmateRounding,
    is_correct,
    round_at,
    sample,
    two_phase,
)


def test_known_roundings() -> None:
    fractional = np.array([[0.0, 0.5], [0.51, 1.0]])
    assert round_at(fractional, 0.5).tolist() == [[False, False], [True, True]]
    drawn = [sample(fractional, np.random.default_rng(seed)) for seed in range(200)]
    assert np.abs(np.mean(drawn, axis=0) - fractional).max() < 0.1


@pytest.fixture(scope="module")
def solved() -> PaperModel:
    paper = PaperModel(unit_chain(8), 4)
    paper.solve()
    return paper


def test_optimal_s_gives_the_optimum(solved: PaperModel) -> None:
    trace = simulate(solved.graph, two_phase(solved.graph, round_at(solved.matrices()[1], 0.5)))
    assert (trace.cost, trace.peak_bytes) == (26, 4)


def test_correctness_of_both_matrices(solved: PaperModel) -> None:
    computed, kept = (matrix > 0.5 for matrix in solved.matrices())
    assert is_correct(solved.graph, computed, kept)
    for t, i in np.argwhere(computed):  # 26 computes are the least, so that none is spare
        fewer = computed.copy()
        fewer[t, i] = False
        assert not is_correct(solved.graph, fewer, kept)
    assert not is_correct(solved.graph, np.eye(17, dtype=bool), np.zeros((17, 17), dtype=bool))


@pytest.mark.parametrize("rounding", ["deterministic", "randomized"])
def test_search(rounding: str) -> None:
    graph, budget = unit_chain(8), 5
    strategy = CheckmateRounding(rounding, samples=20)
    assert isinstance(strategy, Strategy)
    solution = strategy.plan(Problem(graph, budget))
    trace, facts = simulate(graph, solution.plan), solution.details
    assert trace.peak_bytes <= budget
    assert solution.bound_of == "9"
    assert solution.bound <= trace.cost == solution.objective
    assert facts["ratio_to_bound"] == pytest.approx(trace.cost / solution.bound)
    assert facts["tried"] == len(facts["curve"])
    assert 0 < facts["feasible_share"] == facts["feasible"] / facts["tried"] < 1
    assert trace.cost == min(p["cost"] for p in facts["curve"] if p["peak_bytes"] <= budget)
    costs = [cost for _, cost in facts["relaxation_costs"]]
    assert costs == sorted(costs)
    json.dumps(facts, allow_nan=False)


def test_setting_of_the_paper_is_part_of_the_search() -> None:
    problem = Problem(unit_chain(8), 6)
    alone = CheckmateRounding(epsilon=0.1, threshold=0.5).plan(problem)
    assert alone.details["tried"] == 1
    assert (alone.details["epsilon"], alone.details["threshold"]) == (0.1, 0.5)
    assert alone.details["paper_setting"]["feasible"]
    searched = CheckmateRounding().plan(problem)
    assert searched.objective <= alone.objective
    assert searched.bound == pytest.approx(alone.bound)  # of the whole budget, not of 0.9 of it


@pytest.mark.parametrize("seed", range(3))
def test_random_graphs(seed: int) -> None:
    graph = random_graph(6, seed)
    budget = int(0.8 * simulate(graph, program_order(graph)).peak_bytes)
    try:
        solution = CheckmateRounding().plan(Problem(graph, budget))
    except Infeasible:
        return
    trace = simulate(graph, solution.plan)
    assert trace.peak_bytes <= budget
    assert solution.bound <= trace.cost + 1e-6


def test_samples_depend_on_the_seed_only() -> None:
    strategy = CheckmateRounding("randomized", epsilon=0.1, samples=10)
    first, second, other = (
        strategy.plan(Problem(unit_chain(6), 5, seed=seed)).details["curve"] for seed in (1, 1, 2)
    )
    assert first == second != other


def test_naive_rounding_is_rarely_a_plan() -> None:
    problem = Problem(unit_chain(8), 4)
    with pytest.raises(Infeasible, match=r"none of 300 roundings satisfies \(1b\) and \(1c\)"):
        CheckmateRounding("randomized", epsilon=0.1, samples=300, naive=True).plan(problem)
    solution = CheckmateRounding(naive=True).plan(Problem(unit_chain(8), 10))
    assert solution.variant == "naive deterministic"
    assert solution.objective == 17


def test_infeasible() -> None:
    with pytest.raises(Infeasible) as caught:
        CheckmateRounding().plan(Problem(unit_chain(8), 2))
    assert caught.value.proven
    strategy = CheckmateRounding(relaxation="printed", epsilon=0.0, threshold=0.05)
    with pytest.raises(Infeasible, match="leanest of 1 plans") as caught:
        strategy.plan(Problem(unit_chain(8), 3))
    assert not caught.value.proven
    with pytest.raises(Infeasible, match=r"relaxation at epsilon 0.9 has no solution"):
        CheckmateRounding(epsilon=0.9).plan(Problem(unit_chain(8), 6))


@pytest.mark.parametrize("relaxation", NAMES)
def test_no_time(relaxation: RelaxationName) -> None:
    with pytest.raises(Stopped, match=r"found no solution.*give more time_limit"):
        CheckmateRounding(relaxation=relaxation).plan(Problem(unit_chain(8), 4, time_limit=0.0))


def test_stopped_before_it_began_is_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    notset = highspy.HighsModelStatus.kNotset
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda self: notset)
    for relaxation in NAMES:
        with pytest.raises(Stopped, match="found no solution"):
            CheckmateRounding(relaxation=relaxation).plan(Problem(unit_chain(4), 4))


@pytest.mark.parametrize("seed", range(4))
def test_relaxations_bound_the_optimum(seed: int) -> None:
    graph = random_graph(8, seed)
    budget = int(0.85 * simulate(graph, program_order(graph)).peak_bytes)
    strategy = Anytime(gap=0.0, threads=1)
    try:
        optimum = strategy.plan(Problem(graph, budget, time_limit=2.0))
    except Infeasible:
        return
    bounds = {name: make(name, graph, budget).relax(1.0, inf) for name in NAMES}
    cost = simulate(graph, optimum.plan).cost
    assert bounds["printed"] <= bounds["full"] + 1e-6  # liveness without FREE is tighter
    assert bounds["full"] <= bounds["reduced"] + 1e-6 <= bounds["paths"] + 2e-6
    assert bounds["full"] <= cost + 1e-6


def make(name: RelaxationName, graph: Graph, budget: int) -> Relaxed:
    return fractional.relaxation(name, graph, budget, None, 1, 0)


@pytest.mark.parametrize("name", NAMES)
def test_another_budget_gives_what_it_gives_afresh(name: RelaxationName) -> None:
    graph, budget = unit_chain(10), 9
    relaxed = make(name, graph, budget)
    costs = [relaxed.relax(share, inf) for share in (1.0, 7 / 9, 6 / 9)]
    fresh = [make(name, graph, each).relax(1.0, inf) for each in (9, 7, 6)]
    # Path rows stay from one budget to the next, and are not searched to the end.
    assert costs == pytest.approx(fresh, rel=0.02 if name == "paths" else 1e-6)
    assert sorted(costs) == costs


def test_matrices_of_the_reduced_problem_are_schedules_of_all_ops() -> None:
    graph = unit_chain(8)
    for name in NAMES:
        relaxed = make(name, graph, 5)
        relaxed.relax(1.0, inf)
        computed, kept = relaxed.matrices()
        assert computed.shape == kept.shape == (17, 17)
        assert np.all(computed.diagonal() == pytest.approx(1.0))
        assert not np.triu(computed, 1).any()
        assert not np.triu(kept).any()
        later = kept[1:] - kept[:-1] - computed[:-1]
        assert later.max() <= 1e-6  # (1c): what is kept was kept before, or computed


def test_more_ops_than_the_printed_program_takes() -> None:
    graph = unit_chain(110)  # 221 ops
    problem = Problem(graph, 100)
    with pytest.raises(NotApplicable, match=r"at most 200 ops, this graph has 221; use .*=full or"):
        CheckmateRounding(relaxation="printed").plan(problem)
    solution = CheckmateRounding(relaxation="reduced", epsilon=0.1).plan(problem)
    trace = simulate(graph, solution.plan)
    assert solution.bound <= trace.cost
    assert trace.peak_bytes <= 100
    assert solution.bound_of == "F"
    assert solution.variant == "reduced deterministic"
    assert solution.details["rows"] > 0


def test_path_rows_round_to_cheaper_plans() -> None:
    problem = Problem(unit_chain(16), 8)
    plain, paths = (
        CheckmateRounding(relaxation=name).plan(problem).objective for name in ("reduced", "paths")
    )
    assert paths < plain


def test_options() -> None:
    with pytest.raises(ConfigError, match="choose deterministic or randomized"):
        CheckmateRounding("nearest")
    with pytest.raises(ConfigError, match="choose full, reduced, paths or printed"):
        CheckmateRounding(relaxation="paper")
    with pytest.raises(ConfigError, match="epsilon is 1"):
        CheckmateRounding(epsilon=1.0)
    with pytest.raises(ConfigError, match="samples is 0"):
        CheckmateRounding(samples=0)
    with pytest.raises(NotApplicable, match="at most 10 ops"):
        CheckmateRounding(max_ops=10).plan(Problem(unit_chain(8), 4))
    plan = CheckmateRounding().plan(Problem(unit_chain(8))).plan
    assert plan == program_order(unit_chain(8))
