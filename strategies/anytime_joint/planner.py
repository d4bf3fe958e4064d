"""anytime_joint: our own search for the problem of MONeT, schedule and implementations together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import ClassVar, Literal

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import ConfigError, NotApplicable
from rematbench.engines.intervals.planner import warm_up
from rematbench.engines.joint.implementations import JOINT, VARIANTS, AllowedImplementations
from rematbench.engines.joint.large import LARGE, LargeRun
from rematbench.engines.joint.narrower import narrower
from rematbench.engines.joint.run import PlanningRun
from rematbench.engines.lp.solver import SOLVER
from rematbench.engines.stages.space import check
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import read_plan
from rematbench.graphs.ir import Phase
from rematbench.graphs.kinds import Kind
from rematbench.strategies.base import (
    Problem,
    Solution,
    Traits,
    check_choice,
    check_share,
    without_plan,
)
from rematbench.strategies.registry import quick_planners


def _run_of(
    problem: Problem,
    implementations: AllowedImplementations,
    joint: bool,
    gap: float,
    started: float,
) -> PlanningRun:
    kind = LargeRun if len(problem.graph.ops) > LARGE else PlanningRun
    return kind(problem, implementations, joint, gap, started)


@dataclass(frozen=True)
class AnytimeJoint:
    """The cheapest plan within a budget, implementations included, with a proven bound.

    Attributes:
        variant: ``full``; or MONeT's ablation (its Figures 4 and 6): ``noop``, ``conv``,
            ``output``, ``intermediate``. Those that do not weigh convolution algorithms choose
            the fastest that fit afterwards (appendix G).
        gap: relative gap (cost - bound) / cost at which to stop.
        known: plan files, warm starts like :attr:`Problem.warm_starts`; in a sweep, ``sweep``
            stands for those of its earlier jobs.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    variant: Literal["full", "noop", "conv", "output", "intermediate"] = "full"
    gap: float = 0.005
    known: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_choice("variant", self.variant, VARIANTS)
        check_share("gap", self.gap)
        if isinstance(self.known, str):
            raise ConfigError(
                f"strategy.known is {self.known!r}; give a list of plan files, or in a sweep: sweep"
            )

    @property
    def kinds(self) -> frozenset[Kind]:
        """What it chooses from (:class:`~rematbench.strategies.base.ChoosesImplementations`)."""
        return VARIANTS[self.variant]

    @property
    def contained(self) -> frozenset[str]:
        """Variants whose plans are warm starts in a sweep."""
        everything = self.variant == "full"
        return frozenset(VARIANTS if everything else {"noop", self.variant})

    @property
    def wants_density(self) -> bool:
        """MONeT is lossless and dense."""
        return False

    def warm_up(self) -> None:
        """Compile the kernels, however long that takes."""
        warm_up(quick_planners())
        replace(self, known=(), gap=0.5).plan(Problem(unit_chain(6), 4, 3600.0))

    def plan(self, problem: Problem) -> Solution:
        """The plan, and a bound for every plan of the graph with first computes in order.

        Raises:
            NotApplicable: a graph without a loss, or whose ops overwrite by default.
            Infeasible: it is proven that there is none.
            Stopped: none was found in time.
        """
        graph, budget = problem.graph, problem.budget
        loss = graph.loss_index
        if loss is None or any(op.phase is Phase.FORWARD for op in graph.ops[loss:]):
            raise NotApplicable("anytime_joint plans a loss, and only backward ops after it")
        known = (*problem.warm_starts, *map(read_plan, self.known))
        problem = replace(problem, warm_starts=known, starts=quick_planners())
        started = planning_seconds()
        check(graph, budget)
        implementations = AllowedImplementations.of(graph, self.kinds, budget)
        joint = self.variant in JOINT
        run = _run_of(problem, implementations, joint, self.gap, started)
        with run.progress.interruptible():
            run.run(narrower(graph, self.variant, self.contained), _run_of)
        return self._solution(run)

    def _solution(self, run: PlanningRun) -> Solution:
        everything, progress = run.implementations.everything, run.progress
        if progress.plan is None:
            proven = progress.bound == inf and everything
            nothing = f"graph {run.problem.graph.name!r}" if proven else None
            raise without_plan(run.problem, nothing, progress.leanest)
        return Solution(
            progress.plan,
            min(progress.bound, progress.cost) if everything else None,
            "any" if everything else None,
            variant=self.variant,
            solver=SOLVER,
            details=run.details(),
        )
