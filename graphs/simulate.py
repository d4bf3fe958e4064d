"""The reference simulator: the one place where memory is accounted and a plan is judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from rematbench.base.errors import InvalidPlan
from rematbench.base.kernels import kernel
from rematbench.graphs import copies as two
from rematbench.graphs.copies import BAD_CODE, DEAD_READ, FREE_DEAD, FREE_RESIDENT, OK, Copies
from rematbench.graphs.ir import Graph, IntArray, Op
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import Plan, has_copies


@dataclass(frozen=True)
class Trace:
    """What a plan does, statement by statement.

    Attributes:
        peak_bytes: the largest number of live bytes at any statement: residents, outputs (again,
            where some are already live) and workspace included.
        cost: sum over the computes, in the graph's cost unit; of a plan with copies the makespan,
            when compute has done its last op and has the outputs.
        recomputations: computes beyond the first of each op.
        checkpoints: non-resident forward values live when the loss op starts (the first compute
            of it); 0 in a graph without one.
        codes: the plan's statement codes.
        bytes_during: live bytes while each statement runs, workspace and duplicates included.
        bytes_after: live bytes after each statement.
        copies: what it does with the host; None: nothing.
    """

    peak_bytes: int
    cost: float
    recomputations: int
    checkpoints: int
    codes: IntArray
    bytes_during: IntArray
    bytes_after: IntArray
    copies: Copies | None = None

    @property
    def host_peak_bytes(self) -> int:
        """The most bytes on the host at any statement."""
        return 0 if self.copies is None else self.copies.host_peak_bytes


def simulate(graph: Graph, plan: Plan, link: Link = NONE) -> Trace:
    """Replay ``plan`` on ``graph``.

    Args:
        link: between device and host; it plays no role for a plan that copies nothing.

    Raises:
        InvalidPlan: a read of a value that is not live, a free of a dead or resident value, an
            output missing at the end, an unknown name, or a copy that cannot be made; with the
            statement's index.
    """
    codes = plan.codes(graph)
    tables = graph.tables
    timeline = np.empty((2, len(codes)), dtype=np.int64)
    during, after = timeline
    live = tables.resident.copy()
    copies: Copies | None = None
    if has_copies(graph, codes):
        found = two.replay(graph, codes, link, live, timeline)
        fault, position, value, cost, computed, checkpoints, copies = found
    else:
        fault, position, value, cost, computed, checkpoints = _replay(
            codes, tables, graph.resident_bytes, live, during, after
        )
    if fault != OK:
        raise InvalidPlan(position, _explain(graph, codes, fault, position, value))
    for output in tables.outputs:
        if not live[output]:
            name = graph.values[output].name
            raise InvalidPlan(
                len(codes),
                f"output {name!r} is not live at the end; compute op "
                f"{graph.ops[tables.writer[output]].label} and do not free it",
            )
    if graph.random_state_bytes and graph.random_ops:
        states, aside = random_states(graph, codes)
        during += states + aside
        after += states
    peak = max(graph.resident_bytes, int(during.max(initial=0)))
    distinct = np.count_nonzero(np.bincount(tables.op_of[codes[codes >= 0]]))
    return Trace(peak, cost, computed - int(distinct), checkpoints, codes, during, after, copies)


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
    """Refuse a plan whose random numbers, or collectives, would not be eager training's.

    Ops that draw random numbers must first run one after the other; later computes of theirs
    repeat the first draws. So must collectives, and none may run again: ranks would wait for ever.

    Raises:
        InvalidPlan: a random op or a collective is first computed out of program order, or a
            collective is computed again.
    """
    _check_order(
        graph, plan, lambda op: op.random, "random op", "draw other numbers than eager training"
    )
    again = _check_order(
        graph, plan, lambda op: op.collective, "collective", "meet another one of other ranks"
    )
    if again is not None:
        position, op = again
        raise InvalidPlan(
            position,
            f"the collective {op.label} is computed again; all ranks run it once, together: keep "
            "what it makes",
        )


def _check_order(
    graph: Graph, plan: Plan, chosen: Callable[[Op], bool], what: str, why: str
) -> tuple[int, Op] | None:
    """Where the first of the chosen ops is that a plan computes again.

    Raises:
        InvalidPlan: one is first computed out of program order.
    """
    numbers = {number for number, op in enumerate(graph.ops) if chosen(op)}
    op_of, last, again = graph.tables.op_of, -1, None
    done: set[int] = set()
    for position, code in enumerate(plan.codes(graph).tolist() if numbers else ()):
        op = int(op_of[code]) if code >= 0 else -1
        if op not in numbers:
            continue
        if op in done:
            again = again or (position, graph.ops[op])
        elif op < last:
            raise InvalidPlan(
                position,
                f"the {what} {graph.ops[op].label} is first computed out of program order; it "
                f"would {why}",
            )
        last = max(op, last)
        done.add(op)
    return again


def _explain(graph: Graph, codes: IntArray, fault: int, position: int, value: int) -> str:
    if fault == BAD_CODE:
        return f"code {codes[position]} is no statement of graph {graph.name!r}"
    if fault > BAD_CODE:
        return two.explain(graph, int(codes[position]), fault)
    name = graph.values[value].name
    if fault == FREE_DEAD:
        return f"free of {name!r}, which is not live; drop this statement"
    if fault == FREE_RESIDENT:
        return f"free of {name!r}, which is resident and stays; drop this statement"
    tables = graph.tables
    reader = graph.ops[tables.op_of[codes[position]]].label
    writer = graph.ops[tables.writer[value]].label
    return f"op {reader} reads {name!r}, which is not live; compute op {writer} first"


@kernel
def _replay(codes, tables, memory, live, during, after):
    """Fills ``live`` at the end, and ``during`` and ``after`` per statement.

    Returns a fault with its position and value, the cost, the computes and the checkpoints.
    """
    size, op_of, reads, writes = tables.value_bytes, tables.op_of, tables.reads, tables.writes
    taken = tables.overwritten_by
    cost, computed, checkpoints = 0.0, 0, -1
    for position in range(codes.size):
        code = codes[position]
        if code < 0:
            v = ~code
            fault = _fault_of_free(v, tables.resident, live)
            if fault != OK:
                return fault, position, v, cost, computed, checkpoints
            live[v] = False
            during[position] = memory
            memory -= size[v]
            after[position] = memory
            continue
        if code >= op_of.size:
            return BAD_CODE, position, 0, cost, computed, checkpoints
        op = op_of[code]
        if op == tables.loss and checkpoints < 0:
            checkpoints = two.forward_values(tables.writer, tables.forward, live)
        for k in range(reads.start[code], reads.start[code + 1]):
            if not live[reads.items[k]]:
                return DEAD_READ, position, reads.items[k], cost, computed, checkpoints
        running = memory + tables.workspace[code]
        first = taken.start[code]
        in_place = taken.start[code + 1] > first
        for k in range(writes.start[op], writes.start[op + 1]):
            v = writes.items[k]
            over = taken.items[first + k - writes.start[op]] if in_place else -1
            if over < 0:
                running += size[v]
                memory += size[v]
            else:
                live[over] = False
            if live[v]:  # the new copy replaces the old one
                memory -= size[v]
            live[v] = True
        during[position] = running
        after[position] = memory
        cost += tables.cost[code]
        computed += 1
    return OK, 0, 0, cost, computed, max(checkpoints, 0)


@kernel
def _fault_of_free(v, resident, live):
    if v >= live.size:
        return BAD_CODE
    if resident[v]:
        return FREE_RESIDENT
    return OK if live[v] else FREE_DEAD
