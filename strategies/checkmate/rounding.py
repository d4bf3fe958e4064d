"""Two-phase rounding of the linear relaxation of (9) (Checkmate, section 5 and appendix D)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, ClassVar, Literal

import numpy as np

from rematbench.graphs.errors import ConfigError, Infeasible
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.strategies.base import (
    Problem,
    Solution,
    Traits,
    cheapest_within,
    check_choice,
    check_share,
    fitted,
)
from rematbench.strategies.checkmate.paper import Nodes
from rematbench.strategies.checkmate.paper_model import PaperModel
from rematbench.strategies.scheduling.solver import SOLVER
from rematbench.strategies.stages import (
    BoolArray,
    FloatArray,
    optimal_recomputation,
    plan_from_stages,
)

EPSILONS = tuple(k / 20 for k in range(20))
THRESHOLDS = tuple(k / 20 for k in range(1, 20))
PAPER = {"epsilon": 0.1, "threshold": 0.5}

Candidate = tuple[dict[str, Any], Callable[[], Plan]]


def two_phase(graph: Graph, kept: BoolArray) -> Plan:
    """The plan for a rounded S, with the R that S calls for (Algorithm 2)."""
    return plan_from_stages(graph, optimal_recomputation(graph, kept))


def round_at(fractional: FloatArray, threshold: float) -> BoolArray:
    """Deterministic rounding: 1 above the threshold."""
    rounded: BoolArray = fractional > threshold
    return rounded


def sample(fractional: FloatArray, random: np.random.Generator) -> BoolArray:
    """Randomized rounding: 1 with the entry's value as probability."""
    rounded: BoolArray = random.random(fractional.shape) < fractional
    return rounded


def is_correct(nodes: Nodes, computed: BoolArray, kept: BoolArray) -> bool:
    """Do R and S satisfy (8a), (1b) and (1c), with the outputs there at the end?

    Args:
        nodes: the graph.
        computed, kept: lower triangular R and strictly lower triangular S.
    """
    there = computed | kept
    wanted_next = np.zeros_like(kept)
    wanted_next[:-1] = kept[1:]
    wanted_next[-1, [i - 1 for i in nodes.outputs]] = True
    i, j = (np.array(nodes.edges, dtype=np.int64).reshape(-1, 2) - 1).T
    return bool(
        computed.diagonal().all()
        and (there[:, i] | ~computed[:, j]).all()
        and (there | ~wanted_next).all()
    )


@dataclass(frozen=True)
class CheckmateRounding:
    """Checkmate's approximation: round the linear relaxation of problem (9).

    The relaxation is solved for (1 - epsilon) of the budget, S is rounded, and R is what S calls
    for. The cheapest plan whose simulated peak is within the whole budget wins.

    Attributes:
        rounding: ``deterministic`` or ``randomized``.
        epsilon: share of the budget that the relaxation may not use (the paper's is 0.1); None
            searches.
        threshold: above which deterministic rounding makes a 1 (the paper's is 0.5); None
            searches.
        samples: of randomized rounding, per epsilon.
        naive: round R as well instead of deriving it (section 5.1); most results are not plans.
        threads: of HiGHS.
        max_ops: refuse graphs with more.

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    rounding: Literal["deterministic", "randomized"] = "deterministic"
    epsilon: float | None = None
    threshold: float | None = None
    samples: int = 50
    naive: bool = False
    threads: int = 1
    max_ops: int = 200

    def __post_init__(self) -> None:
        check_choice("rounding", self.rounding, ("deterministic", "randomized"))
        check_share("epsilon", self.epsilon)
        check_share("threshold", self.threshold)
        if self.samples < 1:
            raise ConfigError(f"strategy.samples is {self.samples}; give 1 or more")

    def plan(self, problem: Problem) -> Solution:
        """The cheapest rounded plan within the budget; ``bound`` is that of the relaxation.

        Raises:
            NotApplicable: the graph is too large, or has ops that overwrite what they read.
            Infeasible: the relaxation has no solution, or no rounded plan is in the budget.
        """
        started = perf_counter()
        if problem.budget is None:
            return fitted(problem, program_order(problem.graph), variant=self._variant)
        search = _Search(self, problem, problem.budget, started)
        knob, plan, trace, curve = search.best()
        fits = [point["peak_bytes"] <= problem.budget for point in curve]
        return Solution(
            plan,
            bound=search.bound,
            bound_of="9",
            objective=trace.cost,
            variant=self._variant,
            solver=SOLVER,
            seconds=perf_counter() - started,
            details={
                **search.paper.size,
                **knob,
                "ratio_to_bound": trace.cost / search.bound if search.bound else 1.0,
                "tried": search.tried,
                "feasible": sum(fits),
                "feasible_share": sum(fits) / search.tried,
                "paper_setting": _paper_setting(curve, problem.budget),
                "relaxation_costs": search.costs,
                "curve": [{**p.pop("knob"), **p} for p in curve],
            },
        )

    @property
    def _variant(self) -> str:
        return f"naive {self.rounding}" if self.naive else self.rounding


def _paper_setting(curve: list[dict[str, Any]], budget: int) -> dict[str, Any] | None:
    """What the paper's epsilon and threshold gave, if they were tried."""
    point = next((point for point in curve if point["knob"] == PAPER), None)
    if point is None:
        return None
    cost, peak = point["cost"], point["peak_bytes"]
    return {"cost": cost, "peak_bytes": peak, "feasible": peak <= budget}


