"""What is told of a graph's plan: in a line, and by a measurement."""

from __future__ import annotations

from collections import Counter

from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan
from rematbench.training.compiled.meters import Meter
from rematbench.training.compiled.planning import Planned


def recomputed(graph: Graph, plan: Plan) -> Counter[str]:
    """How often each op is computed again."""
    codes = plan.codes(graph)
    counts = Counter(graph.tables.op_of[codes[codes >= 0]].tolist())
    return Counter({graph.ops[op].name: count - 1 for op, count in counts.items() if count > 1})


def above(found: Planned, meter: Meter) -> int:
    """Bytes that a half took above what its plan says, the more of both."""
    share = found.share
    held = share.parameters + share.inputs
    pairs = zip(meter.peaks, (share.forward, share.backward), strict=True)
    return max(measured - held - planned for measured, planned in pairs)


def label(found: Planned) -> str:
    """A line of progress."""
    peak = f"peak {found.share.peak:,} bytes"
    if found.source == "ordinary":
        return f"ordinary training ({peak}): no plan is needed"
    moved = "" if found.trace.copies is None else f", {found.trace.copies.out_bytes:,} to the host"
    overhead = f"overhead {found.overhead:+.1%}"
    return f"{found.plan.strategy}: {peak}{moved}, {overhead} ({found.source})"
