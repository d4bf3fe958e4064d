"""Plans with room for the states of the random generator that their repeated draws need.

No planner knows of these states, some kilobytes each (:attr:`Graph.random_state_bytes`): it plans
for the graph without them. Where they put its plan above the budget, it plans again for a budget
that spares them.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf
from typing import Any

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, Stopped
from rematbench.graphs.planning import Problem, Solution, Strategy
from rematbench.graphs.simulate import Trace, simulate

SHARES = (0.125, 0.0625, 0.0625)
"""Of a planner's time, what is kept for further tries."""
_SEARCHED = ("bounds", "bound_by", "no_plan_in", "incumbents", "ratio_to_bound", "gap")
"""Of ``details``: what a search found out about the budget that it was given."""
_WHEN = "seconds_to_gap_"


def planned(strategy: Strategy, problem: Problem) -> Solution:
    """A strategy's plan, with room for the random generator's states that its own draws need.

    Where the plan is above the budget by them, it is made again for a budget less what it is above,
    until one fits; the last try spares all states that there can be. If none does, the best plan
    that was handed over on the way may. Bounds are of the first try, whose problem is the given one
    without states: they hold.

    Raises:
        NotApplicable, Infeasible: as ``strategy.plan`` does; or no try spares enough.
    """
    graph, budget, limit = problem.graph, problem.budget, problem.time_limit
    states = graph.random_state_bytes * (len(graph.random_ops) + 1)  # one is set aside
    if not graph.random_ops or not states:
        return strategy.plan(problem)
    bare = replace(problem, graph=replace(graph, random_state_bytes=0))
    if budget is None:
        return strategy.plan(bare)
    kept = _Fitting(problem)
    early = replace(bare, time_limit=limit * (1 - sum(SHARES)), hand_over=kept.take)
    first = strategy.plan(early)
    over = kept.excess(first)
    if not 0 < over <= states:
        return first
    kept.answered(first)
    stopped = _try_again(strategy, replace(early, time_limit=limit), kept, over, states)
    if kept.best is not None:
        return kept.best
    raise (Stopped if stopped else Infeasible)(
        f"a plan was found within {budget} bytes, but for {over} bytes of the random generator's "
        "states, which what it draws again needs; none was found that spares them",
        budget + over,
        details={name: fact for name, fact in first.details.items() if name == "bounds"},
    )


def _try_again(strategy: Strategy, bare: Problem, kept: _Fitting, over: int, states: int) -> bool:
    """Plan with more and more bytes to spare, until a plan fits; did time end one of the tries?

    Args:
        over: bytes that the first plan is above the budget.
        states: at most so many bytes are those of all states.
    """
    stopped, spare = False, over
    for number, share in enumerate(SHARES, 1):
        spare = states if number == len(SHARES) else min(spare, states)
        kept.begin()
        budget = max(1, (bare.budget or 0) - spare)
        try:
            again = strategy.plan(replace(bare, budget=budget, time_limit=bare.time_limit * share))
        except Infeasible as error:
            stopped |= isinstance(error, Stopped)
            spare = states
            continue
        kept.take(again)
        if (more := kept.excess(again)) <= 0:
            break
        spare += more
    return stopped


class _Fitting:
    """Solutions that keep to the budget with their states: handed on, and the cheapest is kept.

    Attributes:
        best: that one, or None.
        first: the answer of the first try, once it is there.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem, self._cost = problem, inf
        self._began, self._spent = planning_seconds(), 0.0
        self.best: Solution | None = None
        self.first: Solution | None = None

    def answered(self, first: Solution) -> None:
        """The first try has ended: what it has proven holds for what it handed over, too."""
        self.first = first
        if self.best is not None:
            self.best = replace(self.best, bound=first.bound, bound_of=first.bound_of)

    def begin(self) -> None:
        """Another try begins."""
        self._spent = planning_seconds() - self._began

    def _simulated(self, solution: Solution) -> Trace | None:
        if solution.plan is None:
            return None
        return simulate(self._problem.graph, solution.plan, self._problem.link)

    def excess(self, solution: Solution) -> int:
        """Bytes that a plan is above the budget, with its states; of none 0."""
        trace, budget = self._simulated(solution), self._problem.budget
        return 0 if trace is None or budget is None else trace.peak_bytes - budget

    def take(self, solution: Solution) -> None:
        """A planner hands something over, or answers it."""
        trace = self._simulated(solution)
        if trace is None:
            self._problem.hand_over(solution)
        elif trace.peak_bytes <= (self._problem.budget or 0) and trace.cost < self._cost:
            told = solution if self.first is None else _told(self.first, self._spent, solution)
            self._cost, self.best = trace.cost, told
            self._problem.hand_over(told)


def _told(first: Solution, spent: float, again: Solution) -> Solution:
    """A later try's plan with what is known of the whole budget.

    Args:
        spent: seconds before the later try.
    """
    details: dict[str, Any] = {
        name: found
        for name, found in again.details.items()
        if name not in _SEARCHED and not name.startswith(_WHEN)
    }
    if "bounds" in first.details:
        details["bounds"] = first.details["bounds"]
    if "incumbents" in again.details:
        bound = first.bound or 0.0
        incumbents = again.details["incumbents"]
        details["incumbents"] = [(spent + when, cost, bound) for when, cost, _ in incumbents]
    return replace(again, bound=first.bound, bound_of=first.bound_of, details=details)
