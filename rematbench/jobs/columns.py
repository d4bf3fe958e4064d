"""A row's columns by stage: pure functions of a task, its plan, and what was measured of it."""

from __future__ import annotations

import os
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from rematbench.base.clock import OutOfTime
from rematbench.base.errors import (
    Infeasible,
    InvalidPlan,
    NotApplicable,
    RematbenchError,
    is_out_of_memory,
)
from rematbench.base.origin import accuse, one_line, place
from rematbench.graphs.allocator import replay
from rematbench.graphs.copies import ENGINES, Copies
from rematbench.graphs.ir import Graph, Phase
from rematbench.graphs.plan import Plan, in_program_order
from rematbench.graphs.planning import NativeRun, Solution, Verdict
from rematbench.graphs.simulate import Trace
from rematbench.jobs.handed_over import Incumbents
from rematbench.jobs.settings import Settings
from rematbench.jobs.task import Task
from rematbench.rows.extra import Extra
from rematbench.rows.measured import LoweredFacts, LoweredRun, NativeFacts
from rematbench.rows.memory_parts import memory_parts
from rematbench.rows.row import COLUMNS, Columns, Outcome

if TYPE_CHECKING:
    from rematbench.validator import Measurement
    from rematbench.validator.native import Native

ROUNDING = 1e-9
"""Share of a cost that sums of up to a million floating-point costs in two orders may differ by."""
THREADS, MOMENT = 1.05, 0.25
"""Processor seconds per second and thread that pass for one thread's, and seconds beyond that."""
_OURS = "rematbench.strategies."


def of_task(task: Task) -> Columns:
    """What is known before anything is planned."""
    graph, base = task.graph, task.base
    budget_base, base_bytes = task.budget_base
    extra: dict[str, Any] = {
        "floor_bytes": graph.floor_bytes(),
        "once_floor_bytes": task.once_floor,
        "resident_bytes": graph.resident_bytes,
        "forward_cost": forward_cost(graph),
        "budget_base": budget_base,
    }
    if task.stream is not None:
        extra["banishing_peak_bytes"] = base_bytes
    if task.link.both:
        extra["link"] = task.settings.link.as_json()
    if task.settings.host is not None:
        extra["host_bytes"] = task.settings.host
    return {
        "graph_hash": graph.hash,
        "ops": len(graph.ops),
        "values": len(graph.values),
        "variant": task.settings.options.get("variant"),  # until a plan says which it is of
        "budget_bytes": task.budget,
        "cost_unit": graph.cost_unit,
        "checkpoint_all_cost": base.cost,
        "checkpoint_all_peak_bytes": base.peak_bytes,
        "extra": extra,
    }


def forward_cost(graph: Graph) -> float:
    """What checkpoint-all's forward pass costs, without the loss, in the graph's cost unit."""
    pairs = zip(graph.ops, graph.needed_ops(), strict=True)
    needed = [op.implementations[0] for op, is_ in pairs if is_ and op.phase is Phase.FORWARD]
    return float(sum(implementation.cost for implementation in needed))


def of_planning(
    seconds: float,
    cpu_seconds: float,
    threads: int | None,
    stopped: bool = False,
    incumbents: Incumbents = (),
) -> Columns:
    """How long the planner took.

    Args:
        threads: that it was given; None: one per core.
        stopped: was it stopped at its time limit?
        incumbents: the plans that it handed over, where it keeps no list of them.
    """
    threads = threads or os.cpu_count()
    extra: dict[str, Any] = {"plan_cpu_seconds": cpu_seconds}
    if stopped:
        extra["stopped"] = True
    if incumbents:
        extra["incumbents"] = incumbents
    if threads and cpu_seconds > threads * (THREADS * seconds) + MOMENT:
        extra["threads_used"] = cpu_seconds / seconds
    return {"plan_seconds": seconds, "extra": extra}


def of_verdict(solution: Solution, verdict: Verdict) -> Columns:
    """Of a strategy that is its own judge, and makes no plan."""
    cost = verdict.cost if verdict.status == "ok" else None  # of the whole log
    # Until nothing was left to evict, it kept to the budget: no peak that a run would do with.
    peak = None if verdict.status == "infeasible" else verdict.peak_bytes
    return {
        "status": verdict.status,
        "reason": verdict.reason,
        "variant": solution.variant,
        "cost": cost,
        "checkpoint_all_cost": verdict.base_cost,
        "overhead": ratio(cost, verdict.base_cost),
        "recomputations": verdict.recomputations,
        "peak_bytes": peak,
        "checkpoint_all_peak_bytes": verdict.base_peak_bytes,
        "extra": solution.details,
    }


