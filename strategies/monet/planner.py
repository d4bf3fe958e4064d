"""monet: the cheapest schedule and implementations within a budget (Shah et al., ICLR 2021)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Literal, get_args

from rematbench.graphs.errors import ConfigError, Infeasible, NotApplicable
from rematbench.graphs.files import read_plan
from rematbench.graphs.ir import Phase
from rematbench.graphs.kinds import Kind
from rematbench.graphs.synthetic import unit_chain
from rematbench.strategies.base import Problem, Solution, Traits, check_choice, check_share
from rematbench.strategies.clock import planning_seconds
from rematbench.strategies.intervals.planner import warm_up
from rematbench.strategies.monet.large import LARGE, LargeRun
from rematbench.strategies.monet.published import Locals, Published
from rematbench.strategies.monet.run import UNLIMITED, PlanningRun
from rematbench.strategies.monet.ways import JOINT, VARIANTS, Ways
from rematbench.strategies.scheduling.solver import SOLVER
from rematbench.strategies.scheduling.space import check

RELEASED = "released"
PRESOLVE, PLANNING = 0.7, 0.1
"""Shares of the time limit for the published program's presolve, and for the plan beside it."""
MOST_PLANNING = 20.0
"""Seconds for that plan at most: it is the sizes that ``released`` is asked for."""


@dataclass(frozen=True)
class Monet:
    """The cheapest plan within a budget, implementations included, with a proven bound.

    Attributes:
        variant: ``full``; or the ablation of Figures 4 and 6: ``noop``, ``conv``, ``output``,
            ``intermediate``. Those that do not weigh convolution algorithms choose the fastest
            that fit afterwards (appendix G). ``released`` plans like ``full`` (``noop`` without
            ``operators``), for 20 s at most, and puts the size of the published program into the
            row (Table 7).
        gap: relative gap (cost - bound) / cost at which to stop.
        operators: of ``released``: MONeT; False: MONeT-NoOp.
        locals: of ``released``: appendix B's bound of local memory, ``loose`` or ``tight``.
        known: plan files, warm starts like :attr:`Problem.warm_starts`; in a sweep, ``sweep``
            stands for those of its earlier jobs.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    variant: Literal["full", "noop", "conv", "output", "intermediate", "released"] = "full"
    gap: float = 0.005
    operators: bool = True
    locals: Locals = "loose"
    known: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, (*VARIANTS, RELEASED))
        check_choice("locals", self.locals, get_args(Locals))
        check_share("gap", self.gap)
        if isinstance(self.known, str):
            raise ConfigError(
                f"strategy.known is {self.known!r}; give a list of plan files, or in a sweep: sweep"
            )

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
        """Compile the kernels, however long that takes."""
        warm_up()
        replace(self, known=(), gap=0.5).plan(Problem(unit_chain(6), 4, 3600.0))

    def plan(self, problem: Problem) -> Solution:
        """The plan, and a bound for every plan of the graph with first computes in order.

        Raises:
            NotApplicable: a graph without a loss, or whose ops overwrite by default.
            Infeasible: no plan was found; ``proven`` where there is none.
        """
        graph, budget = problem.graph, problem.budget
        loss = graph.loss_index
        if loss is None or any(op.phase is Phase.FORWARD for op in graph.ops[loss:]):
            raise NotApplicable("MONeT plans training steps: a loss, and only backward after it")
        sizes: dict[str, Any] = {}
        warm_starts = (*problem.warm_starts, *map(read_plan, self.known))
        problem = replace(problem, warm_starts=warm_starts)
        if self.variant == RELEASED:
            sizes = self._published(problem)
            seconds = min(PLANNING * problem.time_limit, MOST_PLANNING)
            problem = replace(problem, time_limit=seconds)
        started = planning_seconds()
        check(graph, budget)
        ways = Ways.of(graph, self.kinds, budget)
        joint = self.operations in JOINT
        kind = LargeRun if len(graph.ops) > LARGE else PlanningRun
        run = kind(problem, ways, joint, self.gap, started)
        with run.progress.interruptible():
            run.run()
        return self._solution(run, sizes)

    def _solution(self, run: PlanningRun, sizes: dict[str, Any]) -> Solution:
        everything, progress = run.ways.everything, run.progress
        if progress.plan is None:
            proven = progress.bound == inf and everything
            raise Infeasible(
                f"no plan within {run.problem.budget} bytes "
                + ("exists" if proven else f"was found in {run.problem.time_limit:g} s"),
                smallest_peak_found=progress.leanest,
                proven=proven,
            )
        return Solution(
            progress.plan,
            min(progress.bound, progress.cost) if everything else None,
            "any" if everything else None,
            variant=self.variant,
            solver=SOLVER,
            seconds=planning_seconds() - progress.started,
            details={**run.details(), **sizes},
        )

    def _published(self, problem: Problem) -> dict[str, Any]:
        """Which of the published programs it is, and its size."""
        room = UNLIMITED if problem.budget is None else problem.budget
        program = Published(problem.graph, room, self.operators, self.locals)
        sizes = program.sizes(PRESOLVE * problem.time_limit)
        return {"operators": self.operators, "locals": self.locals, **sizes}
