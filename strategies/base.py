"""A strategy is a pure planner from a :class:`Problem` to a :class:`Solution`.

The types are in :mod:`rematbench.graphs.planning`; here is what planners share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from rematbench.base.clock import OutOfTime, available_threads, planning_seconds
from rematbench.base.errors import ConfigError, Infeasible, Stopped
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import (
    BoundOf,
    CheckpointedRun,
    ChoosesImplementations,
    CompiledRun,
    Degree,
    NativeRun,
    Problem,
    Solution,
    Strategy,
    SupportsWarmStart,
    SupportsWarmUp,
    Traits,
    Verdict,
)
from rematbench.graphs.simulate import Trace, simulate

__all__ = [
    "BoundOf",
    "CheckpointedRun",
    "ChoosesImplementations",
    "CompiledRun",
    "Degree",
    "NativeRun",
    "Problem",
    "Solution",
    "Strategy",
    "SupportsWarmStart",
    "SupportsWarmUp",
    "Traits",
    "Verdict",
    "available_threads",
    "cheapest_within",
    "check_choice",
    "check_share",
    "cost_of_once",
    "fitted",
    "without_plan",
]


def cheapest_within(
    problem: Problem, candidates: Iterable[tuple[Any, Callable[[], Plan]]]
) -> tuple[Any, Plan, Trace, list[dict[str, Any]]]:
    """Simulate each candidate plan and keep the cheapest whose peak fits the budget.

    Args:
        candidates: pairs of a knob's value and a function that makes the plan.

    Returns:
        The winning knob, its plan and trace, and the whole trade-off curve as one
        ``{"knob", "cost", "peak_bytes"}`` per candidate tried within the time limit.

    Raises:
        Infeasible: no candidate fits; carries the smallest peak seen.
        Stopped: none did until the time was up.
    """
    started = planning_seconds()
    best: tuple[Any, Plan, Trace] | None = None
    curve: list[dict[str, Any]] = []
    stopped = False
    try:
        for knob, make in candidates:
            plan = make()
            trace = simulate(problem.graph, plan)
            curve.append({"knob": knob, "cost": trace.cost, "peak_bytes": trace.peak_bytes})
            fits = problem.budget is None or trace.peak_bytes <= problem.budget
            if fits and (
                best is None or (trace.cost, trace.peak_bytes) < (best[2].cost, best[2].peak_bytes)
            ):
                best = (knob, plan, trace)
                problem.hand_over(Solution(plan))
            stopped = planning_seconds() - started > problem.time_limit
            if stopped:
                break
    except OutOfTime:
        stopped = True
    if best is None:
        raise _none_fits(problem, [point["peak_bytes"] for point in curve], stopped)
    return (*best, curve)


def _none_fits(problem: Problem, peaks: list[int], stopped: bool) -> Infeasible:
    smallest = min(peaks, default=None)
    if not peaks:
        reason = "no plan was made"
    else:
        reason = f"the leanest of {len(peaks)} plans tried needs {smallest} bytes, "
        reason += f"the budget is {problem.budget}"
    if not stopped:
        return Infeasible(reason, smallest_peak_found=smallest)
    reason += f"; it was stopped after {problem.time_limit:g} s: give more time_limit"
    return Stopped(reason, smallest_peak_found=smallest)


def without_plan(
    problem: Problem, proven: str | None, smallest_peak: int | None, advice: str = ""
) -> Infeasible:
    """What an anytime planner raises that has no plan within the budget.

    Args:
        proven: what has no plan, where that is proven: ``Checkmate's problem (9)``.
        smallest_peak: the smallest peak seen, in bytes, or None.
        advice: what else one may do than to give more time or budget.
    """
    if proven is not None:
        reason = f"{proven} has no plan within {problem.budget} bytes"
        return Infeasible(reason, smallest_peak_found=smallest_peak, proven=True)
    reason = f"no plan within {problem.budget} bytes was found in {problem.time_limit:g} s; "
    reason += "give more time or budget" + advice
    return Stopped(reason, smallest_peak_found=smallest_peak)


def fitted(problem: Problem, plan: Plan, **facts: Any) -> Solution:
    """A :class:`Solution` for a planner without a knob.

    Raises:
        Infeasible: the plan's simulated peak is above the budget.
    """
    _, plan, _, _ = cheapest_within(problem, [(None, lambda: plan)])
    return Solution(plan, **facts)


def check_choice(option: str, value: Any, choices: Collection[Any]) -> None:
    """Refuse an option that is none of ``choices``; None is ``null`` in a configuration.

    Raises:
        ConfigError: it is none of them.
    """
    if value not in choices:
        *others, last = ("null" if each is None else str(each) for each in choices)
        one_of = f"{', '.join(others)} or {last}" if others else last
        raise ConfigError(f"strategy.{option} is {value!r}; choose {one_of}")


def check_share(option: str, value: float | None) -> None:
    """Refuse a number that is no share below 1; None is not given.

    Raises:
        ConfigError: it is not from 0 to below 1.
    """
    if value is not None and not 0 <= value < 1:
        raise ConfigError(f"strategy.{option} is {value}; give a number from 0 to below 1")


def cost_of_once(graph: Graph) -> float:
    """Every needed op once, in its cheapest implementation: no plan costs less."""
    pairs = zip(graph.ops, graph.always_needed_ops(), strict=True)
    return float(
        sum(min(i.cost for i in op.implementations) for op, is_needed in pairs if is_needed)
    )
