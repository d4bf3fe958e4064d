"""One option per block, the cheapest that fit: a knapsack with a choice per block.

Steps up the convex hulls, the ones that save most per byte first, are the linear relaxation's
solution but for the step that does not fit any more. What this may lose is known: where it
is worth the effort, a dynamic program over the blocks, whose states are pairs of bytes and cost
that nothing dominates, makes it exact. At the relaxation's price of a byte each option has a
reduced cost, and states that cannot beat the first choice are dropped (Dyer, Riha and Walker, "A
hybrid dynamic programming/branch-and-bound algorithm for the multiple-choice knapsack problem").
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import IntArray

MOST_STATES = 200_000
"""States of the dynamic program, over all blocks, beyond which the first choice stands."""


class Hull(NamedTuple):
    """Options of a kind of block, on a convex hull: from few bytes and dear to many and cheap.

    Attributes:
        bytes: kept, per option, ascending.
        cost: per option, descending.
    """

    bytes: IntArray
    cost: FloatArray


class Choice(NamedTuple):
    """An option per block.

    Attributes:
        level: per block, the number of its option.
        loss: above the least cost there is, at most; 0 where the choice is optimal.
        price: of a byte, in the linear relaxation; 0 where all that saves something fits.
    """

    level: IntArray
    loss: float
    price: float


def combined(
    hulls: list[Hull], kind_of: IntArray, free_bytes: float, tolerance: float = 0.0
) -> Choice | None:
    """The least cost in some bytes; None if they are too few.

    Among equal blocks the last ones keep most, since what they keep is given back first.

    Args:
        hulls: per kind of block.
        kind_of: per block, the number of its kind.
        free_bytes: in bytes.
        tolerance: a loss that is good enough.

    Returns:
        Its ``loss`` is above ``tolerance`` only where there were too many states.
    """
    choice = by_steps(hulls, kind_of, free_bytes)
    if choice is None or choice.loss <= tolerance:
        return choice
    return _exact(hulls, kind_of, free_bytes, choice) or choice


def by_steps(hulls: list[Hull], kind_of: IntArray, free_bytes: float) -> Choice | None:
    """Steps up the hulls, as long as they fit, by what they save per byte."""
    level = np.zeros(len(kind_of), dtype=np.int64)
    used = sum(int(hulls[k].bytes[0]) for k in kind_of.tolist())
    if used > free_bytes:
        return None
    steps = [
        (float(hull.cost[low] - hull.cost[high]) / int(hull.bytes[high] - hull.bytes[low]), k, low)
        for k, hull in enumerate(hulls)
        for low, high in pairwise(range(len(hull.bytes)))
    ]
    of_kind = [np.flatnonzero(kind_of == k)[::-1].tolist() for k in range(len(hulls))]
    price = 0.0
    for saved, k, number in sorted(steps, reverse=True):
        more = int(hulls[k].bytes[number + 1] - hulls[k].bytes[number])
        for block in of_kind[k]:
            if level[block] == number and used + more <= free_bytes:
                level[block] = number + 1
                used += more
            elif level[block] == number:
                price = max(price, saved)
    reduced = sum(
        float(_reduced(hulls[k], price)[at])
        for k, at in zip(kind_of.tolist(), level.tolist(), strict=True)
    )
    return Choice(level, reduced + price * (free_bytes - used), price)


def _reduced(hull: Hull, price: float) -> FloatArray:
    """Per option, by how much cost and price are above those of the best one."""
    total = hull.cost + price * hull.bytes
    return np.asarray(total - total.min())


class _States(NamedTuple):
    """What a dynamic program knows after a block: rows that nothing dominates.

    Attributes:
        bytes, reduced: sums over the blocks so far.
        before, option: the state of the block before, and the option of this one.
    """

    bytes: IntArray
    reduced: FloatArray
    before: IntArray
    option: IntArray


def _exact(hulls: list[Hull], kind_of: IntArray, free_bytes: float, first: Choice) -> Choice | None:
    """The least cost by a dynamic program; None where it has too many states."""
    order = np.argsort(kind_of, kind="stable")
    limit = first.loss * (1 + 1e-9)
    reduced = [_reduced(hull, first.price) for hull in hulls]
    usable = [np.flatnonzero(row <= limit) for row in reduced]
    kinds = kind_of[order].tolist()
    # What blocks yet to come need at least, and can use at most.
    least = np.cumsum([hulls[k].bytes[usable[k][0]] for k in kinds][::-1])[::-1].tolist()
    most = np.cumsum([hulls[k].bytes[usable[k][-1]] for k in kinds][::-1])[::-1].tolist()
    none = np.zeros(1, dtype=np.int64)
    table, count = [_States(none, np.zeros(1), none, none)], 0
    for k, need, use in zip(kinds, [*least[1:], 0], [*most[1:], 0], strict=True):
        options = usable[k]
        states = _extended(table[-1], hulls[k].bytes[options], reduced[k][options], options)
        slack = np.maximum(0, free_bytes - states.bytes - use)
        good = (states.bytes + need <= free_bytes) & (states.reduced + first.price * slack <= limit)
        table.append(_undominated(_taken(states, np.flatnonzero(good)), first.price))
        count += len(table[-1].bytes)
        if count > MOST_STATES:
            return None
    return _traced(table, kind_of, order, first.price)


def _extended(last: _States, more: IntArray, reduced: FloatArray, options: IntArray) -> _States:
    """All states with all options."""
    count = len(last.bytes)
    return _States(
        np.add.outer(more, last.bytes).ravel(),
        np.add.outer(reduced, last.reduced).ravel(),
        np.tile(np.arange(count), len(options)),
        np.repeat(options, count),
    )


def _taken(states: _States, rows: IntArray) -> _States:
    return _States(
        states.bytes[rows], states.reduced[rows], states.before[rows], states.option[rows]
    )


def _undominated(states: _States, price: float) -> _States:
    """The states that cost less than all with as few bytes."""
    cost = states.reduced - price * states.bytes
    order = np.lexsort((cost, states.bytes))
    ahead = np.concatenate([[np.inf], np.minimum.accumulate(cost[order])[:-1]])
    return _taken(states, order[cost[order] < ahead])


def _traced(table: list[_States], kind_of: IntArray, order: IntArray, price: float) -> Choice:
    """The choice that leads to the cheapest last state."""
    last = table[-1]
    at = int(np.argmin(last.reduced - price * last.bytes))
    level = np.zeros(len(kind_of), dtype=np.int64)
    for block, states in zip(order[::-1].tolist(), table[:0:-1], strict=True):
        level[block] = states.option[at]
        at = int(states.before[at])
    for k in np.unique(kind_of).tolist():
        level[kind_of == k] = np.sort(level[kind_of == k])
    return Choice(level, 0.0, price)
