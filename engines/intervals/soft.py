"""Simulated annealing over schedules that may break the budget, at a price per byte and stage."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.intervals.edits import find, insert, key_of, may_repeat
from rematbench.engines.intervals.memory import EXCESS, peak_compute
from rematbench.engines.intervals.moves import (
    EDITS,
    apply_chain,
    chain,
    draw,
    gap,
    note,
    pick,
    take_back,
    undo,
)
from rematbench.engines.intervals.search import keep

RELIEVED, TAKEN_BACK, TRIES = 0.3, 0.3, 8
"""Shares of moves that look at the peak, and that then take a recomputation back; ops looked at."""


@kernel
def _some_read(net, state, notes):
    """A random op, and the stage of a random read of it; or -1."""
    n = state.head.size
    for _ in range(32):
        op = int(draw(notes.random) * n)
        stage = _read_of(net, state, notes, op)
        if stage > op + 1 and find(state, stage, op) < 0:
            return op, stage
    return -1, -1


@kernel
def _read_of(net, state, notes, op):
    """The stage of a random read of an op, or -1; an output is read at the end, too."""
    first, last = net.writes.start[op], net.writes.start[op + 1]
    value = net.writes.items[first + int(draw(notes.random) * (last - first))]
    low, high = net.readers.start[value], net.readers.start[value + 1]
    reads = high - low + int(net.final[value])
    if reads == 0:
        return -1
    chosen = low + int(draw(notes.random) * reads)
    if chosen == high:
        return state.head.size - 1
    at = net.readers.items[chosen]
    while state.again[at] >= 0 and draw(notes.random) < 0.5:
        at = state.again[at]
    return state.stage[at]


@kernel
def _drop(net, state, notes, budget):
    op, stage = _some_read(net, state, notes)
    if op < 0:
        return
    price = -1.0 if draw(notes.random) < 0.7 else 0.0
    count, _, _ = chain(net, state, notes, op, stage, budget, price, np.inf)
    apply_chain(net, state, notes, count, stage)


@kernel
def _shift(net, state, notes):
    """Move a recomputation to another read of the same op."""
    at = pick(state, notes)
    if at < 0:
        return
    op, old = state.op[at], state.stage[at]
    stage = _read_of(net, state, notes, op)
    if stage <= op or stage == old:
        return
    take_back(net, state, notes, at)
    if insert(net, state, stage, op):
        note(notes, stage, op, 1)


@kernel
def _relieve(net, state, notes, budget):
    """Drop something over the peak, or take back what is recomputed in its stage."""
    at = peak_compute(state)
    stage, key = state.stage[at], key_of(state, at)
    if draw(notes.random) < TAKEN_BACK:
        at, seen, chosen = state.head[stage], 0, -1
        while state.after[at] >= 0:
            seen += 1
            if draw(notes.random) * seen < 1:
                chosen = at
            at = state.after[at]
        if chosen >= 0:
            take_back(net, state, notes, chosen)
        return
    most, chosen, until = 0, -1, -1
    for _ in range(TRIES):
        op = int(draw(notes.random) * (stage + 1))
        total, following = gap(net, state, op, key)
        if total > most and may_repeat(net, state, op):
            most, chosen, until = total, op, following
    if chosen >= 0:
        price = -1.0 if draw(notes.random) < 0.7 else 0.0
        count, _, _ = chain(net, state, notes, chosen, until, budget, price, np.inf)
        apply_chain(net, state, notes, count, until)


class Softening(NamedTuple):
    """How to anneal.

    Attributes:
        budget: in bytes.
        steps: to take.
        heat: temperature, in units of cost.
        price: of a byte above the budget, per stage.
    """

    budget: int
    steps: int
    heat: float
    price: float


@kernel
def soften(net, state, notes, rules, best, lowest):
    """Anneal.

    Args:
        rules: a :class:`Softening`.
        best: rows (stage, op); the best schedule within the budget is left there.
        lowest: the cost below which a schedule is the best.

    Returns:
        Cost of the best, its number of rows or -1, and in how many steps the budget held.
    """
    count, held, price = -1, 0, rules.price
    for _ in range(rules.steps):
        notes.counts[EDITS] = 0
        before = state.cost[0] + price * state.counts[EXCESS]
        _move(net, state, notes, rules.budget)
        if notes.counts[EDITS] == 0:
            continue
        after = state.cost[0] + price * state.counts[EXCESS]
        if after > before and after - before > -rules.heat * np.log(1.0 - draw(notes.random)):
            undo(net, state, notes, 0)
        elif state.counts[EXCESS] == 0 and state.cost[0] < lowest * (1 - 1e-12):
            lowest, count = state.cost[0], keep(state, best)
        held += state.counts[EXCESS] == 0
    return lowest, count, held


@kernel
def _move(net, state, notes, budget):
    """Change a schedule at random; more often near the peak, while that is above the budget."""
    kind = draw(notes.random)
    if state.counts[EXCESS] > 0 and draw(notes.random) < RELIEVED:
        _relieve(net, state, notes, budget)
        return
    if kind < 0.3 or kind >= 0.85:
        at = pick(state, notes)
        if at >= 0:
            take_back(net, state, notes, at)
    if 0.3 <= kind < 0.65 or kind >= 0.85:
        _drop(net, state, notes, budget)
    elif kind >= 0.65:
        _shift(net, state, notes)
