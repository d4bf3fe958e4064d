"""Stages, and plans from what is kept: shared by every static strategy.

Stage t ends with the first computation of op t. Row t of the boolean matrix R says which ops are
computed in stage t, row t of S which are kept in memory when it begins (Checkmate, section 4.2).
Rows and columns count the needed ops of a graph, in program order.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from rematbench.base.kernels import kernel
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]


def needed(graph: Graph) -> IntArray:
    """The ops that rows and columns of R and S stand for."""
    return np.flatnonzero(graph.needed_ops())


def dependencies(graph: Graph) -> BoolArray:
    """``[i, j]``: does op j read a value of op i? Shape (n, n) over :func:`needed` ops."""
    ops, tables = needed(graph), graph.tables
    position = np.full(len(graph.ops) + 1, -1, dtype=np.int64)
    position[ops] = np.arange(len(ops))
    matrix = np.zeros((len(ops), len(ops)), dtype=bool)
    inputs = tables.inputs.picked(ops).numbered(position[tables.writer])
    matrix[inputs.items, inputs.row_of] = True
    return matrix


def optimal_recomputation(graph: Graph, kept: BoolArray) -> BoolArray:
    """The R of least cost for a given S (Checkmate, section 5.2).

    Args:
        kept: S, shape (n, n), strictly lower triangular.

    Returns:
        R, shape (n, n): op t is computed in stage t, and besides only what stage t or a later
        S cannot do without.
    """
    depends = dependencies(graph)
    return np.asarray(_closure(np.ascontiguousarray(kept, dtype=np.bool_), depends))


@kernel
def _closure(kept, depends):
    n = kept.shape[0]
    computed = np.zeros((n, n), dtype=np.bool_)
    for t in range(n):
        computed[t, t] = True
        if t + 1 < n:
            for i in range(t):
                computed[t, i] = kept[t + 1, i] and not kept[t, i]
        for j in range(t, -1, -1):
            if computed[t, j]:
                for i in range(j):
                    if depends[i, j] and not kept[t, i]:
                        computed[t, i] = True
    return computed


def plan_from_stages(graph: Graph, computed: BoolArray) -> Plan:
    """R as a plan (Checkmate, Algorithm 1).

    Values are freed as early as the sequence of computes allows, which is never later than S
    would free them.

    Args:
        computed: R, shape (n, n), lower triangular.
    """
    ops = needed(graph)
    order = ops[np.nonzero(computed)[1]]
    return Plan.of_computes(graph, graph.tables.op_first[order])


def plan_with_checkpoints(graph: Graph, checkpoints: Collection[int]) -> Plan:
    """Keep the outputs of some forward ops; recompute every other where backward needs it.

    What follows the last checkpoint stays, too (Chen et al., Algorithm 1; Checkmate, appendix B).

    Args:
        checkpoints: indices of forward ops; none keeps everything.
    """
    kept = np.zeros(len(graph.values), dtype=bool)
    for op in checkpoints:
        kept[graph.tables.writes[op]] = True
    return plan_keeping(graph, kept, tail_after=max(checkpoints, default=-1))


def plan_keeping(graph: Graph, kept: BoolArray, tail_after: int | None = None) -> Plan:
    """Keep some forward values for backward; recompute every other where backward needs it.

    When a backward op reads a value that is gone, the ops that lead to it from what is in memory
    are computed again, each at most once, and their values stay until their last use.

    Args:
        kept: per value.
        tail_after: an op; the values of all forward ops after it are kept as well.
    """
    kept = np.ascontiguousarray(kept, dtype=np.bool_)
    tail = len(graph.ops) if tail_after is None else tail_after
    order = _order_keeping(needed(graph), kept, tail, graph.tables)
    return Plan.of_computes(graph, graph.tables.op_first[order])


@kernel
def _order_keeping(ops, kept, tail, tables):
    """The computes of :func:`plan_keeping`."""
    live, writer = tables.resident.copy(), tables.writer
    read_at, reads = tables.inputs
    write_at, writes = tables.writes
    order = [0 for _ in range(0)]
    mark = np.full(tables.op_first.size, -1, dtype=np.int64)
    todo = np.empty(tables.op_first.size, dtype=np.int64)
    for op in ops:
        if tables.backward[op]:
            todo[0], done, count = op, 0, 1
            while done < count:
                first = todo[done]
                done += 1
                for k in range(read_at[first], read_at[first + 1]):
                    if not live[reads[k]] and mark[writer[reads[k]]] != op:
                        mark[writer[reads[k]]] = op
                        todo[count] = writer[reads[k]]
                        count += 1
            for each in np.sort(todo[1:count]):
                order.append(each)
                for k in range(write_at[each], write_at[each + 1]):
                    live[writes[k]] = True
        order.append(op)
        for k in range(write_at[op], write_at[op + 1]):
            live[writes[k]] = not tables.forward[op] or op > tail or kept[writes[k]]
    return np.array(order, dtype=np.int64)


def missing(graph: Graph, op: int, live: BoolArray) -> list[int]:
    """Ops that must run, in program order, before ``op`` has all its reads."""
    tables = graph.tables
    found: set[int] = set()
    pending = [op]
    while pending:
        reads = tables.inputs[pending.pop()]
        absent = reads[~live[reads] & (tables.writer[reads] >= 0)]  # residents are always there
        writers = set(tables.writer[absent].tolist()) - found
        found |= writers
        pending += writers
    return sorted(found)


def recomputations(graph: Graph, plan: Plan) -> IntArray:
    """What a plan in program order computes again, as rows (stage, op)."""
    ops = needed(graph)
    place = np.full(len(graph.ops), -1, dtype=np.int64)
    place[ops] = np.arange(len(ops))
    codes = plan.codes(graph)
    computed = place[graph.tables.op_of[codes[codes >= 0]]]
    computed = computed[computed >= 0]
    seen = np.zeros(len(ops), dtype=bool)
    rows, stage = [], 0
    for op in computed.tolist():
        if seen[op]:
            rows.append((min(stage, len(ops) - 1), op))
        else:
            seen[op], stage = True, op + 1
    found = [row for row in dict.fromkeys(rows) if row[0] > row[1]]
    return np.array(found, dtype=np.int64).reshape(-1, 2)
