"""Plans with room for the states of the random generator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from rematbench.base.errors import Infeasible, Stopped
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Problem, Solution, Traits
from rematbench.graphs.simulate import simulate
from rematbench.graphs.states import planned


def drawing_chain() -> Graph:
    """A chain of four forward layers, of which the first two draw random numbers."""
    graph = unit_chain(4)
    ops = tuple(replace(op, random=i < 2) for i, op in enumerate(graph.ops))
    return replace(graph, ops=ops, random_state_bytes=100)


GRAPH = drawing_chain()
BARE = replace(GRAPH, random_state_bytes=0)
FIRST = GRAPH.tables.op_first
PLANS = {
    "twice": Plan.of_computes(GRAPH, FIRST[[0, 1, 2, 3, 4, 0, 1, 2, 3, 5, 6, 7, 8]]),
    "one": Plan.of_computes(GRAPH, FIRST[[0, 1, 2, 3, 4, 0, 2, 3, 5, 6, 7, 8]]),
    "none": Plan.of_computes(GRAPH, FIRST[[0, 1, 2, 3, 4, 2, 3, 5, 6, 7, 8]]),
}
PEAKS = {name: simulate(GRAPH, plan).peak_bytes for name, plan in PLANS.items()}
BUDGET = simulate(BARE, PLANS["twice"]).peak_bytes


@dataclass
class Told:
    """Answers one try after the other."""

    answers: list[Solution | Infeasible]
    asked: list[int | None] = field(default_factory=list)
    traits = Traits("yes", "no", "no")

    def plan(self, problem: Problem) -> Solution:
        assert problem.graph.random_state_bytes == 0
        self.asked.append(problem.budget)
        answer = self.answers[len(self.asked) - 1]
        if isinstance(answer, Infeasible):
            raise answer
        problem.hand_over(answer)
        return answer


def test_peaks_of_the_plans() -> None:
    assert (BUDGET, PEAKS) == (6, {"twice": 303, "one": 203, "none": 6})


def test_it_is_planned_again_for_less() -> None:
    """First for what the plan is above the budget, then for all states, which are 300 bytes."""
    strategy = Told([Solution(PLANS["twice"]), Solution(PLANS["one"]), Solution(PLANS["none"])])
    found = planned(strategy, Problem(GRAPH, 205))
    assert strategy.asked == [205, 107]
    assert found.plan is PLANS["one"]
    strategy = Told([*[Solution(PLANS["one"])] * 2, Solution(PLANS["none"])])
    found = planned(strategy, Problem(GRAPH, 150))
    assert strategy.asked == [150, 97, 44]
    assert found.plan is PLANS["none"]
    strategy = Told([Solution(PLANS["one"]), *[Infeasible("not", 1)] * 2, Solution(PLANS["none"])])
    assert planned(strategy, Problem(GRAPH, 150)).plan is PLANS["none"]
    assert strategy.asked == [150, 97, 1, 1]


def test_a_plan_that_was_handed_over_on_the_way_may_fit() -> None:
    """The cheapest of them."""

    class Improving(Told):
        def plan(self, problem: Problem) -> Solution:
            if not self.asked:
                problem.hand_over(Solution(PLANS["one"], bound=5.0))
                problem.hand_over(Solution(PLANS["none"], bound=6.0))
            return super().plan(problem)

    strategy = Improving([Solution(PLANS["twice"], bound=7.0), *[Infeasible("not", 1)] * 3])
    found = planned(strategy, Problem(GRAPH, 205))
    assert (found.plan, found.bound) == (PLANS["none"], 7.0)


def test_what_holds_for_less_is_not_told_of_the_budget() -> None:
    """Bounds are the first try's; what the later one found in its time, it found later."""
    search: dict[str, Any] = {"bounds": {"9": 7.0}, "incumbents": [[0.5, 9.0, 7.0]]}
    less: dict[str, Any] = {
        **{"bounds": {"9": 8.5}, "no_plan_in": ["F"], "seconds_to_gap_2": 1.0},
        **{"evictions": 3, "incumbents": [[0.25, 12.0, 8.5]]},
    }
    strategy = Told(
        [
            Solution(PLANS["twice"], bound=7.0, bound_of="9", details=search),
            Solution(PLANS["one"], bound=8.5, bound_of="any", details=less),
        ]
    )
    handed: list[Solution] = []
    found = planned(strategy, Problem(GRAPH, 205, hand_over=handed.append))
    assert (found.bound, found.bound_of) == (7.0, "9")
    ((when, cost, bound),) = found.details["incumbents"]
    assert (when >= 0.25, cost, bound) == (True, 12.0, 7.0)
    rest = {name: fact for name, fact in found.details.items() if name != "incumbents"}
    assert rest == {"bounds": {"9": 7.0}, "evictions": 3}
    assert [(each.plan, each.bound) for each in handed] == [(PLANS["one"], 7.0)]


@pytest.mark.parametrize("kind", [Infeasible, Stopped])
def test_no_try_spares_enough(kind: type[Infeasible]) -> None:
    """Of the given budget nothing is proven, and the peak is that of the plan with its states."""
    less = [kind("no plan within 5 bytes", 1, proven=True, details={"no_plan_in": ["9"]})] * 3
    first = Solution(PLANS["twice"], details={"bounds": {"9": 7.0}, "incumbents": []})
    with pytest.raises(kind, match="within 205 bytes, but for 98 bytes of the random") as caught:
        planned(Told([first, *less]), Problem(GRAPH, 205))
    error = caught.value
    assert (type(error), error.proven, error.smallest_peak_found) == (kind, False, 303)
    assert error.details == {"bounds": {"9": 7.0}}


def test_what_fits_and_what_is_not_of_states_is_left_alone() -> None:
    for plan, budget in (("none", 6), ("twice", 2), ("twice", None)):
        strategy = Told([Solution(PLANS[plan])])
        assert planned(strategy, Problem(GRAPH, budget)).plan is PLANS[plan]
        assert strategy.asked == [budget]
