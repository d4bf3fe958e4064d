"""A second simulator, written to be obviously right rather than fast."""

from __future__ import annotations

from rematbench.graphs.ir import Graph, match_overwrites
from rematbench.graphs.plan import Compute, Plan


class Rejected(Exception):
    """The plan is invalid at statement ``index``."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


def naive_simulate(graph: Graph, plan: Plan) -> tuple[int, float, list[int]]:
    """Peak bytes, cost and live bytes after each statement.

    Raises:
        Rejected: where ``simulate`` must raise InvalidPlan.
    """
    size = {v.name: v.bytes for v in graph.values}
    resident = {v.name for v in graph.values if v.resident}
    live = set(resident)
    peak = sum(size[name] for name in live)
    cost, after = 0.0, []
    for index, statement in enumerate(plan.statements):
        if isinstance(statement, Compute):
            op = next((op for op in graph.ops if op.name == statement.op), None)
            if op is None:
                raise Rejected(index)
            named = statement.implementation or op.implementations[0].name
            chosen = next((i for i in op.implementations if i.name == named), None)
            if chosen is None or not set(chosen.reads) <= live:
                raise Rejected(index)
            matched = match_overwrites(graph, op, chosen)
            taken = {graph.values[v].name for v in matched if v >= 0}
            fresh = [w for w, v in zip(op.writes, matched, strict=True) if v < 0]
            running = sum(size[n] for n in live) + sum(size[n] for n in fresh)
            peak = max(peak, running + chosen.workspace_bytes)
            live = (live - taken) | set(op.writes)
            cost += chosen.cost
        else:
            if statement.value not in live or statement.value in resident:
                raise Rejected(index)
            live.remove(statement.value)
        after.append(sum(size[name] for name in live))
    if not set(graph.outputs) <= live:
        raise Rejected(len(plan.statements))
    return peak, cost, after
