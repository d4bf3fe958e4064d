"""What a run of the runtime comes to: a plan's computes, a row's facts, a trace."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rematbench.engines.eviction.compiled import CompiledStream
from rematbench.engines.eviction.rules import Happened, Run
from rematbench.streams.convert import GraphStream

STATUSES = {"ok": "ok", "oom": "infeasible", "thrash": "thrashed", "stopped": "time_limit"}
LONGEST_TRACE = 2_000_000  # events, some 50 MB of CSV; longer ones are left out


def computes_of(compiled: CompiledStream, made: GraphStream, run: Run) -> Sequence[int]:
    """Implementations in the order in which DTR ran them.

    The plan frees each value after its last read before the next compute of it, which is never
    later than DTR evicts it: same cost, and a peak that is no higher.
    """
    kinds, tensors = run.records[:, 0], run.records[:, 1]
    ran = (kinds == Happened.COMPUTED) | (kinds == Happened.RECOMPUTED)
    ops = [compiled.source.tensors[t].op - made.residents for t in tensors[ran].tolist()]
    return [made.computes[op] for op in ops if op >= 0]


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


def trace_of(compiled: CompiledStream, run: Run) -> tuple[tuple[str, str, int], ...]:
    if len(run.records) > LONGEST_TRACE:
        return ()
    names = compiled.source.names
    kinds = {kind.value: kind.name.lower() for kind in Happened}
    rows = run.records.tolist()
    return tuple((kinds[kind], names[number], clock) for kind, number, clock in rows)
