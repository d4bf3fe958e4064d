"""Good schedules: evict what is cheap to recompute until the budget holds, then improve.

The repair starts from a schedule over budget. At its peak, each value that is in memory and idle
can be evicted until its next use; the one with the least recomputation per byte and over-budget
statement goes. The improvement gives back what fits after all, and repeats from perturbed
schedules (iterated local search).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.stages.kernels import cheapest_eviction
from rematbench.engines.stages.space import AnySpace, Schedule

Random = np.random.Generator

TEMPERATURE = 0.002
"""How much worse, relative to its cost, a schedule may be to go on from, typically."""


def repair(
    start: Schedule[AnySpace], budget: int, random: Random, deadline: float, noise: float = 0.0
) -> Schedule[AnySpace]:
    """Evict at the peak until the budget holds, nothing can be evicted, or time is up.

    Args:
        budget: in bytes.
        deadline: by :func:`~rematbench.base.clock.planning_seconds`.
        noise: spread of a random factor on each score.
    """
    schedule, space = start, start.space
    while schedule.peak > budget and planning_seconds() < deadline:
        factor = np.exp(noise * random.standard_normal(space.shape[1]))
        arrays = schedule.course(), space.values, space.structure, space.cost
        stage, op = cheapest_eviction(*arrays, budget, factor)
        if stage < 0:
            break
        schedule = schedule.keeping(stage, op, False)
    return schedule


def give_back(
    schedule: Schedule[AnySpace], budget: int, random: Random, deadline: float
) -> Schedule[AnySpace]:
    """Keep again, one by one, what fits and saves cost."""
    dropped = np.argwhere(~schedule.keep)
    order = np.argsort(-schedule.space.cost[dropped[:, 1]] * random.uniform(0.5, 1.5, len(dropped)))
    for stage, op in dropped[order].tolist():
        if planning_seconds() > deadline:
            break
        found = schedule.keeping(stage, op)
        if found.peak <= budget and found.cost <= schedule.cost:
            schedule = found
    return schedule


def perturb(schedule: Schedule[AnySpace], random: Random) -> Schedule[AnySpace]:
    """Give back a random stretch of what is evicted, over budget or not."""
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
    return schedule.space.evaluate(keep)


def accepted(cost: float, current: float, random: Random) -> bool:
    """Go on from a schedule of this cost? (Metropolis's rule.)"""
    excess = cost - current
    return bool(excess <= 0 or random.random() < np.exp(-excess / (TEMPERATURE * current)))


def search(
    everything: Schedule[AnySpace], budget: int, random: Random, deadline: float, tries: int = 20
) -> Iterator[Schedule[AnySpace]]:
    """Iterated local search, one schedule after another; most are no better than the best so far.

    Args:
        everything: the schedule that recomputes nothing.
        budget, deadline: as above.
        tries: repairs before the search gives up; then the last schedule, the leanest of them,
            is over budget.
    """
    current = repair(everything, budget, random, deadline)
    for number in range(1, tries):
        if current.peak <= budget or planning_seconds() > deadline:
            break
        found = repair(everything, budget, random, deadline, noise=0.3 * number)
        current = min(current, found, key=lambda schedule: schedule.peak)
    yield current
    if current.peak > budget:
        return
    current = give_back(current, budget, random, deadline)
    yield current
    while planning_seconds() < deadline:
        found = repair(perturb(current, random), budget, random, deadline, noise=0.2)
        if found.peak <= budget:
            found = give_back(found, budget, random, deadline)
            if accepted(found.cost, current.cost, random):
                current = found
        yield found
