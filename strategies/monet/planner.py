"""monet: the cheapest schedule and implementations within a budget (Shah et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import Any, ClassVar, get_args

import numpy as np

from rematbench.graphs.errors import ConfigError, Infeasible, InvalidPlan, NotApplicable
from rematbench.graphs.files import read_plan
from rematbench.graphs.kinds import Kind, kinds_of
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import simulate
from rematbench.graphs.synthetic import unit_chain
from rematbench.strategies.base import Problem, Solution, Traits
from rematbench.strategies.checkmate.lowering import SOLVER
from rematbench.strategies.interrupt import interruptible
from rematbench.strategies.monet.bound import Advice, Bound
from rematbench.strategies.monet.published import Locals, Published
from rematbench.strategies.monet.schedule import Chosen, cheapest_choice, graph_can_be_planned
from rematbench.strategies.monet.search import (
    Point,
    advised,
    everything,
    improved,
    repaired,
    search,
    widened,
)
from rematbench.strategies.monet.ways import JOINT, VARIANTS, Ways

SHARES = (1.0, 0.9, 0.8, 0.7)
"""Of the budget, at which the bound model's advice is taken: it knows of fewer bytes than there
are, so that what it stores at a smaller budget often fits the whole one."""
TRIES = 8
"""Randomized repairs of each start before it is given up."""
NEWS = 1.001
"""Factor by which a bound must rise to be noted while the solver still works."""
UNLIMITED = 1 << 60
RELEASED = "released"
PRESOLVE, PLANNING = 0.7, 0.1
"""Shares of the time limit for the published program's presolve, and for the plan beside it."""


