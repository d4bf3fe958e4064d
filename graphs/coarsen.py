"""Smaller graphs for solvers, with the way back to the fine graph.

A group of ops becomes one op that hides the values that only its members read. Its workspace is
its inner peak less its outputs, so that expanding a plan never raises the peak.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import networkx as nx
import numpy as np

from rematbench.graphs.ir import Graph, Implementation, Op, Phase
from rematbench.graphs.plan import Plan

BOOKKEEPING_BYTES = 64


@dataclass(frozen=True)
class Coarse:
    """A coarse graph and what its ops stand for.

    Attributes:
        graph: the coarse graph; its values are a subset of the fine graph's.
        fine: the graph that it was made from.
        members: fine ops per coarse op, in execution order.
    """

    graph: Graph
    fine: Graph
    members: tuple[tuple[int, ...], ...]

    def expand(self, plan: Plan) -> Plan:
        """The plan for the fine graph: same cost, and a peak that is no higher."""
        tables, fine = self.graph.tables, self.fine.tables
        to_fine = [self.fine.value_index[value.name] for value in self.graph.values]
        blocks = [self._block(op) for op in range(len(self.members))]
        codes: list[int] = []
        for code in plan.codes(self.graph).tolist():
            if code < 0:
                codes.append(~to_fine[~code])
                continue
            op = int(tables.op_of[code])
            if len(self.members[op]) > 1:
                codes += blocks[op]
            else:
                chosen = code - int(tables.op_first[op])
                codes.append(int(fine.op_first[self.members[op][0]]) + chosen)
        return Plan.from_codes(self.fine, codes, plan.strategy, plan.budget_bytes)

    def _block(self, op: int) -> list[int]:
        """Statements of a group: its members, inner values freed after their last read."""
        shown = {self.fine.value_index[name] for name in self.graph.ops[op].writes}
        return [code for code, _ in _inner_steps(self.fine, self.members[op], shown)]


def coarsen(graph: Graph, contract_below: float = 0.0) -> Coarse:
    """Group ops that no planner needs to see apart.

    - Bookkeeping (an op that reads only residents and writes at most 64 bytes, such as a
      batch counter) goes with the next op of its phase.
    - With ``contract_below`` > 0, an op that costs at most that fraction of the whole graph and
      whose values only one op of its phase reads goes with that op.

    Ops with several implementations stay alone.

    Args:
        graph: any graph.
        contract_below: fraction of the graph's total cost, 0 to contract nothing.
    """
    group = nx.utils.UnionFind(range(len(graph.ops)))
    alone = [len(op.implementations) > 1 for op in graph.ops]
    limit = contract_below * sum(op.cost for op in graph.ops)
    readers = _readers(graph)
    for i, op in enumerate(graph.ops):
        if alone[i] or op.phase is Phase.LOSS:
            continue
        host = None
        if _is_bookkeeping(graph, i):
            same = range(i + 1, len(graph.ops))
            host = next((j for j in same if graph.ops[j].phase is op.phase), None)
        elif limit > 0 and op.cost <= limit and len(readers[i]) == 1:
            (reader,) = readers[i]
            host = reader if graph.ops[reader].phase is op.phase else None
            if any(name in graph.outputs for name in op.writes):
                host = None
        if host is not None and not alone[host]:
            group.union(i, host)
    members = sorted((tuple(sorted(part)) for part in group.to_sets()), key=lambda part: part[-1])
    return _build(graph, tuple(members))


def _is_bookkeeping(graph: Graph, op: int) -> bool:
    tables = graph.tables
    small = tables.value_bytes[tables.writes[op]].sum() <= BOOKKEEPING_BYTES
    reads = tables.inputs[op]
    return bool(small and len(reads) and tables.resident[reads].all())


def _readers(graph: Graph) -> list[set[int]]:
    readers: list[set[int]] = [set() for _ in graph.ops]
    tables = graph.tables
    for implementation in range(len(tables.op_of)):
        for value in tables.reads[implementation]:
            if tables.writer[value] >= 0:
                readers[tables.writer[value]].add(int(tables.op_of[implementation]))
    return readers


def _inner_steps(fine: Graph, members: Iterable[int], shown: set[int]) -> list[tuple[int, int]]:
    """(statement code, bytes of the group's own values and workspace while it runs)."""
    tables = fine.tables
    members = tuple(members)
    last: dict[int, int] = {}
    for op in members:
        for value in (*tables.writes[op], *tables.inputs[op]):
            last[int(value)] = op
    inner = {int(v) for op in members for v in tables.writes[op]} - shown
    steps, live = [], 0
    for op in members:
        first = int(tables.op_first[op])
        live += int(tables.value_bytes[tables.writes[op]].sum())
        steps.append((first, live + int(tables.workspace[first])))
        for value in sorted(v for v in inner if last[v] == op):
            live -= int(tables.value_bytes[value])
            steps.append((~value, live))
    return steps


def _build(graph: Graph, members: tuple[tuple[int, ...], ...]) -> Coarse:
    owner = np.empty(len(graph.ops), dtype=np.int64)
    for number, part in enumerate(members):
        owner[list(part)] = number
    tables = graph.tables
    shown = tables.is_output.copy()
    for implementation in range(len(tables.op_of)):
        for value in tables.reads[implementation]:
            writer = tables.writer[value]
            if writer < 0 or owner[writer] != owner[tables.op_of[implementation]]:
                shown[value] = True
    ops = tuple(
        graph.ops[part[0]] if len(part) == 1 else _merged(graph, part, shown) for part in members
    )
    written = {name for op in ops for name in op.writes}
    values = tuple(v for v in graph.values if v.resident or v.name in written)
    coarse = Graph(f"{graph.name}/coarse", values, ops, graph.outputs, graph.cost_unit)
    return Coarse(coarse, graph, members)


def _merged(
    graph: Graph, part: tuple[int, ...], shown: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> Op:
    tables = graph.tables
    own = {int(v) for op in part for v in tables.writes[op]}
    visible = {v for v in own if shown[v]}
    reads = dict.fromkeys(int(v) for op in part for v in tables.inputs[op] if int(v) not in own)
    peak = max(size for _, size in _inner_steps(graph, part, visible))
    workspace = max(0, peak - int(tables.value_bytes[list(visible)].sum()))
    last = graph.ops[part[-1]]
    phase = next(
        (graph.ops[op].phase for op in part if graph.ops[op].phase is Phase.LOSS), last.phase
    )
    name = [graph.values[v].name for v in range(len(graph.values)) if v in visible]
    implementation = Implementation(
        "default",
        tuple(graph.values[v].name for v in reads),
        sum(graph.ops[op].cost for op in part),
        workspace,
    )
    return Op(last.name, phase, tuple(name), (implementation,))
