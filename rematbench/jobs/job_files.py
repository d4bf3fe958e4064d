"""What a job writes beside its row: the graph, the plan, and what was in memory when."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from rematbench.graphs.files import write_bytes, write_graph, write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Compute, Plan
from rematbench.graphs.planning import Verdict
from rematbench.graphs.simulate import Trace


def write_plan_files(folder: Path, graph: Graph, plan: Plan, trace: Trace) -> None:
    """Write ``graph.json.gz``, ``plan.json`` and ``trace.csv``."""
    write_graph(folder / "graph.json.gz", graph)
    write_plan(folder / "plan.json", plan)
    write_bytes(folder / "trace.csv", trace_csv(plan, trace).encode())


def trace_csv(plan: Plan, trace: Trace) -> str:
    """The timeline: live bytes during and after each statement."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("statement", "action", "name", "bytes_during", "bytes_after"))
    rows = zip(
        plan.statements, trace.bytes_during.tolist(), trace.bytes_after.tolist(), strict=True
    )
    for i, (statement, during, after) in enumerate(rows):
        action = type(statement).__name__.lower()
        name = statement.op if isinstance(statement, Compute) else statement.value
        writer.writerow((i, action, name, during, after))
    return text.getvalue()


def events_csv(verdict: Verdict) -> str:
    """What an online strategy did to which tensor, and when."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("event", "tensor", "clock"))
    writer.writerows(verdict.trace)
    return text.getvalue()