def of_plan(task: Task, plan: Plan, solution: Solution, trace: Trace) -> Columns:
    """Of a plan, as simulated."""
    captured, graph = task.captured, task.graph
    known = (None, ()) if captured is None else (captured.kinds, captured.gradient_values)
    extra: dict[str, Any] = {
        **solution.details,
        "plan_hash": plan.hash(graph),
        "in_program_order": in_program_order(graph, plan),
        "memory": memory_parts(graph, trace, *known),
    }
    if solution.native is not None:
        extra["native"] = solution.native.as_json()
    if task.settings.allocator == "cuda":
        extra |= allocation_facts(graph, plan)
    if trace.copies is not None:
        extra |= facts_of_copies(trace.copies)
    return {
        **_kept(task, trace),
        "variant": solution.variant,
        "cost": trace.cost,
        "overhead": ratio(trace.cost, task.base.cost),
        "objective": solution.objective,
        "recomputations": trace.recomputations,
        "checkpoints": trace.checkpoints,
        "peak_bytes": trace.peak_bytes,
        "solver": solution.solver,
        "extra": extra,
    }


def _kept(task: Task, trace: Trace) -> Columns:
    """Does a plan keep to the budget, and to the host's limit?"""
    limit, host = task.settings.host, trace.host_peak_bytes
    if task.budget is not None and trace.peak_bytes > task.budget:
        reason = f"the plan peaks at {trace.peak_bytes} bytes, the budget is {task.budget} "
        return {"status": "infeasible", "reason": reason + f"(not proven{_below_once(task)})"}
    if limit is not None and host > limit:
        reason = f"the plan peaks at {host} bytes on the host, host= allows {limit} (not proven)"
        return {"status": "infeasible", "reason": reason}
    return {"status": "ok"}


def facts_of_copies(copies: Copies) -> dict[str, Any]:
    """What a plan does with the host, as the row has it."""
    return {
        "host_peak_bytes": copies.host_peak_bytes,
        "offloaded_bytes": copies.out_bytes,
        "fetched_bytes": copies.in_bytes,
        "waiting": dict(zip(ENGINES, copies.waiting, strict=True)),
        "compute_cost": copies.compute_cost,
    }


def allocation_facts(graph: Graph, plan: Plan) -> dict[str, int]:
    """What CUDA's caching allocator would reserve for a plan, as the row has it."""
    found = replay(graph, plan)
    return {
        "modelled_reserved_bytes": found.reserved,
        "modelled_fragmentation_bytes": found.fragmentation,
        "modelled_segments": found.segments,
    }


def of_bound(graph: Graph, plan: Plan, solution: Solution, trace: Trace, target: str) -> Columns:
    """Bound and gap; or why the bound is refused, where the plan costs less than it.

    A bound says nothing of plans outside the space that it names (``bound_of``). Inside, plan and
    bound contradict each other, and a strategy of ours has failed.

    Args:
        target: dotted path of the strategy's class.
    """
    bound, cost = solution.bound, trace.cost
    if bound is None:
        return {}
    if bound <= cost + ROUNDING * abs(cost):
        gap = max(0.0, cost - bound) / cost if cost else 0.0
        return {"bound": bound, "bound_of": solution.bound_of, "gap": gap}
    extra = {"refused_bound": bound}
    said = f"its bound of {bound:.17g} ({solution.bound_of}) is above the plan's cost {cost:.17g}"
    if solution.bound_of == "any" and not in_program_order(graph, plan):
        reason = f"{said}: refused, since the plan is not in program order"
    elif target.startswith(_OURS):
        reason = f"{said}: a fault of the strategy; please report it"
        return {"status": "failed", "reason": reason, "extra": extra}
    else:
        reason = f"{said}: the bound is refused"
    return {"reason": reason, "extra": extra}


