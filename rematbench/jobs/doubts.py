"""What puts a row in doubt: a bound above its plan's cost, a measured peak above the budget."""

from __future__ import annotations

from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import in_program_order
from rematbench.graphs.planning import Solution
from rematbench.graphs.simulate import Trace
from rematbench.rows.row import Row, is_over_budget, sure

ROUNDING = 1e-9
"""Share of a cost that sums of up to a million floating-point costs in two orders may differ by."""
THREADS, MOMENT = 1.05, 0.25
"""Processor seconds per second and thread that pass for one thread's, and seconds beyond that."""
_OURS = "rematbench.strategies."


def judge_bound(row: Row, graph: Graph, solution: Solution, trace: Trace, target: str) -> None:
    """Put bound and gap into a row, or refuse the bound where the plan costs less than it.

    A bound says nothing of plans outside the space that it names (``bound_of``). Inside, plan and
    bound contradict each other, and a strategy of ours has failed.

    Args:
        target: dotted path of the strategy's class.
    """
    bound, cost = solution.bound, trace.cost
    if bound is None:
        return
    if bound <= cost + ROUNDING * abs(cost):
        gap = max(0.0, cost - bound) / cost if cost else 0.0
        row |= {"bound": bound, "bound_of": solution.bound_of, "gap": gap}
        return
    row["extra"]["refused_bound"] = bound
    said = f"its bound of {bound:.17g} ({solution.bound_of}) is above the plan's cost {cost:.17g}"
    assert solution.plan is not None
    if solution.bound_of == "any" and not in_program_order(graph, solution.plan):
        row["reason"] = f"{said}: refused, since the plan is not in program order"
    elif target.startswith(_OURS):
        row |= {"status": "failed", "reason": f"{said}: a fault of the strategy; please report it"}
    else:
        row["reason"] = f"{said}: the bound is refused"


def judge_peak(row: Row) -> None:
    """Say where a plan that is within its budget was measured above it.

    What the simulator cannot know explains an excess: workspaces, where nobody measured them, and
    the rounding of CUDA's allocator. Without such a cause the row has failed.
    """
    if row["status"] != "ok" or not is_over_budget(row):
        return
    budget, measured = sure(row["budget_bytes"]), sure(row["measured_peak_bytes"])
    excess = int(measured - budget)
    row["extra"]["over_budget_bytes"] = excess
    said = f"measured {excess} bytes above the budget"
    if row["costmodel"] != "profiled":
        why = f"costmodel={row['costmodel']} knows no workspaces; plan with costmodel=profiled"
        row["reason"] = f"{said}: {why}"
    elif (row["extra"].get("requested_bytes") or measured) <= budget:
        row["reason"] = f"{said}: the caching allocator rounds up"
    else:
        row |= {"status": "failed", "reason": f"{said}, which the simulator does not account for"}


def judge_threads(row: Row) -> None:
    """Say where a planner was busy in more threads than it was given (``threads=``)."""
    wall, cpu = row["plan_seconds"] or 0.0, row["extra"]["plan_cpu_seconds"]
    if row["threads"] and cpu > row["threads"] * (THREADS * wall) + MOMENT:
        row["extra"]["threads_used"] = cpu / wall
