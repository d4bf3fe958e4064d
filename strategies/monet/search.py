"""Schedules and groups of ways together: repair, then moves that are kept if they save cost.

The repair is the planner of the notes: evict at the peak what is cheapest to recompute per byte
and statement, and recompute lazily. Then values are given back, backward ops switched to other
groups (output- or mask-activated, say), and values dropped where the room makes a faster
convolution possible.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from rematbench.graphs.ir import IntArray
from rematbench.strategies.checkmate.search import Random, _perturb, give_back, repair
from rematbench.strategies.checkmate.space import Schedule
from rematbench.strategies.monet.bound import Advice
from rematbench.strategies.monet.schedule import Chosen

WARM = 0.002
"""How much worse, relative to its cost, a schedule may be to go on from, typically."""
ROUNDS, NEAR = 30, 20
"""Repairs of one start, with a switch between them; ops at the peak that are tried for it."""


@dataclass(frozen=True)
class Point:
    """A schedule and the space that it is of."""

    space: Chosen
    schedule: Schedule

    @property
    def cost(self) -> float:
        return self.schedule.trace.cost

    @property
    def peak(self) -> int:
        return self.schedule.trace.peak_bytes


def everything(space: Chosen) -> Point:
    """Recompute nothing."""
    return Point(space, space.everything())


def advised(space: Chosen, advice: Advice) -> Point:
    """What a solution of the bound model stores, and how it computes."""
    space = space.choosing(advice.choice)
    if space.joint:
        space = space.wishing(advice.wish)
    keep = np.ones(space.shape, dtype=bool)
    row = {op: number for number, op in enumerate(space.stages.tolist())}
    for moment, stored in zip(advice.moments, advice.stored, strict=True):
        stage = min(row[op] for op in space.ways.steps[moment])
        for i, op in enumerate(space.ops.tolist()):
            keep[stage, i] = stored[space.graph.tables.writes[op]].max() >= 0.5
    return Point(space, space.evaluate(keep))


def widened(point: Point) -> Point:
    """The same in a space that may compute again before the loss, too."""
    space = point.space.whole()
    keep = np.ones(space.shape, dtype=bool)
    keep[-len(point.schedule.keep) :] = point.schedule.keep
    return Point(space, space.evaluate(keep))


def repaired(point: Point, random: Random, deadline: float, noise: float = 0.0) -> Point:
    """Within the budget, unless nothing more can be evicted or time is up.

    First with what the space wishes for, then without: wishes that do not come true are given up.
    Where evicting is not enough, an op at the peak is switched to a group that reads less, and
    all begins again: what was evicted in vain may be what that group reads.
    """
    best: Point | None = None
    for _ in range(ROUNDS):
        found = _evicted(point, random, deadline, noise)
        if best is None or _excess(found) < _excess(best):
            best = found
        choice = None if found.peak <= found.space.limit else _relieving(found, deadline)
        if choice is None or perf_counter() > deadline:
            break
        space = point.space.choosing(choice)
        point = Point(space, space.evaluate(point.schedule.keep))
    assert best is not None
    return best


def _evicted(point: Point, random: Random, deadline: float, noise: float) -> Point:
    """Evict until the budget holds; where that fails, take back what was evicted in vain."""
    space, schedule = point.space, point.schedule
    schedule = repair(space, schedule, space.limit, random, deadline, noise)
    if (space.wish >= 0).any():
        space = space.wishing(None)
        schedule = space.evaluate(schedule.keep)
    best = Point(space, repair(space, schedule, space.limit, random, deadline, noise))
    while best.peak > space.limit and perf_counter() < deadline:
        schedule = _taken_back(best, random, deadline).schedule
        found = Point(space, repair(space, schedule, space.limit, random, deadline, noise))
        if _excess(found) >= _excess(best):
            break
        best = found
    return best


def _taken_back(point: Point, random: Random, deadline: float) -> Point:
    """Keep again, one by one, what takes bytes from above the budget: recomputing needs room."""
    for stage, op in random.permutation(np.argwhere(~point.schedule.keep)).tolist():
        if perf_counter() > deadline:
            break
        keep = point.schedule.keep.copy()
        keep[stage, op] = True
        found = Point(point.space, point.space.evaluate(keep))
        if (_excess(found), found.cost) < (_excess(point), point.cost):
            point = found
    return point


def _relieving(point: Point, deadline: float) -> IntArray | None:
    """Groups with the one switch, from the peak on, that takes most bytes from above the budget."""
    tables, trace, space = point.space.graph.tables, point.schedule.trace, point.space
    later = trace.codes[int(trace.bytes_during.argmax()) :]
    near = list(dict.fromkeys(tables.op_of[later[later >= 0]].tolist()))
    undecided = set(_undecided(space))
    choice, best = None, _excess(point)
    for op in [op for op in near if op in undecided][:NEAR]:
        for group in space.ways.groups(op):
            if group != space.choice[op] and perf_counter() < deadline:
                other = _with_group(point, op, group)
                if _excess(other) < best:
                    choice, best = other.space.choice, _excess(other)
    return choice


def _excess(point: Point) -> int:
    """Bytes above the budget, over all statements."""
    return int(np.maximum(point.schedule.trace.bytes_during - point.space.limit, 0).sum())


def improved(point: Point, random: Random, deadline: float) -> Point:
    """Give back, switch and drop, once each, while it saves cost."""
    space = point.space
    point = Point(space, give_back(space, point.schedule, space.limit, random, deadline))
    point = _switched(point, random, deadline)
    return _dropped(point, random, deadline)


def _better(found: Point, point: Point) -> bool:
    fits = found.peak <= point.space.limit
    return fits and (found.cost, found.peak) < (point.cost, point.peak)


def _switched(point: Point, random: Random, deadline: float) -> Point:
    """Try the other groups of each op, in random order."""
    for op in random.permutation(_undecided(point.space)).tolist():
        for group in point.space.ways.groups(op):
            if perf_counter() > deadline:
                return point
            if group == point.space.choice[op]:
                continue
            found = _with_group(point, op, group)
            if _better(found, point):
                point = found
    return point


def _undecided(space: Chosen) -> list[int]:
    """Ops of stages that have several groups."""
    return [op for op in space.stages.tolist() if len(space.ways.groups(op)) > 1]


def _with_group(point: Point, op: int, group: int) -> Point:
    choice = point.space.choice.copy()
    choice[op] = group
    space = point.space.choosing(choice)
    return Point(space, space.evaluate(point.schedule.keep))


def _dropped(point: Point, random: Random, deadline: float, most: int = 100) -> Point:
    """Drop values, at random, where that makes room for faster ways."""
    if not point.space.joint:
        return point
    schedule = point.schedule
    stages, ops = np.nonzero(schedule.keep & schedule.available)
    first = np.diff(schedule.available, axis=0, prepend=False)[stages, ops] | (stages == 0)
    picked = np.flatnonzero(first)
    for k in random.permutation(picked)[:most].tolist():
        if perf_counter() > deadline:
            break
        keep = point.schedule.keep.copy()
        keep[stages[k], ops[k]] = False
        found = Point(point.space, point.space.evaluate(keep))
        if _better(found, point):
            point = found
    return point


def perturbed(point: Point, random: Random) -> Point:
    """Other groups for a few ops, wishes for faster ways, or what is dropped given back."""
    space, choice, kind = point.space, point.space.choice.copy(), random.random()
    undecided = _undecided(space)
    if kind < 0.3 and undecided:
        count = 1 + int(random.integers(1 + len(undecided) // 10))
        for op in random.choice(undecided, size=count).tolist():
            choice[op] = random.choice(space.ways.groups(op))
        space = space.choosing(choice)
    elif kind < 0.7 and space.joint:
        slow = _slow(point)
        if len(slow):
            wish = space.wish.copy()
            count = 1 + int(random.integers(min(4, len(slow))))
            for op, way in slow[random.choice(len(slow), size=count)].tolist():
                wish[op] = way
            space = space.wishing(wish)
            return Point(space, space.evaluate(point.schedule.keep))
    return Point(space, _perturb(space, space.evaluate(point.schedule.keep), random))


def _slow(point: Point) -> IntArray:
    """Rows (op, way): a faster way of what the schedule computes, which does not fit."""
    tables, members = point.space.graph.tables, point.space.ways.members
    found = []
    for way in np.unique(point.space.fastest(point.schedule)).tolist():
        rivals = members[int(point.space.ways.group_of[way])]
        found += [
            (int(tables.op_of[way]), int(other))
            for other in rivals
            if tables.cost[other] < 0.99 * tables.cost[way]
        ]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def search(start: Point, random: Random, deadline: float) -> Iterator[Point]:
    """Iterated local search from ``start``, which fits the budget."""
    current = start
    while perf_counter() < deadline:
        found = repaired(perturbed(current, random), random, deadline, noise=0.2)
        if found.peak <= found.space.limit:
            found = improved(found, random, deadline)
            excess = found.cost - current.cost
            if excess <= 0 or random.random() < np.exp(-excess / (WARM * current.cost)):
                current = found
        yield found
