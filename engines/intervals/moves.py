"""Moves of the search: drop a value over the peak, repair, give back, and undo."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.intervals.edits import (
    end_of,
    find,
    insert,
    is_useless,
    key_of,
    latest,
    may_repeat,
    next_read,
    remove,
)
from rematbench.engines.intervals.memory import END, REPEATS, most_between, peak, peak_compute
from rematbench.engines.stages.kernels import row
from rematbench.graphs.ir import IntArray

LONGEST = 4096
"""Ops of the longest chain that is recomputed at once."""
CHAINS, EDITS = range(2)
"""Scratch counts."""


class Scratch(NamedTuple):
    """What moves write down.

    Attributes:
        mark: per op, the number of the last chain that it was part of.
        chain: ops of the chain at hand.
        log: edits to undo, (stage, op, 1 for an insertion or -1) each.
        counts: how many ``CHAINS`` so far, and how many ``EDITS`` are in the log.
        random: state of the random numbers.
    """

    mark: IntArray
    chain: IntArray
    log: IntArray
    counts: IntArray
    random: np.ndarray


class Dropping(NamedTuple):
    """How a repair chooses what to drop at the peak.

    Attributes:
        budget: in bytes.
        samples: ops to look at per drop; all where there are no more.
        price: per byte, of what is kept for recomputations.
        noise: spread of the random factor on a score.
        crowd: per stage, how many before it are above the budget; or one entry.
    """

    budget: int
    samples: int
    price: float
    noise: float
    crowd: IntArray


def scratch(ops: int, seed: int) -> Scratch:
    """For a graph of so many ops."""
    mixed = (seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64
    return Scratch(
        np.zeros(ops, dtype=np.int64),
        np.zeros(LONGEST, dtype=np.int64),
        np.zeros((1 << 16, 3), dtype=np.int64),
        np.zeros(2, dtype=np.int64),
        np.array([mixed or 1], dtype=np.uint64),
    )


@kernel
def draw(random):
    """A random number from 0 to below 1 (xorshift64*)."""
    x = random[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    random[0] = x
    return ((x * np.uint64(0x2545F4914F6CDD1D)) >> np.uint64(11)) * (1.0 / 9007199254740992.0)


@kernel
def gap(net, state, op, key):
    """Bytes of an op that lie idle at a moment, and the stage of their next read; 0 for none."""
    n = state.head.size
    if op * n + op >= key:
        return 0, -1
    at = latest(state, op, key)
    begin, following = key_of(state, at), key_of(state, state.again[at])
    total, until = 0, n * n - 1
    for value in row(net.writes, op):
        if net.size[value] == 0:
            continue
        end = end_of(net, state, value, begin, following)
        if end < key:
            continue
        read = next_read(net, state, value, key - 1, min(following, n * n))
        if read == key:
            return 0, -1
        total += net.size[value]
        until = min(until, read)
    stage = until // n
    if total == 0 or op >= stage or stage * n + op <= key:
        return 0, -1
    return total, stage


@kernel
def chain(net, state, notes, op, stage, budget, price, most):
    """What to compute again with an op in a stage, into ``notes.chain``.

    What it reads stays where there is room for it, or where its bytes times ``price`` are less
    than its own cost (by chance, where that is below 0); else it is computed again, too.

    Args:
        most: give up where it comes to more.

    Returns:
        The number of ops, 0 for too many or too dear ones; their cost; the price of what stays.
    """
    n = state.head.size
    notes.counts[CHAINS] += 1
    number = notes.counts[CHAINS]
    notes.mark[op] = number
    notes.chain[0] = op
    count, done, total, kept = 1, 0, 0.0, 0.0
    while done < count:
        i = notes.chain[done]
        done += 1
        total += net.cost[i]
        if total + kept > most:
            return 0, np.inf, 0.0
        key = stage * n + i
        for value in row(net.reads, i):
            size, source = net.size[value], net.writer[value]
            if size == 0 or notes.mark[source] == number:
                continue
            at = latest(state, source, key)
            following = key_of(state, state.again[at])
            end = end_of(net, state, value, key_of(state, at), following)
            if end >= key or most_between(state, end + 1, key) + size <= budget:
                continue
            if not may_repeat(net, state, source):
                continue
            stays = draw(notes.random) < 0.5 if price < 0 else price * size < net.cost[source]
            if stays:
                kept += price * size
                continue
            if count == LONGEST:
                return 0, np.inf, 0.0
            notes.mark[source] = number
            notes.chain[count] = source
            count += 1
    return count, total, kept


@kernel
def note(notes, stage, op, kind):
    """Write an edit down; what does not fit in the log cannot be undone."""
    if notes.counts[EDITS] < notes.log.shape[0]:
        notes.log[notes.counts[EDITS]] = (stage, op, kind)
    notes.counts[EDITS] += 1


@kernel
def undo(net, state, notes, down_to):
    """Take back edits."""
    while notes.counts[EDITS] > down_to:
        notes.counts[EDITS] -= 1
        stage, op, kind = notes.log[notes.counts[EDITS]]
        if kind > 0:
            remove(net, state, find(state, stage, op))
        else:
            insert(net, state, stage, op)


@kernel
def full(notes):
    """Is the log almost full?"""
    return notes.counts[EDITS] + LONGEST > notes.log.shape[0]


@kernel
def apply_chain(net, state, notes, count, stage):
    """Compute what is in ``notes.chain`` again."""
    for k in range(count):
        if insert(net, state, stage, notes.chain[k]):
            note(notes, stage, notes.chain[k], 1)


@kernel
def take_back(net, state, notes, at):
    """Remove a recomputation, and what was recomputed only for it."""
    n, done = state.head.size, notes.counts[EDITS]
    _take_out(net, state, notes, at)
    while done < min(notes.counts[EDITS], notes.log.shape[0]):
        stage, op = notes.log[done, 0], notes.log[done, 1]
        done += 1
        for value in row(net.reads, op):
            other = latest(state, net.writer[value], stage * n + op)
            if other >= n and is_useless(net, state, other):
                _take_out(net, state, notes, other)


@kernel
def _take_out(net, state, notes, at):
    stage, op = state.stage[at], state.op[at]
    remove(net, state, at)
    note(notes, stage, op, -1)


@kernel
def candidate(net, state, notes, rules, op, key, excess, best):
    """Score of dropping an op's values over a moment, and the stage; infinite above ``best``."""
    total, stage = gap(net, state, op, key)
    if total == 0 or not may_repeat(net, state, op):
        return np.inf, -1
    helps = float(min(total, excess))
    if rules.crowd.size > 1:
        begin = key_of(state, latest(state, op, key)) // state.head.size
        helps = float(total) * (rules.crowd[stage] - rules.crowd[begin] + 1)
    if rules.noise > 0:
        helps *= np.exp(rules.noise * (draw(notes.random) - 0.5))
    most = best * helps
    count, cost, kept = chain(net, state, notes, op, stage, rules.budget, rules.price, most)
    if count == 0:
        return np.inf, stage
    return (cost + kept + 1e-30) / helps, stage


