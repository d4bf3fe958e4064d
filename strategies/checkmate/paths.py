"""Path rows: what must be recomputed, once nothing on the way to it was kept.

Suppose that the value j is used in group g, and take any path of ops that leads to it from an op
w. If nothing on the path is in memory when group a begins, then w is computed again between a and
g, so that ``sum(S[a, x] for x on the path) + sum(R[s, w] for s from a to g) >= 1``. Checkmate's
rows imply this for whole numbers only: a fraction of w's values, kept for long, may be used again
and again to recompute fractions of j. With many stages that makes their bounds weak.
"""

from __future__ import annotations

import numpy as np

from rematbench.graphs.kernels import kernel
from rematbench.strategies.checkmate.cuts import Cuts, Layout, finish, new_rows, term
from rematbench.strategies.checkmate.memory import Memory
from rematbench.strategies.checkmate.space import FloatArray


def violated_paths(
    memory: Memory, layout: Layout, x: FloatArray, cost: FloatArray, by: float = 0.05
) -> Cuts:
    """For each use of a value, the row that ``x`` violates most, if by more than ``by``.

    Args:
        cost: per repeatable op; a violation weighs as much as the op costs.
    """
    return Cuts(*_violated(memory, layout, np.append(x, 0.0), cost, by))


@kernel
def _violated(memory, layout, x, cost, by):
    rows = new_rows(x.size)
    groups, values = layout.low.size, memory.size.size
    spent = np.zeros((groups + 1, cost.size))  # recomputed before a group begins
    for g in range(groups):
        for i in range(cost.size):
            spent[g + 1, i] = spent[g, i] + x[layout.recompute[g, i]]
    dist = np.empty(values)
    via = np.empty(values, dtype=np.int64)
    path = np.empty(values, dtype=np.int64)
    done = np.full(values, -1, dtype=np.int64)
    for g in range(groups):
        for k in range(memory.use_at[layout.low[g]], memory.use_at[layout.high[g] - 1 + 1]):
            j = memory.uses[k]
            if done[j] == g or memory.first[j] >= layout.low[g]:
                continue
            done[j] = g
            most, at, length = 0.0, -1, 0
            for a in range(g, -1, -1):
                if memory.first[j] >= layout.low[a]:
                    break
                score, v = _best(memory, layout, x, cost, by, spent, a, g, j, dist, via)
                if score > most:
                    most, at, length = score, a, 0
                    while v >= 0:
                        path[length] = v
                        length += 1
                        v = via[v]
            if at >= 0:
                for p in range(length):
                    term(rows, x, layout.keep[at, path[p]], -1.0)
                for s in range(at, g + 1):
                    term(rows, x, layout.recompute[s, memory.writer[path[0]]], -1.0)
                rows = finish(rows, -1.0, by)
    count, end = rows.counts[0], rows.counts[1]
    return rows.start[: count + 1], rows.column[:end], rows.value[:end], rows.upper[:count]


@kernel
def _best(memory, layout, x, cost, by, spent, a, g, j, dist, via):
    """The most violated path that ends at j, and the value where it begins."""
    dist[: j + 1] = 2.0
    dist[j] = x[layout.keep[a, j]]
    via[j] = -1
    most, at = 0.0, -1
    for v in range(j, -1, -1):
        if dist[v] > 1.0 - by:
            continue
        w = memory.writer[v]
        lack = 1.0 - dist[v] - (spent[g + 1, w] - spent[a, w])
        if lack > by and lack * cost[w] > most:
            most, at = lack * cost[w], v
        for k in range(memory.read_at[w], memory.read_at[w + 1]):
            u = memory.reads[k]
            if memory.first[u] < layout.low[a]:
                further = dist[v] + x[layout.keep[a, u]]
                if further < dist[u]:
                    dist[u] = further
                    via[u] = v
    return most, at