def of_measurement(
    measurement: Measurement, settings: Settings, peak_bytes: int, budget: int | None
) -> Columns:
    """What was measured of a plan; one with wrong gradients has failed.

    Args:
        peak_bytes: of the plan, as simulated.
        budget: which the plan keeps to, as simulated; None: it keeps to none.
    """
    measured = asdict(measurement)
    measured |= measured.pop("copies") or {}
    reason, peak = measured.pop("reason"), measurement.measured_peak_bytes
    columns = {name: measured.pop(name) for name in list(measured) if name in COLUMNS}
    columns["extra"] = measured | {"verdict": str(measurement.verdict)}
    if measurement.remark:
        columns["reason"] = measurement.remark
    if settings.accounting == "full":
        columns["peak_error"] = ratio(peak_bytes, peak)
    if reason is not None:
        return columns | {"status": "failed", "reason": reason}
    if settings.accounting != "full" or budget is None or peak <= budget:
        return columns
    columns["extra"]["over_budget_bytes"] = peak - budget
    excess = of_excess(peak, measurement.requested_bytes, budget, settings.costmodel)
    return {**columns, **excess}


def of_native(how: NativeRun, found: Native) -> Columns:
    """Of a plan that PyTorch ran by its own means: how, and what was measured."""
    facts = cast(NativeFacts, how.as_json() | asdict(found))
    return {"extra": Extra(native=facts)}


def of_lowered(aot: Native, inductor: Native) -> Columns:
    """Of a plan that PyTorch's compilers ran, in both lowerings."""
    return {"extra": Extra(lowered=LoweredFacts(aot=_run(aot), inductor=_run(inductor)))}


def _run(found: Native) -> LoweredRun:
    facts = asdict(found)
    del facts["wrapped"]  # by torch.utils.checkpoint alone
    return cast(LoweredRun, facts)


def of_excess(measured: int, requested: int | None, budget: int, costmodel: str) -> Columns:
    """Why a plan that keeps to its budget, as simulated, was measured above it.

    What the simulator cannot know explains an excess: workspaces, where nobody measured them, and
    the rounding of CUDA's allocator. Without such a cause the job has failed.

    Args:
        measured, requested: peak in bytes, after and before the allocator rounds up.
    """
    said = f"measured {measured - budget} bytes above the budget"
    if costmodel != "profiled":
        why = f"costmodel={costmodel} knows no workspaces; plan with costmodel=profiled"
        return {"reason": f"{said}: {why}"}
    if (requested or measured) <= budget:
        return {"reason": f"{said}: the caching allocator rounds up"}
    return {"status": "failed", "reason": f"{said}, which the simulator does not account for"}


def of_error(error: Exception | OutOfTime, task: Task) -> Columns:
    """How a job ended whose planner, or whose plan, raised."""
    if isinstance(error, NotApplicable):
        return {"status": "not_applicable", "reason": error.reason}
    if isinstance(error, Infeasible):
        proof = "proven" if error.proven else "not proven" + _below_once(task)
        return {
            "status": error.status,
            "reason": f"{error.reason} ({proof})",
            "peak_bytes": error.smallest_peak_found,
            "extra": error.details,
        }
    if isinstance(error, InvalidPlan):
        return {"status": "failed", "reason": f"the simulator rejected the plan: {error}"}
    if isinstance(error, OutOfTime):
        reason = "the planner overran its time limit without a plan; give more time or budget"
        return {"status": "time_limit", "reason": reason}
    return failure(error)


def failure(error: BaseException) -> Outcome:
    """Status and reason of whatever a strategy or a device raised."""
    text = one_line(error)
    if is_out_of_memory(error):
        return {"status": "out_of_memory", "reason": text}
    if isinstance(error, RematbenchError):
        return {"status": "failed", "reason": text}
    if place(error) is not None:
        return {"status": "failed", "reason": accuse(error)}
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return {"status": "failed", "reason": f"{type(error).__name__} at {where}: {text}"}


def _below_once(task: Task) -> str:
    """A budget at which activations alone cannot be dropped any further says so."""
    if task.budget is None or task.budget >= task.once_floor:
        return ""
    grows = task.settings.budget.fraction is not None and task.settings.model.get("batch_size")
    batch = ", or a larger batch, of which that is a smaller share" if grows else ""
    return (
        f"; every plan in program order below {task.once_floor} bytes computes some gradient "
        f"twice: give a larger budget{batch}"
    )


def ratio(number: float | None, base: float | None) -> float | None:
    """``number / base - 1``; None where there is no such ratio."""
    if number is None or not base:
        return None
    return number / base - 1
