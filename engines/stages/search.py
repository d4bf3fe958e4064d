"""By stages: search, bounds and exact programs, with the best plan always at hand.

First F, then (9), or (9) alone where it is small: schedules by local search, a bound on every plan
from the fullest moments, a bound by the linear relaxation, and mixed-integer programs over ever
smaller groups of stages until the gap closes or time is up.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain
from math import inf
from typing import Any

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.anytime import Progress
from rematbench.engines.intervals.improve import Improver
from rematbench.engines.intervals.memory import profile
from rematbench.engines.intervals.net import start
from rematbench.engines.intervals.planner import IntervalSearch
from rematbench.engines.lp.solver import Outcome
from rematbench.engines.stages.local_search import give_back, repair, search
from rematbench.engines.stages.relaxation import Groups, Relaxation, merged_stages
from rematbench.engines.stages.space import Schedule, Space
from rematbench.graphs.planning import Problem

COLUMNS = (3_000, 10_000, 35_000)
"""Most columns of the programs, from coarse to fine; one is enough where the second is exact."""
LINEAR_SHARE = 0.4
"""Of the time, for linear relaxations."""
PATHS_CLOSE = 0.2
"""Share of the gap that path rows must close to stay."""
FULL_SECONDS = 10.0
"""For (9), once F is done: this, or as long as F took."""
MOMENTS_SECONDS = 20.0
"""At most, for the bound from the fullest moments; it mostly takes a quarter of a second."""
FIRST_SHARE = 0.15
"""Of the time, for first schedules by intervals."""
ALONE = 0.4
"""Of the time, for search before programs, where there is one thread."""
FAR, TIGHT_SECONDS = 1.25, 10.0
"""Times its bound that a schedule costs where memory is so tight that intervals come first; and how
long at most."""
EXACT_TOLERANCE = 1e-6
"""Relative gap at which a cost counts as proven optimal."""

_Search = Iterator[Schedule[Space] | None]


def is_solvable(space: Space) -> bool:
    """Can a program have all stages of a space?"""
    return len(space.stages) * len(space.ops) <= COLUMNS[-1]


class StageSearch:
    """A search for the cheapest schedule within a budget.

    Args:
        problem: a training graph, time limit, seed and whom to tell about improvements.
        budget: in bytes.
        started: by :func:`~rematbench.base.clock.planning_seconds`.
        gap: relative gap that is good enough.
        threads: 1, or 2 to search while HiGHS works.

    Attributes:
        progress: the incumbent's plan, perhaps no schedule of (9), and when what was found.
        best: the cheapest schedule within the budget so far, or None.
        bounds: per space, a proven lower bound of the cost, in the graph's unit; infinite where
            the space has no schedule within the budget.
        every: a bound on every plan, in program order and with the default implementations, and
            ``bound_by``: how it was found; 0 where it was not asked for.
        has_one_way: has every op a single implementation?
    """

    def __init__(
        self, problem: Problem, budget: int, started: float, gap: float, threads: int
    ) -> None:
        self._problem, self._graph = problem, problem.graph
        self._seed, self._threads = problem.seed, threads
        self.budget, self.deadline = budget, started + problem.time_limit
        self._full = Space.late(problem.graph, budget)
        gap = max(gap, EXACT_TOLERANCE)
        self.progress = Progress(
            planning_seconds(), gap, problem.report, hand_over=problem.hand_over
        )
        self.best: Schedule[Space] | None = None
        self.bounds: dict[str, float] = {}
        self.every, self.bound_by = 0.0, ""
        self.has_one_way = {len(op.implementations) for op in problem.graph.ops} == {1}
        self._wants_moments = False
        self._linear_bounds: dict[str, float] = {}
        self._nodes = 0
        self._largest: dict[str, Any] = {}
        self._programs = {"linear_programs": 0, "integer_programs": 0, "solver_runs": 0}
        self._searches: list[_Search] = []
        self._intervals: IntervalSearch | None = None
        self._annealing: list[_Search] = []
        self._is_rescued = False

    def run(self) -> None:
        """First F; then (9), for the bound, and for the plans that only it has."""
        full = self._full
        if self._graph.loss_index is None:  # annealing beats evictions one by one
            self._take_known()
            self._search_on()
            self.improve(full, self.deadline)
            return
        if self._in_one(full):  # so small that F is no faster
            self.improve(full, self.deadline)
            return
        self._wants_moments = True
        reduced = Space.reduced(self._graph)
        is_small = is_solvable(full)
        now = planning_seconds()
        self.improve(reduced, now + (0.75 if is_small else 1.0) * (self.deadline - now))
        now = planning_seconds()
        if self.proven_infeasible:
            return
        if self.best is None:
            self.improve(full, self.deadline)
        elif is_small or self._closed(reduced):
            seconds = max(FULL_SECONDS, now - self.progress.started)
            self.improve(full, min(self.deadline, now + seconds))

    @property
    def proven_infeasible(self) -> bool:
        """Is it certain that (9) has no plan within the budget?"""
        return self.bounds.get("9", 0.0) == inf

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        linear = next(iter(self._linear_bounds.values()), 0.0)
        schedule = self.best if 0 < linear < inf else None
        empty = [space for space, bound in self.bounds.items() if bound == inf]
        every = {"any": self.every} if self.has_one_way else {}
        return {
            **({"no_plan_in": empty} if empty else {}),
            **self._largest,
            **self._programs,
            "nodes": self._nodes,
            **(self._outside() if self.is_outside else self.progress.details()),
            "bounds": {
                space: bound for space, bound in {**self.bounds, **every}.items() if 0 < bound < inf
            },
            "integrality_gap": None if schedule is None else schedule.cost / linear,
        }

    @property
    def is_outside(self) -> bool:
        """Is the incumbent no schedule of (9)?"""
        return self.best is None or self.best.cost > self.progress.cost

    def _outside(self) -> dict[str, Any]:
        """What the search found, without the bounds that are of schedules only."""
        found = self.progress.incumbents
        incumbents = [(at, cost, min(bound, self.every)) for at, cost, bound in found]
        unknown = {"seconds_to_gap_5": None, "seconds_to_gap_2": None}
        return {**self.progress.details(), "incumbents": incumbents, **unknown}

    def improve(self, space: Space, deadline: float) -> None:
        """Look for schedules and bounds in a space until the gap to its bound is closed."""
        begun = planning_seconds()
        self.bounds.setdefault(space.name, max(space.base_cost, self.every))
        self.progress.bound = max(self.progress.bound, space.base_cost)
        random = np.random.default_rng(self._seed)
        if not self._is_rescued:
            local = search(space.everything(), self.budget, random, deadline)
            self._searches = [local, *self._annealing]
            for _ in range(2):  # the first repair, and what can be given back
                self._search_on()
        if not self._is_rescued and self.best is None:
            self._take_known()
            for _ in self._problem.starts:
                self._search_on()
        if self._wants_moments:
            self._wants_moments = False
            self._at_moments(space)
            if self.proven_infeasible:
                return
        if self._intervals is not None and self.progress.cost > FAR * self.bounds[space.name]:
            seconds = min(TIGHT_SECONDS, 0.5 * (deadline - begun))
            self._by_intervals(seconds)
            self._search_until(space, begun + seconds)
        if self._threads == 1:  # nothing searches while programs are solved
            self._by_intervals(FIRST_SHARE * (deadline - begun))
            self._search_until(space, begun + ALONE * (deadline - begun))
        programs = self._linear(space, deadline)
        if not self._closed(space):
            self._by_intervals(FIRST_SHARE * (deadline - planning_seconds()))
        self._integral(space, programs, deadline)
        if self.best is not None:
            self._search_until(space, deadline)

    def _at_moments(self, space: Space) -> None:
        """What memory costs at the fullest moments: no plan costs less."""
        now = planning_seconds()
        left = max(0.0, self.deadline - now)
        starts = self._problem.starts
        problem = Problem(self._graph, self.budget, left, self._seed, starts=starts)
        inner = self._intervals = IntervalSearch(problem, self.budget, now, self.progress.gap)
        inner.deadline = now + min(MOMENTS_SECONDS, left)
        inner.prove(np.asarray(profile(start(inner.net, inner.resident))))
        self.every, self.bound_by = inner.progress.bound, inner.bound_by
        self.bounds[space.name] = max(self.bounds[space.name], self.every)
        if self.every == inf:
            self.bounds["9"] = inf
        else:
            self.progress.raise_bound(self.every, EXACT_TOLERANCE)

    def _search_until(self, space: Space, deadline: float) -> None:
        while planning_seconds() < deadline and not self._closed(space) and self._search_on():
            pass

    def _closed(self, space: Space) -> bool:
        return self.progress.closed(self.bounds[space.name])

    def _search_on(self) -> bool:
        """One step of local search.

        Raises:
            KeyboardInterrupt: somebody interrupted.
        """
        self.progress.rest()
        while self._searches:  # in turns
            searching = self._searches.pop(0)
            for found in searching:
                self._searches.append(searching)
                if found is not None:
                    self._offer(found)
                return True
        return False

    def _take_known(self) -> None:
        """Where local search finds nothing: what cheaper strategies know, improved by intervals."""
        left = self.deadline - planning_seconds()
        starts = self._problem.starts
        problem = Problem(self._graph, self.budget, left, self._seed, starts=starts)
        inner = Improver(problem, self.budget, planning_seconds(), 0.0)
        steps = inner.take_known()
        if not self._wants_moments:  # after which intervals come anyway
            steps = chain(steps, inner.anneal())
        self._searches, self._is_rescued = [self._converted(inner, steps)], True

    def _by_intervals(self, seconds: float) -> None:
        """First what the bound's program keeps, then annealing, in turns with local search; once.

        The first schedules need the solver, and so come before it works on programs of stages.

        Args:
            seconds: for the first schedules.
        """
        inner, self._intervals = self._intervals, None
        if inner is None:
            return
        inner.deadline = planning_seconds() + seconds
        for found in self._converted(inner, inner.first(start(inner.net, inner.resident))):
            if found is not None:
                self._offer(found)
            self.progress.rest()
            if planning_seconds() > inner.deadline:
                break
        if inner.progress.leanest is not None:
            self.progress.see(inner.progress.leanest)
        inner.deadline = self.deadline
        self._annealing = [self._converted(inner, inner.anneal())]
        self._searches += self._annealing

    def _converted(self, inner: Improver, steps: Iterator[None]) -> _Search:
        """What a search by intervals finds, as schedules of all stages.

        A plan may compute an op twice in one stage and be the leaner for it, which a schedule
        cannot: it then stays the incumbent as it is.
        """
        full, cost = self._full, inf
        for _ in steps:
            plan = inner.progress.plan
            if plan is None or inner.progress.cost >= cost:
                yield None
                continue
            cost = inner.progress.cost
            schedule = full.of_plan(plan)
            if schedule is None or schedule.peak > self.budget:
                self.progress.offer(cost, plan)
            yield schedule

    def _idle(self) -> bool:
        return self._search_on() if self._threads > 1 else self.progress.rest()

    def _linear(self, space: Space, deadline: float) -> list[Relaxation]:
        """Lower bounds from linear relaxations, from coarse groups to fine ones."""
        begun = planning_seconds()
        programs: list[Relaxation] = []
        for groups in self._groupings(space):
            now = planning_seconds()
            share = LINEAR_SHARE * (deadline - begun)
            if programs and (self._closed(space) or now > begun + share):
                break
            program = Relaxation(space, self.budget, groups, self._seed)
            self._programs["linear_programs"] += 1
            for outcome in program.linear(now + LINEAR_SHARE * (deadline - now), self._idle):
                self._learn(program, outcome)
                if self._closed(space):
                    break
            else:
                self._paths(program, now + LINEAR_SHARE * (deadline - now))
            programs.append(program)
        linear = [space.base_cost, *(program.bound for program in programs)]
        self._linear_bounds[space.name] = max(linear)
        return programs

    def _paths(self, program: Relaxation, deadline: float) -> None:
        """Path rows, which stay only where they help: they slow the solver down."""
        before = program.bound
        for outcome in program.linear(deadline, self._idle, paths=True):
            self._learn(program, outcome)
        if self.best is not None and before < inf:
            gap = self.best.cost - before
            if program.bound - before < PATHS_CLOSE * gap:
                program.drop_rows()

    def _integral(self, space: Space, programs: list[Relaxation], deadline: float) -> None:
        """Better bounds and schedules from mixed-integer programs."""
        for number, program in enumerate(programs):
            now = planning_seconds()
            if self._closed(space) or now > deadline:
                break
            rounds = program.integral(
                now + (deadline - now) / (len(programs) - number),
                self._idle,
                self.progress.gap / 2,
                best=lambda: None if self.best is None else space.adopt(self.best),
                enough=partial(self._closed, space),
            )
            self._programs["integer_programs"] += 1
            for outcome in rounds:
                self._learn(program, outcome)
                if outcome.x is not None:
                    self._polish(program.decode(outcome.x), deadline)
                if self._closed(space):
                    break

    def _groupings(self, space: Space) -> list[Groups]:
        """Groups to solve with, from coarse to fine."""
        columns = COLUMNS[1:2] if self._in_one(space) else COLUMNS
        return [merged_stages(space, self.budget, each) for each in columns]

    def _in_one(self, space: Space) -> bool:
        """Does a program of middling size have all stages of a space?"""
        return len(merged_stages(space, self.budget, COLUMNS[1])) == len(space.stages)

    def _polish(self, found: Schedule[Space] | None, deadline: float) -> None:
        """Make a schedule out of a solution that may break the budget where groups hide it."""
        if found is None:
            return
        random = np.random.default_rng(self._seed)
        if found.peak > self.budget:
            start = found.space.evaluate(found.keep)
            found = repair(start, self.budget, random, deadline)
        if found.peak <= self.budget:
            self._offer(found)
            found = give_back(found, self.budget, random, deadline)
        self._offer(found)

    def _offer(self, found: Schedule[Space]) -> None:
        self.progress.see(found.peak)
        if found.peak <= self.budget and (self.best is None or found.cost < self.best.cost):
            self.best = found
            self.progress.offer(found.cost, found.plan)

    def _learn(self, program: Relaxation, outcome: Outcome) -> None:
        name = program.space.name
        self._programs["solver_runs"] += 1
        if program.size["nonzeros"] > self._largest.get("nonzeros", -1):
            self._largest = {**program.size, "build_seconds": program.build_seconds}
        self._nodes += outcome.nodes
        self.bounds[name] = max(outcome.bound, self.bounds[name])
        if outcome.bound < inf:
            self.progress.raise_bound(outcome.bound, EXACT_TOLERANCE)
