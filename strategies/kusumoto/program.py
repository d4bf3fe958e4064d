"""The dynamic program over sequences of lower sets (Kusumoto et al., section 4).

opt[L, t] is the least bytes cached by a sequence that ends in L with overhead t, all of whose
stages fit the budget. From L to a larger L' the overhead grows by the nodes of L' less L that are
not in the boundary of L', the cache by those that are; the stage takes the cache so far, values
and gradients of L' less L, and what its readers need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.strategies.kusumoto.family import Dag, Family, bits, family_of

Objective = Literal["time", "memory", "least_cached"]

# The widest table of overheads, and the most cells or trade-offs; beyond these, costs are rounded.
_WIDEST = 100_000
_MOST = 20_000_000
# Steps of the grid per node: of a table, and of fronts, which hold few of them.
_GRID = 5
_FINE_GRID = 20
# Pairs of sets times the length of fronts: some seconds. Above 1,000 sets the grid is coarser.
_WORK = 2e10
_NONE = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Canonical:
    """A canonical strategy.

    Attributes:
        sets: lower sets, as bits, from the first block to all nodes.
        overhead: cost of the nodes that no boundary keeps, the last block's among them.
        peak: bytes by the formula.
        cached: bytes of all boundaries together.
        exact: was the overhead optimised in full, without rounded costs?
    """

    sets: tuple[int, ...]
    overhead: float
    peak: int
    cached: int
    exact: bool


def solve(
    graph: Dag,
    family: Family,
    budget: int,
    objective: Objective,
    most: int = _MOST,
    rounded: dict[float, Family] | None = None,
) -> Canonical | None:
    """The best sequence within the budget, or None.

    ``time`` takes the least overhead, ``memory`` the most (coarse blocks, on which freeing early
    saves most), ``least_cached`` the least cache. Where costs are no small whole numbers the
    latter two round them up, to a grid of five steps per node; ``time`` rounds them to the nearest.

    Args:
        most: trade-offs of overhead and cache to keep for ``time``; beyond, costs are rounded too.
        rounded: families of rounded costs by their grid, kept from one budget to the next.
    """
    if objective == "time":
        path = _by_fronts(family, budget, most)
        exact = path is not None
        if path is None:
            path = _by_grids(graph, family, budget, {} if rounded is None else rounded)
        return _canonical(graph, family, path, exact)
    total = float(family.cost[-1])
    exact = bool((family.node_cost == np.rint(family.node_cost)).all())
    exact &= total <= _WIDEST and (total + 1) * len(family) <= _MOST
    used = family if exact else family_of(_rounded(graph, _GRID, math.ceil), family.sets)
    path = _by_table(used, budget, objective == "memory")
    return _canonical(graph, family, path, exact)


def smallest_budget(family: Family) -> int:
    """The least budget that some sequence fits, by bisection."""
    high = 2 * int(family.bytes[-1])  # one block
    low = 0
    while low < high:
        middle = (low + high) // 2
        if _feasible(family, middle):
            high = middle
        else:
            low = middle + 1
    return high


def formula_peak(family_sets: Sequence[int], family: Family) -> int:
    """The largest stage of a sequence by the formula."""
    place = {members: i for i, members in enumerate(family.sets)}
    peak = cached = before = 0
    for members in family_sets:
        i = place[members]
        block = int(family.bytes[i] - family.bytes[place[before]])
        peak = max(peak, cached + 2 * block + int(family.readers[i]))
        new = (v for v in family.boundary[i].tolist() if not before >> v & 1)
        cached += sum(int(family.node_bytes[v]) for v in new)
        before = members
    return peak


def kept(graph: Dag, sets: Sequence[int]) -> int:
    """The boundaries of a sequence together: U_k."""
    found = 0
    for members in sets:
        for v in bits(members):
            if graph.after[v] & ~members:
                found |= 1 << v
    return found


def _canonical(graph: Dag, family: Family, path: list[int], exact: bool) -> Canonical | None:
    if not path:
        return None
    sets = tuple(family.sets[i] for i in path)
    cached = kept(graph, sets)
    dropped = bits(graph.everything & ~cached)
    size = sum(graph.bytes[v] for v in bits(cached))
    overhead = sum(graph.cost[v] for v in dropped)
    return Canonical(sets, overhead, formula_peak(sets, family), size, exact)


def _rounded(graph: Dag, grid: float, whole: Callable[[float], int]) -> Dag:
    """Costs as whole steps of a grid, which has ``grid`` per node."""
    step = sum(graph.cost) / (grid * len(graph)) or 1.0
    return replace(graph, cost=tuple(float(whole(c / step)) for c in graph.cost))


def _arrays(family: Family) -> tuple[Any, ...]:
    return (
        family.words, family.boundary.start, family.boundary.items, family.boundary_bytes,
        family.boundary_cost, family.bytes, family.cost, family.readers, family.node_bytes,
        family.node_cost,
    )  # fmt: skip


def _feasible(family: Family, budget: int) -> bool:
    return bool(_least_cache(*_arrays(family), budget)[-1] != _NONE)


def _by_fronts(family: Family, budget: int, most: int) -> list[int] | None:
    """The path of least overhead; empty without one, None where there are too many trade-offs."""
    enough, start, stop, parent, owner = _fronts(*_arrays(family), budget, most)
    if not enough:
        return None
    last = len(family) - 1
    if start[last] == stop[last]:
        return []
    path, entry = [], int(start[last])
    while entry > 0:  # entry 0 is the empty set's
        path.append(int(owner[entry]))
        entry = int(parent[entry])
    return path[::-1]


def _by_grids(graph: Dag, family: Family, budget: int, rounded: dict[float, Family]) -> list[int]:
    """The path of least rounded overhead, by the finest grid that has few enough trade-offs."""
    finest = min(_FINE_GRID, _WORK / (len(family) ** 2 * len(graph)))
    grid, path = min(rounded, default=finest), None
    while path is None:  # at the latest where all costs are rounded to zero
        if grid not in rounded:
            rounded[grid] = family_of(_rounded(graph, grid, round), family.sets)
        path = _by_fronts(rounded[grid], budget, _MOST)
        grid /= 2
    return path


def _by_table(family: Family, budget: int, most: bool) -> list[int]:
    """The path of most overhead, or of least cache; empty without one."""
    width = int(family.cost[-1]) + 1
    table = _table(*_arrays(family), budget, width)
    row = table[-1]
    reached = np.flatnonzero(row != _NONE)
    if not len(reached):
        return []
    overhead = int(reached[-1] if most else reached[np.argmin(row[reached])])

    path, place = [], len(family) - 1
    while place > 0:
        path.append(place)
        place, overhead = map(int, _back(*_arrays(family), budget, table, place, overhead))
    return path[::-1]


@kernel
def _inside(words, a, b):
    """Is set a a subset of set b?"""
    for w in range(words.shape[1]):  # noqa: SIM110
        if words[a, w] & ~words[b, w]:
            return False
    return True


@kernel
def _shared(words, items, first, stop, a, node_bytes, node_cost):
    """Bytes and cost of a boundary's members that set a has."""
    size, cost = 0, 0.0
    for k in range(first, stop):
        v = items[k]
        if words[a, v >> 6] >> np.uint64(v & 63) & np.uint64(1):
            size += node_bytes[v]
            cost += node_cost[v]
    return size, cost


