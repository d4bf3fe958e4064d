"""By stages: search, bounds and exact programs, with the best plan always at hand.

First F, then (9), or (9) alone where it is small: schedules by local search, a bound on every plan
from the fullest moments, a bound by the linear relaxation, and mixed-integer programs over ever
smaller groups of stages until the gap closes or time is up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
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
from rematbench.engines.lp.solver import SolverRun
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
SMALL, SMALL_SECONDS = 500, 0.5
"""Entries of a schedule, up to which programs take no time, and search alone comes first for so
long at most."""
FAR, TIGHT_SECONDS = 1.25, 10.0
"""Times its bound that a schedule costs where memory is so tight that intervals come first; and how
long at most."""
EXACT_TOLERANCE = 1e-6
"""Relative gap at which a cost counts as proven optimal."""

Found = Schedule[Space] | float | None
"""What a phase comes to: a schedule, a lower bound of its space's cost, or nothing yet."""
Phase = Callable[["Leg"], Iterator[Found]]


@dataclass(frozen=True)
class Leg:
    """The search of one space.

    Attributes:
        space: where it looks for schedules and bounds.
        begun, deadline: by :func:`~rematbench.base.clock.planning_seconds`.
        programs: its relaxations, from coarse to fine.
    """

    space: Space
    begun: float
    deadline: float
    programs: list[Relaxation] = field(default_factory=list)

    def left(self, share: float) -> float:
        """When a share of what is left of its time will be over."""
        now = planning_seconds()
        return now + share * (self.deadline - now)


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
        self._linear_bound = 0.0  # of the first space
        self._nodes = 0
        self._largest: dict[str, Any] = {}
        self._programs = {"linear_programs": 0, "integer_programs": 0, "solver_runs": 0}
        self._turns: dict[str, Iterator[Found]] = {}  # searches by name, whose turn it is first
        self._intervals: IntervalSearch | None = None  # which knows the fullest moments

    def run(self) -> None:
        """First F; then (9), for the bound, and for the plans that only it has."""
        full = self._full
        if self._graph.loss_index is None:  # annealing beats evictions one by one
            self.improve(full, self.deadline, self._known)
            return
        if self._in_one(full):  # so small that F is no faster
            self.improve(full, self.deadline)
            return
        reduced = Space.reduced(self._graph)
        is_small = is_solvable(full)
        now = planning_seconds()
        # Intervals come anyway: where local search finds nothing, annealing waits for them.
        first = self._evictions, partial(self._known, anneal=False), self._moments
        until = now + (0.75 if is_small else 1.0) * (self.deadline - now)
        self.improve(reduced, until, *first)
        now = planning_seconds()
        if self.proven_infeasible:
            return
        if self.best is None:
            self.improve(full, self.deadline)
        elif is_small or self._closed(reduced):
            seconds = max(FULL_SECONDS, now - self.progress.started)
            self.improve(full, min(self.deadline, now + seconds))

    def improve(self, space: Space, deadline: float, *first: Phase) -> None:
        """Look for schedules and bounds in a space until the gap to its bound is closed.

        Args:
            first: what comes before all else, by default local search.
        """
        phases: list[Phase] = [
            *(first or (self._evictions, self._known)),
            self._tight,
            self._alone,
            self._linear,
            self._by_intervals,
            self._integral,
            self._in_turns,
        ]
        leg = Leg(space, planning_seconds(), deadline)
        self.bounds.setdefault(space.name, max(space.base_cost, self.every))
        self.progress.bound = max(self.progress.bound, space.base_cost)
        for phase in phases:
            for found in phase(leg):
                self._take(space, found)
            if self.proven_infeasible:
                return

    def _take(self, space: Space, found: Found) -> None:
        """A schedule or a bound: is it the best?"""
        if isinstance(found, Schedule):
            self.progress.see(found.peak)
            if found.peak <= self.budget and (self.best is None or found.cost < self.best.cost):
                self.best = found
                self.progress.offer(found.cost, found.plan)
        elif found is not None:
            self.bounds[space.name] = max(found, self.bounds[space.name])
            if found < inf:
                self.progress.raise_bound(found, EXACT_TOLERANCE)

    @property
    def proven_infeasible(self) -> bool:
        """Is it certain that (9) has no plan within the budget?"""
        return self.bounds.get("9", 0.0) == inf

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        linear = self._linear_bound
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

    def _evictions(self, leg: Leg) -> Iterator[Found]:
        """Local search: the first repair, and what can be given back."""
        if "known" in self._turns:  # as another space's found nothing
            return
        random = np.random.default_rng(self._seed)
        local = search(leg.space.everything(), self.budget, random, leg.deadline)
        self._turns = {**self._turns, "evictions": local}
        for _ in range(2):
            self._turn(leg.space)
            yield None

    def _known(self, leg: Leg, anneal: bool = True) -> Iterator[Found]:
        """Without a schedule: what cheaper strategies know, improved by intervals."""
        if self.best is not None or "known" in self._turns:
            return
        inner = Improver(self._left(), self.budget, planning_seconds(), 0.0)
        steps = chain(inner.take_known(), inner.anneal() if anneal else ())
        self._turns = {"known": self._converted(inner, steps)}
        for _ in self._problem.starts:
            self._turn(leg.space)
            yield None

    def _moments(self, leg: Leg) -> Iterator[Found]:
        """What memory costs at the fullest moments: no plan costs less."""
        now, gap = planning_seconds(), self.progress.gap
        inner = self._intervals = IntervalSearch(self._left(), self.budget, now, gap)
        inner.deadline = min(inner.deadline, now + MOMENTS_SECONDS)
        inner.prove(np.asarray(profile(start(inner.net, inner.resident))))
        self.every, self.bound_by = inner.progress.bound, inner.bound_by
        if self.every == inf:
            self.bounds["9"] = inf
        yield self.every

    def _left(self) -> Problem:
        """The problem for intervals, in the time that is left."""
        left, starts = max(0.0, self.deadline - planning_seconds()), self._problem.starts
        return Problem(self._graph, self.budget, left, self._seed, starts=starts)

    def _tight(self, leg: Leg) -> Iterator[Found]:
        """Intervals first, where memory is so tight that the schedule is far from its bound."""
        if self._intervals is not None and self.progress.cost > FAR * self.bounds[leg.space.name]:
            seconds = min(TIGHT_SECONDS, 0.5 * (leg.deadline - leg.begun))
            yield from self._first_by_intervals(planning_seconds() + seconds)
            yield from self._search(leg, leg.begun + seconds)

    def _alone(self, leg: Leg) -> Iterator[Found]:
        """Search for itself, where nothing searches while programs are solved."""
        if self._threads == 1:
            seconds = leg.deadline - leg.begun
            yield from self._first_by_intervals(planning_seconds() + FIRST_SHARE * seconds)
            most = SMALL_SECONDS if np.prod(leg.space.shape) <= SMALL else seconds
            yield from self._search(leg, leg.begun + min(ALONE * seconds, most))

    def _by_intervals(self, leg: Leg) -> Iterator[Found]:
        """Intervals in any case, unless the gap is closed."""
        if not self._closed(leg.space):
            yield from self._first_by_intervals(leg.left(FIRST_SHARE))

    def _in_turns(self, leg: Leg) -> Iterator[Found]:
        """Better schedules for the rest of the time."""
        if self.best is not None:
            yield from self._search(leg, leg.deadline)

    def _first_by_intervals(self, deadline: float) -> Iterator[Found]:
        """What the moments' program keeps; once; from then on annealing has turns with the rest.

        These schedules need the solver, and so come before it works on programs of stages.
        """
        inner = self._intervals
        if inner is None or "annealing" in self._turns:
            return
        inner.deadline = deadline
        for found in self._converted(inner, inner.first(start(inner.net, inner.resident))):
            yield found
            self.progress.rest()
            if planning_seconds() > deadline:
                break
        if inner.progress.leanest is not None:
            self.progress.see(inner.progress.leanest)
        inner.deadline = self.deadline
        self._turns["annealing"] = self._converted(inner, inner.anneal())

    def _converted(self, inner: Improver, steps: Iterator[None]) -> Iterator[Found]:
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

    def _search(self, leg: Leg, deadline: float) -> Iterator[Found]:
        """All that search, in turns, until the gap is closed."""
        while planning_seconds() < deadline and not self._closed(leg.space):
            if not self._turn(leg.space):
                break
            yield None

    def _turn(self, space: Space) -> bool:
        """A step of the search whose turn it is; False where all have ended.

        Raises:
            KeyboardInterrupt: somebody interrupted.
        """
        self.progress.rest()
        for name in list(self._turns):
            self._turns[name] = searching = self._turns.pop(name)  # the last one from now on
            for found in searching:
                self._take(space, found)
                return True
        return False

    def _closed(self, space: Space) -> bool:
        return self.progress.closed(self.bounds[space.name])

    def _idle(self, space: Space) -> bool:
        return self._turn(space) if self._threads > 1 else self.progress.rest()

    def _linear(self, leg: Leg) -> Iterator[Found]:
        """Lower bounds from linear relaxations, from coarse groups to fine ones."""
        space, until = leg.space, leg.left(LINEAR_SHARE)
        for groups in self._groupings(space):
            if leg.programs and (self._closed(space) or planning_seconds() > until):
                break
            program = Relaxation(space, self.budget, groups, self._seed)
            self._programs["linear_programs"] += 1
            for outcome in program.linear(leg.left(LINEAR_SHARE), partial(self._idle, space)):
                yield self._learned(program, outcome)
                if self._closed(space):
                    break
            else:
                yield from self._paths(program, leg.left(LINEAR_SHARE))
            leg.programs.append(program)
        linear = max(space.base_cost, *(program.bound for program in leg.programs))
        self._linear_bound = self._linear_bound or linear

    def _paths(self, program: Relaxation, deadline: float) -> Iterator[Found]:
        """Path rows, which stay only where they help: they slow the solver down."""
        before, idle = program.bound, partial(self._idle, program.space)
        for outcome in program.linear(deadline, idle, paths=True):
            yield self._learned(program, outcome)
        if self.best is not None and before < inf:
            gap = self.best.cost - before
            if program.bound - before < PATHS_CLOSE * gap:
                program.drop_rows()

    def _integral(self, leg: Leg) -> Iterator[Found]:
        """Better bounds and schedules from mixed-integer programs."""
        space = leg.space
        for number, program in enumerate(leg.programs):
            if self._closed(space) or planning_seconds() > leg.deadline:
                break
            rounds = program.integral(
                leg.left(1 / (len(leg.programs) - number)),
                partial(self._idle, space),
                self.progress.gap / 2,
                best=lambda: None if self.best is None else space.adopt(self.best),
                enough=partial(self._closed, space),
            )
            self._programs["integer_programs"] += 1
            for outcome in rounds:
                yield self._learned(program, outcome)
                if outcome.x is not None:
                    yield from self._mended(program.decode(outcome.x), leg.deadline)
                if self._closed(space):
                    break

    def _groupings(self, space: Space) -> list[Groups]:
        """Groups to solve with, from coarse to fine."""
        columns = COLUMNS[1:2] if self._in_one(space) else COLUMNS
        return [merged_stages(space, self.budget, each) for each in columns]

    def _in_one(self, space: Space) -> bool:
        """Does a program of middling size have all stages of a space?"""
        return len(merged_stages(space, self.budget, COLUMNS[1])) == len(space.stages)

    def _mended(self, found: Schedule[Space] | None, deadline: float) -> Iterator[Found]:
        """Make a schedule out of a solution that may break the budget where groups hide it."""
        if found is None:
            return
        random = np.random.default_rng(self._seed)
        if found.peak > self.budget:
            start = found.space.evaluate(found.keep)
            found = repair(start, self.budget, random, deadline)
        if found.peak <= self.budget:
            yield found
            found = give_back(found, self.budget, random, deadline)
        yield found

    def _learned(self, program: Relaxation, outcome: SolverRun) -> float:
        """The bound of a run of the solver, whose facts go into the row."""
        self._programs["solver_runs"] += 1
        if program.size["nonzeros"] > self._largest.get("nonzeros", -1):
            self._largest = {**program.size, "build_seconds": program.build_seconds}
        self._nodes += outcome.nodes
        return outcome.bound