class _Search:
    """Relaxations for one epsilon after another, and the plans rounded from them.

    Attributes:
        bound: cost of the relaxation at the whole budget.
        costs: cost of the relaxation per epsilon, as pairs.
        tried: number of roundings, those included that are not plans.
    """

    def __init__(
        self, options: CheckmateRounding, problem: Problem, budget: int, started: float
    ) -> None:
        self.options, self.problem, self.budget = options, problem, budget
        self.deadline = started + problem.time_limit
        self.random = np.random.default_rng(problem.seed)
        self.paper = PaperModel(problem.graph, budget, most=options.max_ops)
        self.costs: list[tuple[float, float]] = []
        self.tried = 0
        self.bound = self._relax(0.0)

    def _relax(self, epsilon: float) -> float:
        self.paper.change_budget((1 - epsilon) * self.budget)
        outcome = self.paper.relax(
            time_limit=self.deadline - perf_counter(),
            threads=self.options.threads,
            seed=self.problem.seed,
        )
        return outcome.bound

    def best(self) -> Any:
        """As :func:`cheapest_within`."""
        left = max(0.0, self.deadline - perf_counter())
        try:
            return cheapest_within(replace(self.problem, time_limit=left), self._candidates())
        except Infeasible as error:
            if error.smallest_peak_found is not None:
                raise
            reason = f"none of {self.tried} roundings satisfies (1b) and (1c)"
            if not self.tried:
                reason = f"no relaxation at epsilon {self.options.epsilon} within the time limit"
            raise Infeasible(reason) from None

    def _candidates(self) -> Iterator[Candidate]:
        given = self.options.epsilon
        for epsilon in EPSILONS if given is None else (given,):
            try:
                self.costs.append((epsilon, self._relax(epsilon) if epsilon else self.bound))
            except Infeasible:
                return  # larger epsilons are infeasible as well, or time is up
            computed, kept = self.paper.matrices()
            for knob, make_binary in self._roundings():
                self.tried += 1
                candidate = self._candidate(make_binary, computed, kept)
                if candidate is not None:
                    yield {"epsilon": epsilon, **knob}, candidate

    def _roundings(self) -> Iterator[tuple[dict[str, Any], Callable[[FloatArray], BoolArray]]]:
        if self.options.rounding == "randomized":
            for number in range(self.options.samples):
                yield {"sample": number}, partial(sample, random=self.random)
            return
        given = self.options.threshold
        for threshold in THRESHOLDS if given is None else (given,):
            yield {"threshold": threshold}, partial(round_at, threshold=threshold)

    def _candidate(
        self,
        make_binary: Callable[[FloatArray], BoolArray],
        computed: FloatArray,
        kept: FloatArray,
    ) -> Callable[[], Plan] | None:
        """A plan in the making, or None where rounding breaks what makes it one."""
        graph, kept_now = self.problem.graph, make_binary(kept)
        if not self.options.naive:
            return partial(two_phase, graph, kept_now)
        computed_now = make_binary(computed)
        if not is_correct(self.paper.nodes, computed_now, kept_now):
            return None
        return partial(plan_from_stages, graph, computed_now)