@kernel
def _least_cache(
    words, at, items, edge_bytes, edge_cost, size, cost, readers, node_bytes, node_cost, budget
):  # fmt: skip
    least = np.full(size.size, _NONE)
    least[0] = 0
    for b in range(1, size.size):
        for a in range(b):
            if least[a] == _NONE or least[a] + 2 * (size[b] - size[a]) + readers[b] > budget:
                continue
            if _inside(words, a, b):
                shared, _ = _shared(words, items, at[b], at[b + 1], a, node_bytes, node_cost)
                least[b] = min(least[b], least[a] + edge_bytes[b] - shared)
    return least


@kernel
def _table(
    words, at, items, edge_bytes, edge_cost, size, cost, readers, node_bytes, node_cost, budget,
    width,
):  # fmt: skip
    best = np.full((size.size, width), _NONE)
    best[0, 0] = 0
    for b in range(1, size.size):
        for a in range(b):
            room = budget - 2 * (size[b] - size[a]) - readers[b]
            if room < 0 or not _inside(words, a, b):
                continue
            shared, known = _shared(words, items, at[b], at[b + 1], a, node_bytes, node_cost)
            more = edge_bytes[b] - shared
            added = int(cost[b] - cost[a] - edge_cost[b] + known + 0.5)
            source, target = best[a], best[b]
            for t in range(min(width - added, int(cost[a]) + 1)):
                m = source[t]
                if m <= room and m + more < target[t + added]:
                    target[t + added] = m + more
    return best


