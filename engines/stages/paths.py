"""Path rows: what must be recomputed, once nothing on the way to it was kept.

Suppose that the value j is used in group g, and take any path of ops that leads to it from an op
w. If nothing on the path is in memory when group a begins, then w is computed again between a and
g, so that ``sum(S[a, x] for x on the path) + sum(R[s, w] for s from a to g) >= 1``. Checkmate's
rows imply this for whole numbers only: a fraction of w's values, kept for long, may be used again
and again to recompute fractions of j. With many stages that makes their bounds weak.
"""

from __future__ import annotations

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.lp.program import SparseRows
from rematbench.engines.lp.separation import as_rows, finish, finished, new_rows, term
from rematbench.engines.plans.stages import FloatArray
from rematbench.engines.stages.cuts import Layout
from rematbench.engines.stages.kernels import row
from rematbench.engines.stages.memory import ValueTables


def violated_paths(
    values: ValueTables, layout: Layout, x: FloatArray, cost: FloatArray, by: float = 0.05
) -> SparseRows:
    """For each use of a value, the row that ``x`` violates most, if by more than ``by``.

    Args:
        cost: per repeatable op; a violation weighs as much as the op costs.
    """
    return as_rows(_violated(values, layout, np.append(x, 0.0), cost, by))


@kernel
def _violated(values, layout, x, cost, by):
    rows = new_rows(x.size)
    groups, count = layout.low.size, values.size.size
    spent = np.zeros((groups + 1, cost.size))  # recomputed before a group begins
    for g in range(groups):
        for i in range(cost.size):
            spent[g + 1, i] = spent[g, i] + x[layout.recompute[g, i]]
    dist = np.empty(count)
    via = np.empty(count, dtype=np.int64)
    path = np.empty(count, dtype=np.int64)
    done = np.full(count, -1, dtype=np.int64)
    for g in range(groups):
        begin, end = values.uses.start[layout.low[g]], values.uses.start[layout.high[g]]
        for j in values.uses.items[begin:end]:
            if done[j] == g or values.first[j] >= layout.low[g]:
                continue
            done[j] = g
            most, at, length = 0.0, -1, 0
            for a in range(g, -1, -1):
                if values.first[j] >= layout.low[a]:
                    break
                score, v = _best(values, layout, x, cost, by, spent, a, g, j, dist, via)
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
                    term(rows, x, layout.recompute[s, values.writer[path[0]]], -1.0)
                finish(rows, -1.0, by)
    return finished(rows)


@kernel
def _best(values, layout, x, cost, by, spent, a, g, j, dist, via):
    """The most violated path that ends at j, and the value where it begins."""
    dist[: j + 1] = 2.0
    dist[j] = x[layout.keep[a, j]]
    via[j] = -1
    most, at = 0.0, -1
    for v in range(j, -1, -1):
        if dist[v] > 1.0 - by:
            continue
        w = values.writer[v]
        lack = 1.0 - dist[v] - (spent[g + 1, w] - spent[a, w])
        if lack > by and lack * cost[w] > most:
            most, at = lack * cost[w], v
        for u in row(values.reads, w):
            if values.first[u] < layout.low[a]:
                further = dist[v] + x[layout.keep[a, u]]
                if further < dist[u]:
                    dist[u] = further
                    via[u] = v
    return most, at
