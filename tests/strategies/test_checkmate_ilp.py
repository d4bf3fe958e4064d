"""Problem (9), with memory rows on demand: the printed program's optima, and nothing of ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from enough import AMPLE
from test_checkmate_paper import cost_or_none, random_dag

from rematbench.base.errors import ConfigError, Infeasible, Stopped
from rematbench.engines.intervals.improve import Improver
from rematbench.engines.lp.solver import Solver
from rematbench.engines.stages import search
from rematbench.graphs.builders.synthetic import random_graph, unit_chain
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.checkmate import ilp
from rematbench.strategies.checkmate.ilp import CheckmateIlp
from rematbench.strategies.dtr.planner import Dtr


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_that_of_the_printed_program(seed: int) -> None:
    graph = random_dag(seed) if seed % 2 else random_graph(4, seed, edges_per_op=1.8)
    floor, most = graph.floor_bytes(), simulate(graph, program_order(graph)).peak_bytes
    for share in (0.2, 0.5, 0.8):
        budget = int(floor + share * (most - floor))
        printed = cost_or_none(graph, budget)
        problem = Problem(graph, budget, time_limit=AMPLE)
        if printed is None:
            with pytest.raises(Infeasible) as caught:
                CheckmateIlp(gap=0.0).plan(problem)
            assert caught.value.proven
            continue
        found = CheckmateIlp(gap=0.0).plan(problem)
        trace = simulate(graph, found.plan)
        assert trace.peak_bytes <= budget
        assert trace.cost == pytest.approx(printed)
        assert found.bound == pytest.approx(printed)
        assert found.variant == "rows"


def test_nothing_of_ours_takes_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """No local search, no intervals, no plan of another strategy."""

    def refused(*arguments: object, **options: object) -> None:
        pytest.fail("checkmate_ilp uses our own search")

    monkeypatch.setattr(search, "search", refused)
    monkeypatch.setattr(Improver, "__init__", refused)
    monkeypatch.setattr(Dtr, "plan", refused)
    graph = unit_chain(12)
    found = CheckmateIlp().plan(Problem(graph, 8, time_limit=AMPLE))
    assert simulate(graph, found.plan).peak_bytes <= 8
    seconds = [second for second, *_ in found.details["incumbents"]]
    assert seconds == sorted(seconds)
    assert found.details["columns"] > 0


def test_a_program_that_is_too_large_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ilp, "MOST_COLUMNS", 1_000)
    with pytest.raises(Stopped, match=r"\(9\) has 3,660 columns for 61 ops") as caught:
        CheckmateIlp().plan(Problem(unit_chain(30), 20))
    assert not caught.value.proven


def test_out_of_time_it_says_how_large_the_program_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Solver, "run", lambda *_: None)  # as when HiGHS does not come back
    with pytest.raises(Stopped, match=r"[\d,]+ rows and [\d,]+ columns"):
        CheckmateIlp().plan(Problem(unit_chain(80), 20))


def test_the_roundings_plan_is_there_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # seconds are then the processor's
    graph = random_graph(40, 1)
    peak = simulate(graph, program_order(graph)).peak_bytes
    found = CheckmateIlp(gap=0.0).plan(Problem(graph, int(0.6 * peak), time_limit=1.5))
    costs = [cost for _, cost, _ in found.details["incumbents"] if cost is not None]
    assert costs == sorted(costs, reverse=True)
    assert found.bound <= simulate(graph, found.plan).cost


def test_without_a_budget_nothing_is_solved() -> None:
    found = CheckmateIlp().plan(Problem(unit_chain(5), None))
    assert (found.solver, found.bound_of) == (None, "any")


@pytest.mark.parametrize(("option", "value"), [("variant", "fast"), ("gap", 1)])
def test_options(option: str, value: object) -> None:
    with pytest.raises(ConfigError, match=f"strategy.{option} is {value!r}"):
        CheckmateIlp(**{option: value})


@pytest.mark.parametrize("small", [1, 2, 3])
@pytest.mark.parametrize("over", [0, 1, 2])
def test_values_a_million_times_smaller_than_others_count(small: int, over: int) -> None:
    """Rows on demand leave nothing out: every byte of (9)'s memory counts."""
    chain = unit_chain(6)
    sizes = (1 if i % 4 == small else 10**6 * v.bytes for i, v in enumerate(chain.values))
    values = tuple(replace(v, bytes=n) for v, n in zip(chain.values, sizes, strict=True))
    graph, costs = replace(chain, values=values), []
    for most in (3, 4, 5, 6):
        problem = Problem(graph, most * 10**6 + over, time_limit=20.0)
        found = CheckmateIlp(gap=0.0).plan(problem)
        trace = simulate(graph, found.plan)
        assert trace.peak_bytes <= problem.budget
        assert found.bound is not None
        assert trace.cost - 1 <= found.bound <= trace.cost  # HiGHS may not tell a byte of 4 MB
        try:
            printed = CheckmateIlp(gap=0.0, variant="paper").plan(problem)
        except Infeasible:  # its solution is a byte too large
            continue
        assert trace.cost <= simulate(graph, printed.plan).cost
        costs.append(trace.cost)
    assert costs == sorted(costs, reverse=True)
