"""The default planning of the ``torch.compile`` backend stops when the next second cannot pay."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pytest

from rematbench.base.errors import Infeasible
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.planning import Problem, Solution, Traits
from rematbench.graphs.simulate import simulate
from rematbench.training.compiled.options import read_options
from rematbench.training.compiled.patience import FIRST, GAP, SHORT, WIDE, patiently

GRAPH = unit_chain(6)
ONCE = program_order(GRAPH)
CODES = ONCE.codes(GRAPH)
TWICE = Plan.of_computes(GRAPH, [c for c in CODES[CODES >= 0].tolist() for _ in range(2)])


@dataclass
class Answers:
    """Gives one answer after another, the last one again and again."""

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    answers: Sequence[Solution | Infeasible]
    asked: list[Problem] = field(default_factory=list)

    def plan(self, problem: Problem) -> Solution:
        answer = self.answers[min(len(self.asked), len(self.answers) - 1)]
        self.asked.append(problem)
        if isinstance(answer, Infeasible):
            raise answer
        return answer


def seconds(strategy: Answers) -> list[float]:
    return [problem.time_limit for problem in strategy.asked]


def test_stops_at_a_small_gap() -> None:
    cost = simulate(GRAPH, ONCE).cost
    strategy = Answers([Solution(ONCE, cost * (1 - GAP / 2))])
    assert patiently(strategy, Problem(GRAPH, 10)).plan is ONCE
    assert seconds(strategy) == [FIRST]


def test_stops_when_as_much_time_again_improves_nothing() -> None:
    cost = simulate(GRAPH, ONCE).cost
    strategy = Answers([Solution(ONCE, cost * (1 - WIDE / 2))])
    assert patiently(strategy, Problem(GRAPH, 10)).plan is ONCE
    assert seconds(strategy) == [FIRST, 2 * FIRST]


def test_a_short_attempt_proves_nothing_while_the_gap_is_wide() -> None:
    """Beside other work one of a second found nothing, the next a plan that is 3 points better."""
    cost = simulate(GRAPH, ONCE).cost
    wide = Solution(TWICE, cost * (1 - 2 * WIDE))
    strategy = Answers([wide, wide, Solution(ONCE, cost)])
    assert patiently(strategy, Problem(GRAPH, 10)).plan is ONCE
    assert seconds(strategy) == [FIRST, 2 * FIRST, 4 * FIRST]
    assert 4 * FIRST >= SHORT
    for each in (wide, Solution(TWICE, None)):  # without a bound nobody knows the gap
        strategy = Answers([each])
        assert patiently(strategy, Problem(GRAPH, 10)).plan is TWICE
        assert seconds(strategy) == [FIRST, 2 * FIRST, 4 * FIRST]


def test_goes_on_while_it_improves_and_keeps_the_best() -> None:
    strategy = Answers([Solution(TWICE, 0.0), Solution(ONCE, 0.0), Solution(TWICE, 0.0)])
    assert patiently(strategy, Problem(GRAPH, 10)).plan is ONCE
    assert seconds(strategy) == [FIRST, 2 * FIRST, 4 * FIRST]
    assert [problem.warm_starts for problem in strategy.asked] == [(), (TWICE,), (ONCE,)]


def test_looks_longer_where_there_was_no_time_for_a_plan() -> None:
    strategy = Answers([Infeasible("no time"), Infeasible("no time"), Solution(ONCE, 1e9)])
    assert patiently(strategy, Problem(GRAPH, 10)).plan is ONCE
    assert len(strategy.asked) == 3


def test_believes_a_proof() -> None:
    strategy = Answers([Infeasible("never", proven=True)])
    with pytest.raises(Infeasible, match="never"):
        patiently(strategy, Problem(GRAPH, 1))
    assert len(strategy.asked) == 1


def test_time_limit_holds() -> None:
    strategy = Answers([Solution(TWICE, 0.0)])
    patiently(strategy, Problem(GRAPH, 10, time_limit=FIRST / 10))
    assert all(each <= FIRST / 10 for each in seconds(strategy))


def test_is_the_default_of_the_backend_alone() -> None:
    """Who gives an object asks for what it does."""
    assert read_options({"budget": 0.5}).patient
    assert read_options({"budget": 0.5, "strategy": "anytime"}).patient
    assert not read_options({"budget": 0.5, "strategy": "linearized_greedy"}).patient
    assert not read_options({"budget": 0.5, "strategy": Answers([])}).patient
