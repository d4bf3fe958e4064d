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
from typing import Literal, NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import IntArray
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
    every = family.sets
    sets = tuple(every[i] for i in path)
    cached = kept(graph, sets)
    dropped = bits(graph.everything & ~cached)
    size = sum(graph.bytes[v] for v in bits(cached))
    overhead = sum(graph.cost[v] for v in dropped)
    return Canonical(sets, overhead, formula_peak(sets, family), size, exact)


def _rounded(graph: Dag, grid: float, whole: Callable[[float], int]) -> Dag:
    """Costs as whole steps of a grid, which has ``grid`` per node."""
    step = sum(graph.cost) / (grid * len(graph)) or 1.0
    return replace(graph, cost=tuple(float(whole(c / step)) for c in graph.cost))


def _feasible(family: Family, budget: int) -> bool:
    return bool(_least_cache(family, budget)[-1] != _NONE)


def _by_fronts(family: Family, budget: int, most: int) -> list[int] | None:
    """The path of least overhead; empty without one, None where there are too many trade-offs."""
    enough, start, stop, parent, owner = _fronts(family, budget, most)
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
    table = _table(family, budget, width)
    row = table[-1]
    reached = np.flatnonzero(row != _NONE)
    if not len(reached):
        return []
    overhead = int(reached[-1] if most else reached[np.argmin(row[reached])])

    path, place = [], len(family) - 1
    while place > 0:
        path.append(place)
        place, overhead = map(int, _back(family, budget, table, place, overhead))
    return path[::-1]


@kernel
def _inside(words, a, b):
    """Is set a a subset of set b?"""
    for w in range(words.shape[1]):  # noqa: SIM110
        if words[a, w] & ~words[b, w]:
            return False
    return True


@kernel
def _free_bytes(family, a, b, budget):
    """The most that may be cached before going on from set a to set b."""
    return budget - 2 * (family.bytes[b] - family.bytes[a]) - family.readers[b]


@kernel
def _added(family, a, b):
    """What going on from set a to set b adds to the cache, and to the overhead."""
    more = family.boundary_bytes[b]
    added = family.cost[b] - family.cost[a] - family.boundary_cost[b]
    known = 0.0
    for k in range(family.boundary.start[b], family.boundary.start[b + 1]):
        v = family.boundary.items[k]
        if family.words[a, v >> 6] >> np.uint64(v & 63) & np.uint64(1):
            more -= family.node_bytes[v]
            known += family.node_cost[v]
    return more, added + known


@kernel
def _least_cache(family, budget):
    count = len(family.bytes)
    least = np.full(count, _NONE)
    least[0] = 0
    for b in range(1, count):
        for a in range(b):
            if least[a] > _free_bytes(family, a, b, budget) or not _inside(family.words, a, b):
                continue
            more, _ = _added(family, a, b)
            least[b] = min(least[b], least[a] + more)
    return least


@kernel
def _table(family, budget, width):
    count = len(family.bytes)
    best = np.full((count, width), _NONE)
    best[0, 0] = 0
    for b in range(1, count):
        for a in range(b):
            free_bytes = _free_bytes(family, a, b, budget)
            if free_bytes < 0 or not _inside(family.words, a, b):
                continue
            more, added = _added(family, a, b)
            shift = int(added + 0.5)
            source, target = best[a], best[b]
            for t in range(min(width - shift, int(family.cost[a]) + 1)):
                m = source[t]
                if m <= free_bytes and m + more < target[t + shift]:
                    target[t + shift] = m + more
    return best


@kernel
def _back(family, budget, best, b, t):
    """The set before b on a path with overhead t, and the overhead there."""
    for a in range(b):
        free_bytes = _free_bytes(family, a, b, budget)
        if free_bytes < 0 or not _inside(family.words, a, b):
            continue
        more, added = _added(family, a, b)
        before = t - int(added + 0.5)
        if before < 0 or best[a, before] > free_bytes:
            continue
        if best[a, before] + more == best[b, t]:
            return a, before
    return -1, 0


class _Front(NamedTuple):
    """Trade-offs of overhead (rising) and cache (falling), and which one each came from."""

    overhead: FloatArray
    cache: IntArray
    parent: IntArray


@kernel
def _empty(size):
    return _Front(np.zeros(size), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))


@kernel
def _copy(source, target, at, n):
    """The first n trade-offs, to a place in another front."""
    target.overhead[at : at + n] = source.overhead[:n]
    target.cache[at : at + n] = source.cache[:n]
    target.parent[at : at + n] = source.parent[:n]


@kernel
def _merged(front, i, i_end, step, now, n, new, slack):
    """The front of two: entries i to i_end, moved by a step, and the n of now; how many."""
    more, added = step
    j = found = 0
    while i < i_end or j < n:
        if j == n or (i < i_end and front.overhead[i] + added < now.overhead[j]):
            t, m, p = front.overhead[i] + added, front.cache[i] + more, i
            i += 1
        else:
            t, m, p = now.overhead[j], now.cache[j], now.parent[j]
            j += 1
        if found and m >= new.cache[found - 1]:
            continue
        if found and t <= new.overhead[found - 1] + slack:
            found -= 1
        new.overhead[found], new.cache[found], new.parent[found] = t, m, p
        found += 1
    return found


@kernel
def _fronts(family, budget, most):
    """Pareto fronts of overhead and cache, per set: entries start to stop, and whose each is."""
    count, slack = len(family.bytes), 1e-12 * family.cost[-1]
    start, stop = np.zeros(count, dtype=np.int64), np.zeros(count, dtype=np.int64)
    front, now, new = _empty(1024), _empty(1024), _empty(1024)
    owner = np.zeros(1024, dtype=np.int64)
    stop[0] = used = 1
    for b in range(1, count):
        n = 0
        for a in range(b):
            free_bytes = _free_bytes(family, a, b, budget)
            i, i_end = start[a], stop[a]
            if i == i_end or front.cache[i_end - 1] > free_bytes or not _inside(family.words, a, b):
                continue
            while front.cache[i] > free_bytes:  # the cache falls along the front
                i += 1
            if n + i_end - i > new.cache.size:
                new = _empty(2 * (n + i_end - i))
            n = _merged(front, i, i_end, _added(family, a, b), now, n, new, slack)
            now, new = new, now
        if used + n > most:
            return False, start, stop, front.parent, owner
        if used + n > owner.size:
            small, front, before = front, _empty(2 * (used + n)), owner
            owner = np.zeros(2 * (used + n), dtype=np.int64)
            _copy(small, front, 0, used)
            owner[:used] = before[:used]
        _copy(now, front, used, n)
        owner[used : used + n] = b
        start[b], stop[b] = used, used + n
        used += n
    return True, start, stop, front.parent, owner
