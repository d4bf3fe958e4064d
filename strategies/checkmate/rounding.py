"""Two-phase rounding of the linear relaxation of (9) (Checkmate, section 5 and appendix D)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Any, ClassVar, Literal

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.base.errors import ConfigError, Infeasible, Stopped
from rematbench.engines.lp.solver import SOLVER
from rematbench.engines.plans.stages import (
    BoolArray,
    FloatArray,
    dependencies,
    needed,
    optimal_recomputation,
    plan_from_stages,
)
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import (
    Problem,
    Solution,
    Traits,
    cheapest_within,
    check_choice,
    check_share,
    fitted,
)
from rematbench.strategies.checkmate.fractional import NAMES, RelaxationName, relaxation

EPSILONS = tuple(k / 20 for k in range(20))
THRESHOLDS = tuple(k / 20 for k in range(1, 20))
PAPER = {"epsilon": 0.1, "threshold": 0.5}

Candidate = tuple[dict[str, Any], Plan]


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


def is_correct(graph: Graph, computed: BoolArray, kept: BoolArray) -> bool:
    """Do R and S satisfy (8a), (1b) and (1c), with the outputs there at the end?

    Args:
        computed, kept: lower triangular R and strictly lower triangular S.
    """
    there = computed | kept
    wanted_next = np.zeros_like(kept)
    wanted_next[:-1] = kept[1:]
    writers = graph.tables.writer[graph.tables.outputs]
    wanted_next[-1, np.searchsorted(needed(graph), writers[writers >= 0])] = True
    i, j = np.nonzero(dependencies(graph))
    return bool(
        computed.diagonal().all()
        and (there[:, i] | ~computed[:, j]).all()
        and (there | ~wanted_next).all()
    )


@dataclass(frozen=True)
class CheckmateRounding:
    """Checkmate's approximation: round the linear relaxation of problem (9).

    The relaxation is solved for (1 - epsilon) of the budget, S is rounded, and R is what S calls
    for. The cheapest plan whose simulated peak is within the whole budget wins. The search ends at
    the epsilon whose relaxation alone costs as much as the best plan.

    Attributes:
        relaxation: ``full``, of (9), with memory rows on demand; ``reduced``, of F, whose optimum
            is as high as a rule and which is solved faster; ``paths``, of F with path rows, which
            is not in the paper and often rounds to cheaper plans; ``printed``, of (9) as printed,
            for up to 200 ops.
        rounding: ``deterministic`` or ``randomized``.
        epsilon: share of the budget that the relaxation may not use (the paper's is 0.1); None
            searches.
        threshold: above which deterministic rounding makes a 1 (the paper's is 0.5); None
            searches.
        samples: of randomized rounding, per epsilon.
        naive: round R as well instead of deriving it (section 5.1); most results are not plans.
        threads: of HiGHS, for ``printed``; the others take one.
        max_ops: refuse graphs with more ops; null: with more than take minutes (1000; 2500 for
            ``reduced``; 200 for ``printed``).

    Raises:
        ConfigError: an option is out of its range.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True)
    rounding: Literal["deterministic", "randomized"] = "deterministic"
    relaxation: RelaxationName = "full"
    epsilon: float | None = None
    threshold: float | None = None
    samples: int = 50
    naive: bool = False
    threads: int = 1
    max_ops: int | None = None

    def __post_init__(self) -> None:
        check_choice("rounding", self.rounding, ("deterministic", "randomized"))
        check_choice("relaxation", self.relaxation, NAMES)
        check_share("epsilon", self.epsilon)
        check_share("threshold", self.threshold)
        if self.samples < 1:
            raise ConfigError(f"strategy.samples is {self.samples}; give 1 or more")

    def plan(self, problem: Problem) -> Solution:
        """The cheapest rounded plan within the budget; ``bound`` is that of the relaxation.

        Raises:
            NotApplicable: the graph is too large, or has ops that overwrite what they read.
            Infeasible: the relaxation has no solution, or no rounded plan is in the budget.
            Stopped: the relaxation was not solved in time.
        """
        started = planning_seconds()
        if problem.budget is None or problem.graph.needed_ops().sum() <= 1:  # nothing to choose
            return fitted(problem, program_order(problem.graph), variant=self._variant)
        search = _Search(self, problem, problem.budget, started)
        knob, plan, trace, curve = search.best()
        fits = [point["peak_bytes"] <= problem.budget for point in curve]
        return Solution(
            plan,
            bound=search.bound,
            bound_of=search.relaxed.bound_of,
            objective=trace.cost,
            variant=self._variant,
            solver=SOLVER,
            details={
                **search.relaxed.size,
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
        words = [self.relaxation] if self.relaxation != "full" else []
        return " ".join([*words, *(["naive"] if self.naive else []), self.rounding])


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
        relaxed: what is rounded.
        bound: cost of the relaxation at the whole budget.
        cheapest: cost of the best plan within the budget so far.
        costs: cost of the relaxation per epsilon, as pairs.
        tried: number of roundings, those included that are not plans.
    """

    def __init__(
        self, options: CheckmateRounding, problem: Problem, budget: int, started: float
    ) -> None:
        self.options, self.problem, self.budget = options, problem, budget
        self.deadline = started + problem.time_limit
        self.random = np.random.default_rng(problem.seed)
        self.relaxed = relaxation(
            options.relaxation,
            problem.graph,
            budget,
            options.max_ops,
            options.threads,
            problem.seed,
        )
        self.cheapest = inf
        self.costs: list[tuple[float, float]] = []
        self.tried = 0
        self.bound = self._relax(0.0)

    def _relax(self, epsilon: float) -> float:
        return self.relaxed.relax(1 - epsilon, self.deadline)

    def best(self) -> Any:
        """As :func:`cheapest_within`."""
        left = max(0.0, self.deadline - planning_seconds())
        try:
            return cheapest_within(replace(self.problem, time_limit=left), self._candidates())
        except Infeasible as error:
            if error.smallest_peak_found is not None:
                raise
            if self.tried:
                reason = f"none of {self.tried} roundings satisfies (1b) and (1c)"
                raise Infeasible(reason) from None
            at = f"the relaxation at epsilon {self.options.epsilon}"
            if planning_seconds() > self.deadline:
                raise Stopped(f"{at} was not solved in time; give more time_limit") from None
            raise Infeasible(f"{at} has no solution; give a smaller one") from None

    def _candidates(self) -> Iterator[Candidate]:
        given = self.options.epsilon
        for epsilon in EPSILONS if given is None else (given,):
            try:
                self.costs.append((epsilon, self._relax(epsilon) if epsilon else self.bound))
            except Infeasible:
                return  # larger epsilons are infeasible as well, or time is up
            if self.costs[-1][1] >= self.cheapest:
                return
            computed, kept = self.relaxed.matrices()
            for knob, make_binary in self._roundings():
                self.tried += 1
                plan = self._rounded(make_binary, computed, kept)
                if plan is not None:
                    trace = simulate(self.problem.graph, plan)
                    if trace.peak_bytes <= self.budget:
                        self.cheapest = min(self.cheapest, trace.cost)
                    yield {"epsilon": epsilon, **knob}, plan

    def _roundings(self) -> Iterator[tuple[dict[str, Any], Callable[[FloatArray], BoolArray]]]:
        if self.options.rounding == "randomized":
            for number in range(self.options.samples):
                yield {"sample": number}, partial(sample, random=self.random)
            return
        given = self.options.threshold
        for threshold in THRESHOLDS if given is None else (given,):
            yield {"threshold": threshold}, partial(round_at, threshold=threshold)

    def _rounded(
        self,
        make_binary: Callable[[FloatArray], BoolArray],
        computed: FloatArray,
        kept: FloatArray,
    ) -> Plan | None:
        """A plan, or None where rounding breaks what makes it one."""
        graph, kept_now = self.problem.graph, make_binary(kept)
        if not self.options.naive:
            return two_phase(graph, kept_now)
        computed_now = make_binary(computed)
        if not is_correct(graph, computed_now, kept_now):
            return None
        return plan_from_stages(graph, computed_now)