@kernel
def _back(
    words, at, items, edge_bytes, edge_cost, size, cost, readers, node_bytes, node_cost, budget,
    best, b, t,
):  # fmt: skip
    """The set before b on a path with overhead t, and the overhead there."""
    for a in range(b):
        room = budget - 2 * (size[b] - size[a]) - readers[b]
        if room < 0 or not _inside(words, a, b):
            continue
        shared, known = _shared(words, items, at[b], at[b + 1], a, node_bytes, node_cost)
        before = t - int(cost[b] - cost[a] - edge_cost[b] + known + 0.5)
        if before < 0 or best[a, before] > room:
            continue
        if best[a, before] + edge_bytes[b] - shared == best[b, t]:
            return a, before
    return -1, 0


@kernel
def _merged(
    overhead, cache, i, i_end, added, more, t_now, m_now, p_now, n, t_new, m_new, p_new, slack
):
    """The front of two: entries i to i_end, moved by (added, more), and the n of now; how many."""
    j = found = 0
    while i < i_end or j < n:
        if j == n or (i < i_end and overhead[i] + added < t_now[j]):
            t, m, p = overhead[i] + added, cache[i] + more, i
            i += 1
        else:
            t, m, p = t_now[j], m_now[j], p_now[j]
            j += 1
        if found and m >= m_new[found - 1]:
            continue
        if found and t <= t_new[found - 1] + slack:
            found -= 1
        t_new[found], m_new[found], p_new[found] = t, m, p
        found += 1
    return found


@kernel
def _fronts(
    words, at, items, edge_bytes, edge_cost, size, cost, readers, node_bytes, node_cost, budget,
    most,
):  # fmt: skip
    """Pareto fronts of overhead (rising) and cache (falling), per set."""
    count = size.size
    start, stop = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    overhead, cache = np.zeros(1024), np.zeros(1024, dtype=np.int64)
    parent, owner = np.zeros(1024, dtype=np.int64), np.zeros(1024, dtype=np.int64)
    stop[0] = used = 1
    t_now, m_now = np.empty(1024), np.empty(1024, dtype=np.int64)
    p_now = np.empty(1024, dtype=np.int64)
    t_new, m_new = np.empty(1024), np.empty(1024, dtype=np.int64)
    p_new = np.empty(1024, dtype=np.int64)
    for b in range(1, count):
        n = 0
        for a in range(b):
            room = budget - 2 * (size[b] - size[a]) - readers[b]
            i, i_end = start[a], stop[a]
            if i == i_end or cache[i_end - 1] > room or not _inside(words, a, b):
                continue
            shared, known = _shared(words, items, at[b], at[b + 1], a, node_bytes, node_cost)
            more = edge_bytes[b] - shared
            added = cost[b] - cost[a] - edge_cost[b] + known
            while cache[i] > room:  # the cache falls along the front
                i += 1
            if n + i_end - i > t_new.size:
                larger = 2 * (n + i_end - i)
                t_new, m_new = np.empty(larger), np.empty(larger, dtype=np.int64)
                p_new = np.empty(larger, dtype=np.int64)
            n = _merged(
                overhead, cache, i, i_end, added, more, t_now, m_now, p_now, n,
                t_new, m_new, p_new, 1e-12 * cost[count - 1],
            )  # fmt: skip
            t_now, t_new = t_new, t_now
            m_now, m_new = m_new, m_now
            p_now, p_new = p_new, p_now
        if used + n > most:
            return False, start, stop, parent, owner
        if used + n > overhead.size:
            larger = 2 * (used + n)
            t_old, m_old, p_old, o_old = overhead, cache, parent, owner
            overhead, cache = np.zeros(larger), np.zeros(larger, dtype=np.int64)
            parent, owner = np.zeros(larger, dtype=np.int64), np.zeros(larger, dtype=np.int64)
            overhead[:used], cache[:used] = t_old[:used], m_old[:used]
            parent[:used], owner[:used] = p_old[:used], o_old[:used]
        overhead[used : used + n], cache[used : used + n] = t_now[:n], m_now[:n]
        parent[used : used + n], owner[used : used + n] = p_now[:n], b
        start[b], stop[b] = used, used + n
        used += n
    return True, start, stop, parent, owner
