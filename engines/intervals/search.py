"""Iterated local search over the recomputations of a schedule."""

from __future__ import annotations

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.intervals.memory import END, REPEATS, peak
from rematbench.engines.intervals.moves import (
    EDITS,
    Dropping,
    apply_chain,
    chain,
    draw,
    gap,
    give_back,
    pick,
    repair,
    take_back,
    undo,
)

REPAIRS = 64
"""Drops after which a repair is given up."""


@kernel
def sweep(net, state, notes, budget, begin, end):
    """Try to give back the recomputations of some numbers, in order."""
    for at in range(begin, min(end, state.counts[END])):
        if state.op[at] >= 0:
            notes.counts[EDITS] = 0
            give_back(net, state, notes, budget, at)


@kernel
def _loosen(net, state, notes, window):
    """Take back a few recomputations, near each other, over the budget or not."""
    at = pick(state, notes)
    if at < 0:
        return
    stage = state.stage[at]
    op = state.op[at]
    take_back(net, state, notes, at)
    kind = draw(notes.random)
    many = int(draw(notes.random) * 4)
    if kind < 0.3:
        return
    for _ in range(many):
        best, nearest = -1, window + 1
        for _ in range(12):
            other = pick(state, notes)
            if other < 0:
                return
            far = state.stage[other] - stage if kind < 0.65 else state.op[other] - op
            distance = abs(far)
            if distance < nearest:
                best, nearest = other, distance
        if best >= 0:
            take_back(net, state, notes, best)


@kernel
def _tighten(net, state, notes, budget, price):
    """Drop something somewhere, needed or not."""
    n = state.head.size
    for _ in range(16):
        stage = 1 + int(draw(notes.random) * (n - 1))
        op = int(draw(notes.random) * stage)
        total, until = gap(net, state, op, stage * n + stage)
        if total > 0:
            count, _, _ = chain(net, state, notes, op, until, budget, price, np.inf)
            apply_chain(net, state, notes, count, until)
            return


@kernel
def anneal(net, state, notes, budget, steps, heat, samples, best):
    """Iterated local search from a schedule within the budget.

    Args:
        heat: temperature, in units of cost.
        best: rows (stage, op); the best schedule is left there.

    Returns:
        Cost of the best, its number of rows, and how many steps were taken.
    """
    n = state.head.size
    lowest, count = state.cost[0], keep(state, best)
    none = np.zeros(1, dtype=np.int64)
    accepted = 0
    for _ in range(steps):
        notes.counts[EDITS] = 0
        before = state.cost[0]
        limit = before - heat * np.log(1.0 - draw(notes.random))
        price = 0.0
        if draw(notes.random) < 0.3:
            price = before / (budget * n) * draw(notes.random) * 10
        if draw(notes.random) < 0.8:
            _loosen(net, state, notes, n)
        else:
            _tighten(net, state, notes, budget, price)
        rules = Dropping(budget, samples, price, 1.0, none)
        repair(net, state, notes, rules, limit + heat, REPAIRS)
        fits = peak(state) <= budget
        if fits:
            for _ in range(min(32, 2 * state.counts[REPEATS])):
                at = pick(state, notes)
                if at >= 0:
                    give_back(net, state, notes, budget, at)
        if not fits or state.cost[0] > limit:
            undo(net, state, notes, 0)
            continue
        accepted += 1
        if state.cost[0] < lowest * (1 - 1e-12):
            lowest, count = state.cost[0], keep(state, best)
    return lowest, count, accepted


@kernel
def keep(state, best):
    """Write the recomputations down."""
    n, count = state.head.size, 0
    for at in range(n, state.counts[END]):
        if state.op[at] >= 0:
            best[count, 0] = state.stage[at]
            best[count, 1] = state.op[at]
            count += 1
    return count