@dataclass(frozen=True)
class Monet:
    """The cheapest plan within a budget, implementations included, with a proven bound.

    Attributes:
        variant: ``full``; or the ablation of Figures 4 and 6: ``noop``, ``conv``, ``output``,
            ``intermediate``. Those that do not weigh convolution algorithms choose the fastest
            that fit afterwards (appendix G). ``released`` plans like ``full`` (``noop`` without
            ``operators``) and puts the size of the published program into the row (Table 7).
        gap: relative gap (cost - bound) / cost at which to stop.
        operators: of ``released``: MONeT; False: MONeT-NoOp.
        locals: of ``released``: appendix B's bound of local memory, ``loose`` or ``tight``.
        known: plan files, warm starts like :attr:`Problem.warm_starts`; in a sweep, ``sweep``
            stands for those of its earlier jobs.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    variant: str = "full"
    gap: float = 0.005
    operators: bool = True
    locals: Locals = "loose"
    known: Sequence[str] = ()

    def __post_init__(self) -> None:
        for option, value, known in (
            ("variant", self.variant, (*VARIANTS, RELEASED)),
            ("locals", self.locals, get_args(Locals)),
        ):
            if value not in known:
                raise ConfigError(f"strategy.{option} is {value!r}; choose {', '.join(known)}")
        if isinstance(self.known, str):
            raise ConfigError(
                f"strategy.known is {self.known!r}; give a list of plan files, or in a sweep: sweep"
            )
        if not 0 <= self.gap < 1:
            raise ConfigError(f"strategy.gap is {self.gap}; give a number from 0 to below 1")

    @property
    def kinds(self) -> frozenset[Kind]:
        """What it chooses from (:class:`~rematbench.strategies.base.ChoosesImplementations`)."""
        return VARIANTS[self.operations]

    @property
    def operations(self) -> str:
        """The variant that says which implementations there are."""
        if self.variant != RELEASED:
            return self.variant
        return "full" if self.operators else "noop"

    @property
    def contained(self) -> frozenset[str]:
        """Variants whose plans are warm starts in a sweep."""
        everything = self.operations == "full"
        return frozenset(VARIANTS if everything else {"noop", self.operations})

    @property
    def wants_density(self) -> bool:
        """MONeT is lossless and dense."""
        return False

    def warm_up(self) -> None:
        """Compile the kernels."""
        replace(self, known=()).plan(Problem(unit_chain(4), 6, time_limit=5))

    def plan(self, problem: Problem) -> Solution:
        """The plan, and a bound for every plan of the graph with first computes in order.

        Raises:
            NotApplicable: a graph without a loss, or whose ops overwrite by default.
            Infeasible: no plan was found; ``proven`` where there is none.
        """
        graph, budget = problem.graph, problem.budget
        if not graph_can_be_planned(graph):
            raise NotApplicable("MONeT plans training steps: a loss, and only backward after it")
        sizes: dict[str, Any] = {}
        warm_starts = (*problem.warm_starts, *map(read_plan, self.known))
        problem = replace(problem, warm_starts=warm_starts)
        if self.variant == RELEASED:
            sizes = self._published(problem)
            problem = replace(problem, time_limit=PLANNING * problem.time_limit)
        started = perf_counter()
        ways = Ways.of(graph, self.kinds, budget)
        floor, what = graph.floor()
        if budget is not None and budget < floor:
            raise Infeasible(
                f"{what} alone must have {floor} bytes; the budget is {budget}", proven=True
            )
        run = _Run(self, problem, ways, started)
        try:
            with interruptible(run):
                run.run()
        except KeyboardInterrupt:
            if run.best is None:
                raise
        return self._solution(run, sizes)

    def _solution(self, run: _Run, sizes: dict[str, Any]) -> Solution:
        everything = run.ways.everything
        if run.best is None:
            proven = run.bound == inf and everything
            raise Infeasible(
                f"no plan within {run.problem.budget} bytes "
                + ("exists" if proven else f"was found in {run.problem.time_limit:g} s"),
                smallest_peak_found=run.leanest,
                proven=proven,
            )
        cost, plan = run.best
        return Solution(
            plan,
            min(run.bound, cost) if everything else None,
            "any" if everything else None,
            variant=self.variant,
            solver=SOLVER,
            seconds=perf_counter() - run.started,
            details={**run.details(), **sizes},
        )

    def _published(self, problem: Problem) -> dict[str, Any]:
        """Which of the published programs it is, and its size."""
        room = UNLIMITED if problem.budget is None else problem.budget
        program = Published(problem.graph, room, self.operators, self.locals)
        sizes = program.sizes(PRESOLVE * problem.time_limit)
        return {"operators": self.operators, "locals": self.locals, **sizes}


class _Run:
    """One planning run: what was found so far.

    Attributes:
        best: cost and plan, or None.
        bound: proven lower bound of the cost; infinite: there is no plan.
        leanest: the smallest peak found, in bytes.
        interrupted: set it, and ``run`` raises KeyboardInterrupt at the next good moment.
    """

    def __init__(self, strategy: Monet, problem: Problem, ways: Ways, started: float) -> None:
        self.problem, self.ways, self.started = problem, ways, started
        self.gap, self.joint = strategy.gap, strategy.operations in JOINT
        self.deadline = started + problem.time_limit
        self.random = np.random.default_rng(problem.seed)
        self.best: tuple[float, Plan] | None = None
        self.point: Point | None = None
        self.interrupted = False
        self.leanest: int | None = None
        self.kinds, self.known = strategy.kinds, list[dict[str, Any]]()
        self.way_names = [way.name for op in problem.graph.ops for way in op.implementations]
        self.wide = False  # does the search compute again before the loss, too?
        self.incumbents: list[tuple[float, float | None, float]] = []
        self.model: Bound | None = None
        tables = problem.graph.tables
        least = [
            tables.cost[ways.first_ways(op)].min()
            for op in np.flatnonzero(ways.surely_needed()).tolist()
        ]
        self.bound = float(sum(least))
        self._steps: Iterator[Point] = iter(())

    def _take(self, plan: Plan) -> None:
        """Have a known plan, if it fits and its ways are allowed."""
        graph, limit = self.problem.graph, self.problem.budget
        name = {"strategy": plan.strategy, "budget_bytes": plan.budget_bytes}
        try:
            trace = simulate(graph, plan)
        except InvalidPlan as error:
            raise ConfigError(
                f"a known plan ({plan.strategy}, budget {plan.budget_bytes}) is not of this "
                f"graph: {error}"
            ) from None
        ran = {int(way) for way in trace.codes[trace.codes >= 0]}
        allowed = all(kinds_of(self.way_names[way]) <= self.kinds for way in ran)
        fits = allowed and (limit is None or trace.peak_bytes <= limit)
        self.known.append(name | {"cost": trace.cost, "peak_bytes": trace.peak_bytes, "fits": fits})
        if fits:
            self._have(trace.cost, plan)

    def _have(self, cost: float, plan: Plan) -> None:
        if self.best is None or cost < self.best[0]:
            self.best = cost, plan
            self._record()

    def run(self) -> None:
        """First without a model, then with its advice, then both side by side."""
        limit = UNLIMITED if self.problem.budget is None else self.problem.budget
        for plan in self.problem.warm_starts:
            self._take(plan)
        space = Chosen.start(self.ways, cheapest_choice(self.ways), limit, self.joint)
        start = everything(space)
        self._try(start)
        if self.ways.may_wait:
            space = space.late()
            start = everything(space)
            self._try(start)
        if self.joint:
            self._try(everything(replace(space, joint=False)))
        if self.problem.budget is None or self._closed():
            return
        self.model = Bound(self.ways, limit, self.problem.seed)
        for share in SHARES:
            advice = self.model.linear(self.deadline, self._rest, share)
            self._learn()
            if self.bound == inf:
                return
            self._follow(space, advice)
            if self._closed():
                return
        if self.point is None:
            self._insist(start)
            self._insist(widened(start))
        self._solve(space)
        if not self._closed() and self.bound < inf and perf_counter() < self.deadline:
            self.wide = True
            self.model = Bound(self.ways, limit, self.problem.seed, fine=True)
            self._solve(space)
        while perf_counter() < self.deadline and not self._closed() and self._step():
            pass

    def _solve(self, space: Chosen) -> None:
        """The mixed-integer program, beside the search; then the search from its advice."""
        assert self.model is not None
        advice = self.model.integral(self.deadline, self._step, self.gap / 4, self._enough)
        self._learn()
        self._follow(space, advice)
        if self.point is None and advice is not None:
            self._insist(advised(replace(space, joint=False), advice))
        self._steps = iter(())  # from what is best now

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        model = self.model
        sizes = {} if model is None else model.size
        return {
            **sizes,
            "nodes": 0 if model is None else model.nodes,
            "build_seconds": 0.0 if model is None else model.build_seconds,
            "incumbents": self.incumbents,
            "interrupted": self.interrupted,
            **({"known": self.known} if self.known else {}),
            "seconds_to_gap_5": self._seconds_to_gap(0.05),
            "seconds_to_gap_2": self._seconds_to_gap(0.02),
        }

    def _seconds_to_gap(self, gap: float) -> float | None:
        for seconds, cost, bound in self.incumbents:
            if cost is not None and cost - bound <= gap * cost:
                return seconds
        return None

    def _closed(self) -> bool:
        if self.best is None:
            return self.bound == inf
        return self.best[0] - self.bound <= self.gap * self.best[0]

    def _enough(self) -> bool:
        """Asked by the solver, in its own thread: time to stop?"""
        assert self.model is not None
        if self.best is None or self.interrupted:
            return self.interrupted
        return self.best[0] - self.model.best <= self.gap * self.best[0]

    def _learn(self) -> None:
        assert self.model is not None
        if self.model.best > self.bound:
            self.bound = self.model.best
            self._record()

    def _follow(self, space: Chosen, advice: Advice | None) -> None:
        if advice is None:
            return
        self._try(advised(space, advice))
        if self.joint:  # faster ways may cost more recomputation than they save
            self._try(advised(replace(space, joint=False), advice))

    def _try(self, start: Point) -> None:
        """Repair and improve a start, and keep what comes of it."""
        found = repaired(start, self.random, self.deadline)
        if found.peak <= found.space.limit:
            self._offer(found)
            found = improved(found, self.random, self.deadline)
        self._offer(found)

    def _insist(self, start: Point) -> None:
        """No plan so far: repair again and again, with more and more noise."""
        for number in range(1, TRIES):
            if self.point is not None or perf_counter() > self.deadline:
                return
            noisy = repaired(start, self.random, self.deadline, noise=0.3 * number)
            if noisy.peak <= noisy.space.limit:
                noisy = improved(noisy, self.random, self.deadline)
            self._offer(noisy)

    def _rest(self) -> bool:
        """Nothing to do while the solver works, but to look for an interrupt."""
        if self.interrupted:
            raise KeyboardInterrupt
        return False

    def _step(self) -> bool:
        """One step of local search; False if there is nothing to start from."""
        if self.model is not None and self.model.best > NEWS * self.bound:
            self._learn()  # from the solver's thread
        if self.point is None:
            return self._rest()
        found = next(self._steps, None)
        if found is None:
            start = widened(self.point) if self.wide else self.point
            self._steps = search(start, self.random, self.deadline)
            found = next(self._steps, None)
        if found is not None:
            self._offer(found)
        return found is not None

    def _offer(self, found: Point) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.leanest = found.peak if self.leanest is None else min(self.leanest, found.peak)
        if found.peak > found.space.limit:
            return
        if self.joint and not found.space.joint:
            space = replace(found.space, joint=True)
            found = Point(space, space.evaluate(found.schedule.keep))
        if self.point is not None and found.cost >= self.point.cost:
            return
        self.point = found
        plan = found.space.finished(found.schedule)
        self._have(simulate(self.problem.graph, plan).cost, plan)

    def _record(self) -> None:
        cost = None if self.best is None else self.best[0]
        self.incumbents.append((perf_counter() - self.started, cost, min(self.bound, 1e300)))
        if cost:
            self.problem.report(f"cost {cost:.6g}, gap {max(0.0, 1 - self.bound / cost):.2%}")