@kernel
def repair(net, state, notes, rules, most_cost, drops):
    """Drop values at the peak until the budget holds.

    Args:
        rules: a :class:`Dropping`.
        most_cost: give up where the schedule costs more.
        drops: give up after so many.

    Returns:
        Can it go on? False where nothing can be dropped, or it has become too dear.
    """
    budget = rules.budget
    for _ in range(drops):
        if peak(state) <= budget:
            break
        if state.cost[0] > most_cost or full(notes):
            return False
        at = peak_compute(state)
        chosen, until = _chosen(net, state, notes, rules, at)
        if chosen < 0:
            return False
        count, _, _ = chain(net, state, notes, chosen, until, budget, rules.price, np.inf)
        edits = notes.counts[EDITS]
        apply_chain(net, state, notes, count, until)
        if notes.counts[EDITS] == edits:
            return False
    return True


@kernel
def _chosen(net, state, notes, rules, at):
    """The best op to drop over a compute, and the stage in which to compute it again."""
    key, excess = key_of(state, at), peak(state) - rules.budget
    reach, samples = state.stage[at], rules.samples
    best, chosen, until, hits = np.inf, -1, -1, 0
    for k in range(min(reach, 8 * samples)):
        op = k if reach <= 8 * samples else int(draw(notes.random) * reach)
        score, stage = candidate(net, state, notes, rules, op, key, excess, best)
        if score < best:
            best, chosen, until = score, op, stage
        hits += stage >= 0
        if hits >= samples and reach > 8 * samples:
            break
    return chosen, until


@kernel
def give_back(net, state, notes, budget, at):
    """Remove a recomputation if the budget holds without it."""
    before = notes.counts[EDITS]
    take_back(net, state, notes, at)
    if peak(state) <= budget:
        return True
    undo(net, state, notes, before)
    return False


@kernel
def pick(state, notes):
    """A random recomputation, or -1."""
    n = state.head.size
    span = state.counts[END] - n
    if state.counts[REPEATS] == 0:
        return -1
    for _ in range(64):
        at = n + int(draw(notes.random) * span)
        if state.op[at] >= 0:
            return at
    return -1
