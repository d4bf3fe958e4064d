"""One planning run of MONeT: local search and the bound model, each advised by the other."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from rematbench.base.clock import available_threads, planning_seconds
from rematbench.base.errors import ConfigError, InvalidPlan
from rematbench.engines.anytime import Progress
from rematbench.engines.joint.bound import Advice, Bound, Grain
from rematbench.engines.joint.implementations import AllowedImplementations
from rematbench.engines.joint.narrower import Beneath, Narrower, narrowed
from rematbench.engines.joint.search import (
    Point,
    advised,
    fits,
    improved,
    moved,
    repaired,
    search,
    spared,
    widened,
)
from rematbench.engines.joint.space import ImplementationSpace
from rematbench.graphs.kinds import kinds_of
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate

SHARES = (1.0, 0.9, 0.8, 0.7)
"""Of the budget, at which the bound model's advice is taken: it knows of fewer bytes than there
are, so that what it stores at a smaller budget often fits the whole one."""
TRIES = 8
"""Randomized repairs of each start before it is given up."""
NEWS = 0.001
"""Part by which a bound must rise to be noted while the solver still works."""
FINER: tuple[Grain, ...] = ("medium", "double", "fine")
"""Models after the coarse one, while the gap is open."""
ROUGHLY, FINELY = 0.25, 0.05
"""Shares of the gap at which programs are solved: the coarse one, and the finer."""
RESERVED, LATER = 0.05, 0.25
"""Shares of the time to plan with fewer implementations: kept for it, and at least left to it where
the search ended before its time."""
ALONE = 0.3
"""Share of the time that is left for a program, where nothing may run beside it."""
PROGRAM = 0.5
"""Share of the time below which no more advice is taken from linear programs: the integer program
closes more of a gap."""
BUILDING = 6e-7
"""Seconds that a bound model takes to build, times the square of the ops: about so many."""
UNLIMITED = 1 << 60


Make = Callable[[Problem, AllowedImplementations, bool, float, float], "PlanningRun"]
"""Makes a run, from what :class:`PlanningRun` is given."""


class PlanningRun:
    """A search for the cheapest plan.

    Args:
        problem: a training graph, budget, time limit and warm starts.
        implementations: that are allowed.
        joint: do convolution algorithms count while searching?
        gap: relative gap at which to stop.
        started: by :func:`~rematbench.base.clock.planning_seconds`.

    Attributes:
        progress: what was found so far.
    """

    def __init__(
        self,
        problem: Problem,
        implementations: AllowedImplementations,
        joint: bool,
        gap: float,
        started: float,
    ) -> None:
        self.problem, self.implementations, self._joint, self._gap = (
            problem,
            implementations,
            joint,
            gap,
        )
        self._limit = UNLIMITED if problem.budget is None else problem.budget
        self._deadline = started + problem.time_limit
        self._random = np.random.default_rng(problem.seed)
        self.progress = Progress(started, gap, problem.report, hand_over=problem.hand_over)
        self._point: Point | None = None
        self._warm_starts: list[dict[str, Any]] = []
        self._threads = min(2, available_threads())
        self._wide = False  # does the search compute again before the loss, too?
        self._model: Bound | None = None
        self._steps: Iterator[Point] = iter(())
        self.progress.bound = implementations.least_cost

    def run(self, contained: Sequence[Narrower] = (), make: Make | None = None) -> None:
        """Plan; look for cheaper plans among fewer implementations; use what time is left.

        Args:
            contained: choices of fewer kinds of implementations, none of whose plans is to be
                cheaper than what is found.
            make: makes their runs.
        """
        end, began = self._deadline, planning_seconds()
        if contained:
            self._deadline -= RESERVED * self._left
        for plan in self.problem.warm_starts:
            self._take(plan)
        self._search()
        self._deadline = end
        now = planning_seconds()
        until = min(end, now + max(now - began, LATER * (end - began)))
        for number, each in enumerate(contained):
            if (
                make
                and self.problem.budget is not None
                and self.progress.bound < self.progress.cost
            ):
                share = (until - planning_seconds()) / (len(contained) - number)
                self._look_into(each, share, make)
        if contained:
            self._search_until(end)

    def _look_into(self, fewer: Narrower, seconds: float, make: Make) -> None:
        """Plan with fewer implementations, as if there were no others, for a cheaper plan."""
        if seconds <= 0:
            return
        graph = narrowed(self.problem.graph, fewer.kinds)
        alone = replace(
            self.problem,
            graph=graph,
            captured=None,
            warm_starts=(),
            time_limit=seconds,
            report=lambda _: None,
            hand_over=lambda _: None,
        )
        implementations = AllowedImplementations.of(graph, fewer.kinds, self.problem.budget)
        run = make(alone, implementations, fewer.joint, self._gap, planning_seconds())
        run.progress = Beneath(self.progress)
        run.progress.bound = implementations.least_cost
        if not run.progress.closed():
            run.run()
        if run.progress.plan is not None:
            plan = Plan(run.progress.plan.statements, self.problem.graph.name)
            self.progress.offer(simulate(self.problem.graph, plan).cost, plan)

    def _search(self) -> None:
        """First without a model, then with its advice, then both side by side."""
        left = self._left
        space = self._unadvised()
        if self.problem.budget is None or self.progress.closed():
            return
        if self._left < BUILDING * len(self.problem.graph.ops) ** 2:
            return
        self._model = Bound(self.implementations, self._limit, self.problem.seed)
        for number, share in enumerate(SHARES):
            if number and self._left < PROGRAM * left:
                break
            advice = self._model.linear(self._deadline, self.progress.rest, share)
            self.progress.raise_bound(self._model.best)
            if self.progress.bound < inf:
                self._follow(space, advice)
            if self.progress.closed():
                return
        if self._point is None:
            self._insist(space.everything())
            self._insist(widened(space.everything()))
        self._solve(space)
        for grain in FINER:
            if self.progress.closed() or not self._left:
                break
            self._wide = True
            self._model = Bound(self.implementations, self._limit, self.problem.seed, grain)
            self._solve(space, FINELY)
        self._search_until(self._deadline)

    def _unadvised(self) -> ImplementationSpace:
        """Schedules without a model, and the space to go on in."""
        space = ImplementationSpace.start(self.implementations, self._limit, self._joint)
        self._try(space.everything())
        if self.implementations.deferrable:
            space = space.deferred()
            self._try(space.everything())
        if self._joint:
            self._try(replace(space, joint=False).everything())
        self._try(spared(space.everything()))
        return space

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        model = self._model
        return {
            **({} if model is None else model.size),
            "nodes": 0 if model is None else model.nodes,
            "build_seconds": 0.0 if model is None else model.build_seconds,
            **self.progress.details(),
            **({"known": self._warm_starts} if self._warm_starts else {}),
        }

    @property
    def _left(self) -> float:
        return max(0.0, self._deadline - planning_seconds())

    def _search_until(self, deadline: float) -> None:
        while planning_seconds() < deadline and not self.progress.closed() and self._step():
            pass

    def _take(self, plan: Plan) -> None:
        """Have a warm start, if it fits and its implementations are allowed."""
        graph = self.problem.graph
        try:
            trace = simulate(graph, plan)
        except InvalidPlan as error:
            raise ConfigError(
                f"a known plan ({plan.strategy}, budget {plan.budget_bytes}) is not of this "
                f"graph: {error}"
            ) from None
        names = [implementation.name for op in graph.ops for implementation in op.implementations]
        ran = {int(implementation) for implementation in trace.codes[trace.codes >= 0]}
        allowed = all(
            kinds_of(names[implementation]) <= self.implementations.kinds for implementation in ran
        )
        found: dict[str, Any] = {"strategy": plan.strategy, "budget_bytes": plan.budget_bytes}
        found |= {"cost": trace.cost, "peak_bytes": trace.peak_bytes}
        found["fits"] = allowed and trace.peak_bytes <= self._limit
        self._warm_starts.append(found)
        if found["fits"]:
            self.progress.offer(trace.cost, plan)

    def _solve(self, space: ImplementationSpace, share: float = ROUGHLY) -> None:
        """The mixed-integer program, beside the search; then the search from its advice.

        Args:
            share: of the gap asked for, at which the program is solved.
        """
        assert self._model is not None
        gap, began = share * self._gap, planning_seconds()
        idle, deadline = self._step, self._deadline
        if self._threads == 1:  # in turns: as long as the program took, the search goes on
            idle, deadline = self.progress.rest, began + ALONE * self._left
        advice = self._model.integral(deadline, idle, gap, self._enough)
        now = planning_seconds()
        if self._threads == 1:
            self._search_until(min(self._deadline, now + (now - began)))
        self.progress.raise_bound(self._model.best)
        self._follow(space, advice)
        if self._point is None and advice is not None:
            self._insist(advised(replace(space, joint=False), advice))
        self._steps = iter(())  # from what is best now

    def _enough(self) -> bool:
        """Asked by the solver, in its own thread: time to stop?"""
        assert self._model is not None
        progress = self.progress
        return progress.interrupted or progress.closed(self._model.best)

    def _follow(self, space: ImplementationSpace, advice: Advice | None) -> None:
        if advice is None:
            return
        self._try(advised(space, advice))
        if self._joint:  # faster implementations may cost more recomputation than they save
            self._try(advised(replace(space, joint=False), advice))

    def _try(self, start: Point, noise: float = 0.0) -> None:
        """Repair and improve a start, and keep what comes of it."""
        found = repaired(start, self._random, self._deadline, noise)
        if fits(found):
            self._offer(found)
            found = improved(found, self._random, self._deadline)
        self._offer(found)

    def _insist(self, start: Point) -> None:
        """No plan so far: repair again and again, with more and more noise."""
        for number in range(1, TRIES):
            if self._point is not None or not self._left:
                return
            self._try(start, noise=0.3 * number)

    def _step(self) -> bool:
        """One step of local search; False if there is nothing to start from."""
        if self._model is not None:
            self.progress.raise_bound(self._model.best, NEWS)  # from the solver's thread
        if self._point is None:
            return self.progress.rest()
        found = next(self._steps, None)
        if found is None:
            start = widened(self._point) if self._wide else self._point
            self._steps = search(start, self._random, self._deadline)
            found = next(self._steps, None)
        if found is not None:
            self._offer(found)
        return found is not None

    def _offer(self, found: Point) -> None:
        self.progress.rest()
        self.progress.see(found.peak)
        if not fits(found):
            return
        if self._joint and not found.space.joint:
            found = moved(found, replace(found.space, joint=True))
        if self._point is not None and found.cost >= self._point.cost:
            return
        self._point = found
        plan = found.space.finished(found)
        self.progress.offer(simulate(self.problem.graph, plan).cost, plan)
