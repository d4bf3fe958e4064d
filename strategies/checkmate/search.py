"""Good schedules: drop what is cheap to recompute until the budget holds, then improve.

The repair starts from a schedule over budget. At its peak, each value that is in memory and idle
can be dropped until its next use; the one with the least recomputation per byte and over-budget
statement goes. The improvement gives back what fits after all, and repeats from perturbed
schedules (iterated local search).
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter

import numpy as np

from rematbench.graphs.kernels import kernel
from rematbench.strategies.checkmate.space import Schedule, Space, recompute_cost

Random = np.random.Generator


def repair(
    space: Space,
    start: Schedule,
    budget: int,
    random: Random,
    deadline: float,
    noise: float = 0.0,
) -> Schedule:
    """Drop values at the peak until the budget holds, nothing can be dropped, or time is up.

    Args:
        deadline: on the clock of ``perf_counter``.
        noise: spread of a random factor on each score.
    """
    schedule = start
    while schedule.trace.peak_bytes > budget and perf_counter() < deadline:
        choice = _cheapest_drop(space, schedule, budget, random, noise)
        if choice is None:
            break
        keep = schedule.keep.copy()
        keep[choice] = False
        schedule = space.evaluate(keep)
    return schedule


def _cheapest_drop(
    space: Space, schedule: Schedule, budget: int, random: Random, noise: float
) -> tuple[int, int] | None:
    tables = space.graph.tables
    codes = schedule.trace.codes
    factor = np.exp(noise * random.standard_normal(space.shape[1]))
    stage, op = _score(
        codes,
        schedule.stage_of,
        schedule.trace.bytes_during,
        budget,
        space.place[tables.op_of],
        space.place[tables.writer],
        tables.value_bytes,
        tables.reads.start,
        tables.reads.items,
        schedule.keep,
        schedule.available,
        schedule.recomputed,
        space.cost,
        space.inputs.start,
        space.inputs.items,
        factor,
    )
    return None if stage < 0 else (int(stage), int(op))


@kernel
def _score(
    codes, stage_of, during, budget, place_of, writer, size, read_at, reads,
    keep, available, recomputed, cost, input_at, inputs, factor,
):  # fmt: skip
    """Stage and op of the drop that costs least per byte and crowded moment; -1, -1 if none."""
    stage_at, over = _stages(codes, stage_of, during, budget)
    bytes_of, last, following = _idle(
        codes, np.argmax(during), place_of, writer, size, read_at, reads, keep.shape[1]
    )
    best = np.inf
    best_stage = best_op = -1
    for i in range(keep.shape[1]):
        if bytes_of[i] == 0 or following[i] < 0 or following[i] >= codes.size:
            continue
        s = stage_at[following[i]]
        if s <= stage_at[last[i]] and last[i] >= 0:
            continue
        if not keep[s, i] or not available[s, i]:
            continue
        crowded = over[following[i]] - over[last[i] + 1]
        price = recompute_cost(i, available[s], recomputed[s], cost, input_at, inputs)
        score = (price + 1e-12) * factor[i] / (bytes_of[i] * crowded + 1e-12)
        if crowded > 0 and score < best:
            best, best_stage, best_op = score, s, i
    return best_stage, best_op


@kernel
def _stages(codes, stage_of, during, budget):
    """Per event its stage; per event the number of moments above the budget before it."""
    stage_at = np.empty(codes.size, dtype=np.int64)
    over = np.zeros(codes.size + 1, dtype=np.int64)
    stage = -1
    computes = 0
    for p in range(codes.size):
        over[p + 1] = over[p] + (during[p] > budget)
        if codes[p] >= 0:
            stage = stage_of[computes]
            computes += 1
        stage_at[p] = stage
    return stage_at, over


@kernel
def _idle(codes, peak, place_of, writer, size, read_at, reads, n):
    """What lies unused over the peak, per forward op.

    Returns:
        Bytes of its values that do; the last event that touched it before; the next that reads
        it: the number of events if none does, -1 if the peak itself does.
    """
    before = np.full(size.size, -1, dtype=np.int64)
    after = np.full(size.size, -1, dtype=np.int64)
    last = np.full(n, -1, dtype=np.int64)
    for p in range(peak):
        code = codes[p]
        if code < 0:
            continue
        if place_of[code] >= 0:
            last[place_of[code]] = p
        for k in range(read_at[code], read_at[code + 1]):
            before[reads[k]] = p
    made = np.zeros(n, dtype=np.bool_)
    for p in range(peak, codes.size):
        code = codes[p]
        if code < 0:
            continue
        for k in range(read_at[code], read_at[code + 1]):
            v = reads[k]
            if after[v] < 0 and writer[v] >= 0 and not made[writer[v]]:
                after[v] = p
        if place_of[code] >= 0:
            made[place_of[code]] = True
    bytes_of = np.zeros(n)
    following = np.full(n, codes.size, dtype=np.int64)
    computed = last >= 0
    for v in range(size.size):
        i = writer[v]
        if i >= 0 and after[v] > peak and computed[i]:
            bytes_of[i] += size[v]
            last[i] = max(last[i], before[v])
            following[i] = min(following[i], after[v])
        elif i >= 0 and after[v] == peak:
            following[i] = -1
    return bytes_of, last, following


def give_back(
    space: Space, schedule: Schedule, budget: int, random: Random, deadline: float
) -> Schedule:
    """Keep again, one by one, what fits and saves cost."""
    dropped = np.argwhere(~schedule.keep)
    order = np.argsort(-space.cost[dropped[:, 1]] * random.uniform(0.5, 1.5, len(dropped)))
    for stage, op in dropped[order].tolist():
        if perf_counter() > deadline:
            break
        keep = schedule.keep.copy()
        keep[stage, op] = True
        found = space.evaluate(keep)
        if found.trace.peak_bytes <= budget and found.trace.cost <= schedule.trace.cost:
            schedule = found
    return schedule


def search(
    space: Space, budget: int, random: Random, deadline: float, tries: int = 20
) -> Iterator[Schedule]:
    """Iterated local search, one schedule after another; most are no better than the best so far.

    Args:
        deadline: on the clock of ``perf_counter``.
        tries: repairs before the search gives up; then the last schedule, the leanest of them,
            is over budget.
    """
    everything = space.everything()
    current = repair(space, everything, budget, random, deadline)
    for number in range(1, tries):
        if current.trace.peak_bytes <= budget or perf_counter() > deadline:
            break
        found = repair(space, everything, budget, random, deadline, noise=0.3 * number)
        current = min(current, found, key=lambda schedule: schedule.trace.peak_bytes)
    yield current
    if current.trace.peak_bytes > budget:
        return
    current = give_back(space, current, budget, random, deadline)
    yield current
    while perf_counter() < deadline:
        start = _perturb(space, current, random)
        found = repair(space, start, budget, random, deadline, noise=0.2)
        if found.trace.peak_bytes <= budget:
            found = give_back(space, found, budget, random, deadline)
            excess = found.trace.cost - current.trace.cost
            if excess <= 0 or random.random() < np.exp(-excess / (0.002 * current.trace.cost)):
                current = found
        yield found


def _perturb(space: Space, schedule: Schedule, random: Random) -> Schedule:
    """Give back a random stretch of what is dropped, over budget or not."""
    keep = schedule.keep.copy()
    dropped = np.argwhere(~keep)
    if not len(dropped):
        return schedule
    share = random.uniform(0.05, 0.4)
    if random.random() < 0.5:  # neighbours in time
        centre, width = random.integers(len(keep)), max(1, int(share * len(keep)))
        chosen = dropped[np.abs(dropped[:, 0] - centre) <= width]
    else:
        chosen = dropped[random.random(len(dropped)) < share]
    keep[chosen[:, 0], chosen[:, 1]] = True
    return space.evaluate(keep)
