"""``strategy=moccasin``: at most C computes of an op, by constraint programming."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, replace
from time import perf_counter
from types import ModuleType
from typing import Any, ClassVar, Literal

from rematbench.base.checks import check_choice, check_count, check_share
from rematbench.base.errors import ExecutionError, Infeasible, NotApplicable
from rematbench.engines.anytime import Progress
from rematbench.engines.stages.space import check
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution, Traits, available_threads, without_plan
from rematbench.strategies.moccasin.instance import Scaled, instance_of
from rematbench.strategies.moccasin.process import SolverProcess, solving

# Of the time limit, for a start, at most; seconds per op after which there will be none.
_START_SHARE, _PATIENCE = 0.5, 0.15
# Once there is one: so many seconds without a better one, or as long as the best one took, are
# enough.
_STALLED_SECONDS = 1.0
# Of the cost: sums in another order.
_SAME = 1e-9


@dataclass(frozen=True)
class Moccasin:
    """The cheapest plan that computes no op more than C times, with a bound for such plans.

    Attributes:
        computes: the paper's C.
        gap: relative gap (cost - bound) / cost at which to stop.
        threads: of the solver; null: those of the job.
        start: ``none``: the solver alone brings the peak down, as in the paper; ``search``: the
            first phase is annealing over plans with at most C computes of an op, until it stalls.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    computes: int = 2
    gap: float = 0.0
    threads: int | None = None
    start: Literal["none", "search"] = "none"

    def __post_init__(self) -> None:
        for name in ("computes", "threads"):
            if (value := getattr(self, name)) is not None:
                check_count(name, value)
        check_share("gap", self.gap)
        check_choice("start", self.start, ("none", "search"))

    def warm_up(self) -> None:
        """Compile the kernels."""
        from rematbench.engines.intervals.planner import warm_up  # not in the solver's process

        warm_up()

    def plan(self, problem: Problem) -> Solution:
        """The best plan when the time is up, or its solver's process is gone.

        Raises:
            NotApplicable: an op overwrites what it reads, or OR-tools is missing.
            Infeasible: no plan was found; ``proven`` where there is none with C computes.
            ExecutionError: the solver's process died before it found a plan.
        """
        started = perf_counter()
        graph, order = problem.graph, program_order(problem.graph)
        trace = simulate(graph, order)
        if problem.budget is None or trace.peak_bytes <= problem.budget:
            return Solution(order, trace.cost, "C")
        check(graph, problem.budget)
        if self.computes == 1:
            raise Infeasible(
                f"with strategy.computes=1 nothing is computed again, and the peak stays at "
                f"{trace.peak_bytes} bytes; the budget is {problem.budget}: allow 2 computes",
                smallest_peak_found=trace.peak_bytes,
                proven=True,
            )
        _require()
        scaled = instance_of(graph, problem.budget, trace.peak_bytes, self.computes)
        search = _SolverSearch(problem, scaled, started, max(self.gap, _SAME))
        search.progress.see(trace.peak_bytes)
        threads = self.threads or available_threads()
        with search.progress.interruptible():
            start = search.start(self.computes) if self.start == "search" else None
            seconds = max(0.0, problem.time_limit - (perf_counter() - started))
            limits = (seconds, threads, problem.seed, self.gap, start)
            with solving(SolverProcess(scaled.instance, *limits)) as process:
                search.follow(process)
        return search.solution(self.computes)


class _SolverSearch:
    """What the solver's process has said so far."""

    def __init__(self, problem: Problem, scaled: Scaled, started: float, gap: float) -> None:
        self.problem, self.scaled, self.started = problem, scaled, started
        self.progress = Progress(started, gap, problem.report, perf_counter, problem.hand_over)
        self.progress.bound = scaled.base_cost
        self.status = "time_limit"
        self.fault: str | None = None
        self.fitted_seconds: float | None = None

    def start(self, computes: int) -> list[int] | None:
        """Computes of the cheapest plan within the budget that annealing finds, until it stalls."""
        problem, best = self.problem, None
        assert problem.budget is not None
        begun = perf_counter()
        until = begun + _START_SHARE * max(0.0, self.started + problem.time_limit - begun)
        asked = replace(problem, time_limit=until - begun)
        search = _intervals().Improver(asked, problem.budget, begun, 0.0, computes)
        search.take_warm_starts()
        stalls = begun + _PATIENCE * len(self.scaled.ops)
        for _ in search.anneal():
            self.progress.rest()
            plan, now = search.progress.plan, perf_counter()
            if plan is not None and search.progress.cost < self.progress.cost:
                best = self.scaled.order(plan)
                self._offer(best)
                stalls = now + max(_STALLED_SECONDS, now - begun)
            if now > min(until, stalls):
                break
        if search.progress.leanest is not None:
            self.progress.see(search.progress.leanest)
        return best

    def follow(self, process: SolverProcess) -> None:
        """Take the messages; an interrupt ends it."""
        for message in process.messages():
            self.progress.rest()
            if message is None:
                continue
            if "order" in message:
                self._offer(message["order"])
            if "bound" in message:
                bound = self.scaled.bound(message["bound"])
                self.progress.raise_bound(min(bound, self.progress.cost), _SAME)
            self.status = message.get("end", self.status)
        self.fault = process.fault

    def _offer(self, order: list[int]) -> None:
        plan = self.scaled.plan(order)
        trace = simulate(self.problem.graph, plan)
        self.progress.see(trace.peak_bytes)
        assert self.problem.budget is not None
        if trace.peak_bytes <= self.problem.budget:
            if self.fitted_seconds is None:
                self.fitted_seconds = perf_counter() - self.started
            self.progress.offer(trace.cost, plan)

    def solution(self, computes: int) -> Solution:
        """The incumbent.

        Raises:
            Infeasible: it is proven that there is none.
            Stopped: none was found in time.
            ExecutionError: the solver's process died before there was one.
        """
        progress, budget = self.progress, self.problem.budget
        if progress.plan is None and self.fault is not None:
            raise ExecutionError(f"moccasin: {self.fault}")
        if progress.plan is None:
            if self.status != "infeasible":
                raise without_plan(self.problem, None, progress.leanest, ", or use anytime")
            raise Infeasible(
                f"no plan with at most {computes} computes of an op is within {budget} bytes; "
                f"strategy.computes={computes + 1} allows more",
                smallest_peak_found=progress.leanest,
                proven=True,
            )
        facts: dict[str, Any] = {
            "computes": computes,
            "fitted_seconds": self.fitted_seconds,
            "solver_status": self.fault or self.status,
            **progress.details(),
        }
        return Solution(
            progress.plan,
            min(progress.bound, progress.cost),
            "C",
            solver=_version(),
            details=facts,
        )


def _intervals() -> ModuleType:
    """The search for a start, imported late: the solver's process has no use for it."""
    from rematbench.engines.intervals import improve

    return improve


def _require() -> None:
    if importlib.util.find_spec("ortools") is None:
        raise NotApplicable(
            "moccasin needs OR-tools, which is not installed; "
            "install it with pip install 'rematbench[moccasin]'"
        )


def _version() -> str:
    from importlib.metadata import version

    return f"ortools {version('ortools')}"
