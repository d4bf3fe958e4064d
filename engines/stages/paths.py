"""Path rows: what must be recomputed, once nothing on the way to it was kept.

Suppose that the value j is used in group g, and take any path of ops that leads to it from an op
w. If nothing on the path is in memory when group a begins, then w is computed again between a and
g, so that ``sum(S[a, x] for x on the path) + sum(R[s, w] for s from a to g) >= 1``. Checkmate's
rows imply this for whole numbers only: a fraction of w's values, kept for long, may be used again
and again to recompute fractions of j. With many stages that makes their bounds weak.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.lp.program import SparseRows
from rematbench.engines.lp.separation import as_rows, finish, finished, new_rows, term
from rematbench.engines.plans.stages import FloatArray
from rematbench.engines.stages.cuts import Layout
from rematbench.engines.stages.kernels import row
from rematbench.engines.stages.memory import ValueTables
from rematbench.graphs.ir import IntArray


def violated_paths(
    values: ValueTables, layout: Layout, x: FloatArray, cost: FloatArray, by: float = 0.05
) -> SparseRows:
    """For each use of a value, the row that ``x`` violates most, if by more than ``by``.

    Args:
        cost: per repeatable op; a violation weighs as much as the op costs.
    """
    return as_rows(_violated(values, layout, np.append(x, 0.0), cost, by))


class _Relaxed(NamedTuple):
    """A solution, and what it is judged by.

    Attributes:
        x: per column, and 0 for what has none.
        spent: per group and op, how much of it is recomputed before the group begins.
        cost, by: as above.
    """

    x: FloatArray
    spent: FloatArray
    cost: FloatArray
    by: float


class _Reach(NamedTuple):
    """Paths to a value: per value, what of them is kept at least, and the next value or -1."""

    dist: FloatArray
    via: IntArray


@kernel
def _violated(values, layout, x, cost, by):
    rows = new_rows(x.size)
    groups, count = layout.low.size, values.size.size
    spent = np.zeros((groups + 1, cost.size))
    for g in range(groups):
        spent[g + 1] = spent[g] + x[layout.recompute[g]]
    solution = _Relaxed(x, spent, cost, by)
    ways = _Reach(np.empty(count), np.empty(count, dtype=np.int64))
    path = np.empty(count, dtype=np.int64)
    done = np.full(count, -1, dtype=np.int64)
    for g in range(groups):
        begin, end = values.uses.start[layout.low[g]], values.uses.start[layout.high[g]]
        for j in values.uses.items[begin:end]:
            if done[j] != g and values.first[j] < layout.low[g]:
                done[j] = g
                at, length = _longest(values, layout, solution, g, j, ways, path)
                if at >= 0:
                    _add_row(values, layout, x, rows, at, g, path[:length])
                    finish(rows, -1.0, by)
    return finished(rows)


@kernel
def _longest(values, layout, solution, g, j, ways, path):
    """Where the most violated path to j begins, or -1, and its length; the path is left there."""
    most, at, length = 0.0, -1, 0
    for a in range(g, -1, -1):
        if values.first[j] >= layout.low[a]:
            break
        score, v = _best(values, layout, solution, a, g, j, ways)
        if score > most:
            most, at, length = score, a, 0
            while v >= 0:
                path[length] = v
                length += 1
                v = ways.via[v]
    return at, length


@kernel
def _add_row(values, layout, x, rows, at, g, path):
    for v in path:
        term(rows, x, layout.keep[at, v], -1.0)
    for s in range(at, g + 1):
        term(rows, x, layout.recompute[s, values.writer[path[0]]], -1.0)


@kernel
def _best(values, layout, solution, a, g, j, ways):
    """The most violated path that ends at j, and the value where it begins."""
    x, spent, by = solution.x, solution.spent, solution.by
    dist, via = ways.dist, ways.via
    dist[: j + 1] = 2.0
    dist[j] = x[layout.keep[a, j]]
    via[j] = -1
    most, at = 0.0, -1
    for v in range(j, -1, -1):
        if dist[v] > 1.0 - by:
            continue
        w = values.writer[v]
        lack = 1.0 - dist[v] - (spent[g + 1, w] - spent[a, w])
        if lack > by and lack * solution.cost[w] > most:
            most, at = lack * solution.cost[w], v
        for u in row(values.reads, w):
            if values.first[u] < layout.low[a]:
                further = dist[v] + x[layout.keep[a, u]]
                if further < dist[u]:
                    dist[u] = further
                    via[u] = v
    return most, at
