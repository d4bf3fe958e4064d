"""What planners answer: the cheapest candidate within a budget, or why there is none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from rematbench.base.clock import OutOfTime, planning_seconds
from rematbench.base.errors import Infeasible, Stopped
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import BoundOf, Problem, Solution
from rematbench.graphs.simulate import Trace, simulate


def cheapest_within(
    problem: Problem, candidates: Iterable[tuple[Any, Plan]]
) -> tuple[Any, Plan, Trace, list[dict[str, Any]]]:
    """Simulate each candidate plan and keep the cheapest whose peak fits the budget.

    Args:
        candidates: pairs of a knob's value and its plan; from a generator, since no more are asked
            for once time is up.

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
        for knob, plan in candidates:
            trace = simulate(problem.graph, plan, problem.link)
            curve.append({"knob": knob, "cost": trace.cost, "peak_bytes": trace.peak_bytes})
            fits = problem.holds(trace.peak_bytes, trace.host_peak_bytes)
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
    problem: Problem,
    proven: str | None,
    smallest_peak: int | None,
    advice: str = "",
    spaces: Sequence[BoundOf] = (),
) -> Infeasible:
    """What an anytime planner raises that has no plan within the budget.

    Args:
        proven: what has no plan, where that is proven: ``Checkmate's problem (9)``.
        smallest_peak: the smallest peak seen, in bytes, or None.
        advice: what else one may do than to give more time or budget.
        spaces: of ``proven``, as bounds name them, for the row's ``no_plan_in``.
    """
    if proven is not None:
        reason = f"{proven} has no plan within {problem.budget} bytes"
        details = {"no_plan_in": [*spaces]} if spaces else None
        return Infeasible(reason, smallest_peak, proven=True, details=details)
    reason = f"no plan within {problem.budget} bytes was found in {problem.time_limit:g} s; "
    reason += "give more time or budget" + advice
    return Stopped(reason, smallest_peak_found=smallest_peak)


def fitted(problem: Problem, plan: Plan, **facts: Any) -> Solution:
    """A :class:`Solution` for a planner without a knob.

    Raises:
        Infeasible: the plan's simulated peak is above the budget.
    """
    _, plan, _, _ = cheapest_within(problem, [(None, plan)])
    return Solution(plan, **facts)


def cost_of_once(graph: Graph) -> float:
    """Every needed op once, in its cheapest implementation: no plan costs less."""
    pairs = zip(graph.ops, graph.always_needed_ops(), strict=True)
    return float(
        sum(min(i.cost for i in op.implementations) for op, is_needed in pairs if is_needed)
    )
