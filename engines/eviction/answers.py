"""What a run of the runtime comes to: on a graph a plan, on a log the runtime's own verdict."""

from __future__ import annotations

from typing import Any

from rematbench.base.errors import Infeasible, Stopped, Thrashed
from rematbench.engines.eviction.compiled import CompiledStream
from rematbench.engines.eviction.rules import Happened, Run
from rematbench.engines.eviction.runtime import baseline_peak
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Solution, Verdict
from rematbench.streams.convert import GraphStream

STATUSES = {"ok": "ok", "oom": "infeasible", "thrash": "thrashed", "stopped": "time_limit"}
LONGEST_TRACE = 2_000_000  # events, some 50 MB of CSV; longer ones are left out


def judged(
    compiled: CompiledStream, run: Run, reason: str | None, variant: str, details: dict[str, Any]
) -> Solution:
    """On a log: the runtime is the judge.

    Args:
        reason: why the run ended early, in one line.
    """
    verdict = Verdict(
        status=STATUSES[run.status],
        reason=reason,
        cost=run.total_compute - 1,  # the clock starts at 1
        peak_bytes=run.peak_bytes,
        recomputations=run.rematerializations,
        base_cost=compiled.source.cost,
        base_peak_bytes=baseline_peak(compiled),
        trace=_trace_of(compiled, run),
    )
    facts = {"judge": "dtr", **details, **compiled.source.sizes()}
    return Solution(None, variant=variant, details=facts, verdict=verdict)


def plan_of(
    graph: Graph, made: GraphStream, compiled: CompiledStream, run: Run, reason: str | None
) -> Plan:
    """On a graph: what the runtime ran.

    The plan frees each value after its last read before the next compute of it, which is never
    later than DTR evicts it: same cost, and a peak that is no higher.

    Raises:
        Infeasible, Thrashed, Stopped: the run ended early, for this reason.
    """
    if run.status != "ok":
        kinds = {"oom": Infeasible, "thrash": Thrashed, "stopped": Stopped}
        raise kinds[run.status](reason or "")
    happened, tensors = run.records[:, 0], run.records[:, 1]
    ran = (happened == Happened.COMPUTED) | (happened == Happened.RECOMPUTED)
    ops = [compiled.source.tensors[t].op - made.residents for t in tensors[ran].tolist()]
    return Plan.of_computes(graph, [made.computes[op] for op in ops if op >= 0])


def facts_of(run: Run) -> dict[str, Any]:
    return {
        "evictions": run.evictions,
        "rematerializations": run.rematerializations,
        "storage_accesses": run.storage_accesses,
        # Where the clock on the wall stopped it, the events are an accident.
        "events_crc32": None if run.status == "stopped" else run.events_crc32,
        "total_compute": run.total_compute,
        "additional_compute": run.remat_compute,
    }


def _trace_of(compiled: CompiledStream, run: Run) -> tuple[tuple[str, str, int], ...]:
    if len(run.records) > LONGEST_TRACE:
        return ()
    names = compiled.source.names
    kinds = {kind.value: kind.name.lower() for kind in Happened}
    rows = run.records.tolist()
    return tuple((kinds[kind], names[number], clock) for kind, number, clock in rows)
