"""The reference simulator: the one place where memory is accounted and a plan is judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematbench.base.errors import InvalidPlan
from rematbench.base.kernels import kernel
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan

_OK, _DEAD_READ, _FREE_DEAD, _FREE_RESIDENT, _BAD_CODE = range(5)


@dataclass(frozen=True)
class Trace:
    """What a plan does, statement by statement.

    Attributes:
        peak_bytes: the largest number of live bytes at any statement: residents, outputs (again,
            where some are already live) and workspace included.
        cost: sum over the computes, in the graph's cost unit.
        recomputations: computes beyond the first of each op.
        checkpoints: non-resident forward values live when the loss op starts (the first compute
            of it); 0 in a graph without one.
        codes: the plan's statement codes.
        bytes_during: live bytes while each statement runs, workspace and duplicates included.
        bytes_after: live bytes after each statement.
    """

    peak_bytes: int
    cost: float
    recomputations: int
    checkpoints: int
    codes: IntArray
    bytes_during: IntArray
    bytes_after: IntArray


def simulate(graph: Graph, plan: Plan) -> Trace:
    """Replay ``plan`` on ``graph``.

    Raises:
        InvalidPlan: a read of a value that is not live, a free of a dead or resident value, an
            output missing at the end, or an unknown name; with the statement's index.
    """
    codes = plan.codes(graph)
    tables = graph.tables
    loss = -1 if graph.loss_index is None else graph.loss_index
    during = np.empty(len(codes), dtype=np.int64)
    after = np.empty(len(codes), dtype=np.int64)
    live = tables.resident.copy()
    fault, position, value, cost, computed, checkpoints = _replay(
        codes,
        live,
        during,
        after,
        tables.value_bytes,
        tables.resident,
        graph.forward_values,
        loss,
        graph.resident_bytes,
        tables.op_of,
        tables.cost,
        tables.workspace,
        tables.reads.start,
        tables.reads.items,
        tables.writes.start,
        tables.writes.items,
        tables.overwritten_by.start,
        tables.overwritten_by.items,
    )
    if fault != _OK:
        raise InvalidPlan(position, _explain(graph, codes, fault, position, value))
    for output in tables.outputs:
        if not live[output]:
            name = graph.values[output].name
            raise InvalidPlan(
                len(codes),
                f"output {name!r} is not live at the end; compute op "
                f"{graph.ops[tables.writer[output]].told} and do not free it",
            )
    if graph.random_state_bytes and graph.random_ops:
        states, aside = random_states(graph, codes)
        during += states + aside
        after += states
    peak = max(graph.resident_bytes, int(during.max(initial=0)))
    distinct = np.count_nonzero(np.bincount(tables.op_of[codes[codes >= 0]]))
    return Trace(peak, cost, computed - int(distinct), checkpoints, codes, during, after)


def random_states(graph: Graph, codes: IntArray) -> tuple[IntArray, IntArray]:
    """Bytes of the random generator's states that recomputed draws need, per statement.

    Returns:
        What is saved: a state before the first compute of each random op that is computed again,
        or whose draws another op repeats; it stays to the end. And what is set aside while draws
        are repeated: the present state.
    """
    saved, aside = np.zeros((2, len(codes)), dtype=np.int64)
    source = np.where(codes >= 0, graph.draws[np.maximum(codes, 0)], -1)
    for op in np.unique(source[source >= 0]).tolist():
        first, *again = np.flatnonzero(source == op).tolist()
        if again:
            saved[first:] += graph.random_state_bytes
            aside[again] += graph.random_state_bytes
    return saved, aside


def check_draws(graph: Graph, plan: Plan) -> None:
    """Refuse a plan whose random numbers would not be eager training's.

    Ops that draw random numbers must first run one after the other; later computes of theirs
    repeat the first draws.

    Raises:
        InvalidPlan: a random op is first computed out of program order.
    """
    op_of, last = graph.tables.op_of, -1
    drawing = {number for number, op in enumerate(graph.ops) if op.random}
    done: set[int] = set()
    for position, code in enumerate(plan.codes(graph).tolist()):
        op = int(op_of[code]) if code >= 0 else -1
        if op in drawing and op not in done:
            if op < last:
                raise InvalidPlan(
                    position,
                    f"the random op {graph.ops[op].told} is first computed out of program order; "
                    "it would draw other numbers than eager training",
                )
            last = op
            done.add(op)


def _explain(graph: Graph, codes: IntArray, fault: int, position: int, value: int) -> str:
    if fault == _BAD_CODE:
        return f"code {codes[position]} is no statement of graph {graph.name!r}"
    name = graph.values[value].name
    if fault == _FREE_DEAD:
        return f"free of {name!r}, which is not live; drop this statement"
    if fault == _FREE_RESIDENT:
        return f"free of {name!r}, which is resident and stays; drop this statement"
    tables = graph.tables
    reader = graph.ops[tables.op_of[codes[position]]].told
    writer = graph.ops[tables.writer[value]].told
    return f"op {reader} reads {name!r}, which is not live; compute op {writer} first"


@kernel
def _replay(
    codes, live, during, after, size, resident, forward, loss, start_bytes,
    op_of, op_cost, workspace, read_at, reads, write_at, writes, over_at, over,
):  # fmt: skip
    memory = start_bytes
    cost = 0.0
    computed = 0
    checkpoints = -1
    for position in range(codes.size):
        code = codes[position]
        if code < 0:
            v = ~code
            if v >= size.size:
                return _BAD_CODE, position, 0, cost, computed, checkpoints
            if resident[v]:
                return _FREE_RESIDENT, position, v, cost, computed, checkpoints
            if not live[v]:
                return _FREE_DEAD, position, v, cost, computed, checkpoints
            live[v] = False
            during[position] = memory
            memory -= size[v]
            after[position] = memory
            continue
        if code >= op_of.size:
            return _BAD_CODE, position, 0, cost, computed, checkpoints
        op = op_of[code]
        if op == loss and checkpoints < 0:
            checkpoints = 0
            for v in range(size.size):
                checkpoints += forward[v] and live[v]
        for k in range(read_at[code], read_at[code + 1]):
            if not live[reads[k]]:
                return _DEAD_READ, position, reads[k], cost, computed, checkpoints
        running = memory + workspace[code]
        in_place = over_at[code + 1] > over_at[code]
        for k in range(write_at[op], write_at[op + 1]):
            v = writes[k]
            taken = over[over_at[code] + k - write_at[op]] if in_place else -1
            if taken < 0:
                running += size[v]
                memory += size[v]
            else:
                live[taken] = False
            if live[v]:  # the new copy replaces the old one
                memory -= size[v]
            live[v] = True
        during[position] = running
        after[position] = memory
        cost += op_cost[code]
        computed += 1
    return _OK, 0, 0, cost, computed, max(checkpoints, 0)
