"""Schedules and groups of implementations together: repair, then moves that save cost.

The repair evicts at the peak what is cheapest to recompute per byte and statement, and recomputes
lazily. Then values are given back, backward ops switched to other groups (output- or
mask-activated, say), and values dropped where the room makes a faster convolution possible.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rematbench.base.clock import planning_seconds
from rematbench.engines.joint.bound import Advice
from rematbench.engines.joint.space import ImplementationSpace
from rematbench.engines.stages.local_search import (
    Random,
    accepted,
    give_back,
    perturb,
    repair,
)
from rematbench.engines.stages.space import Schedule
from rematbench.graphs.ir import IntArray

ROUNDS, NEAR = 30, 20
"""Repairs of one start, with a switch between them; ops at the peak that are tried for it."""

Point = Schedule[ImplementationSpace]
"""Where the search is: a schedule, and through its space the groups."""


def fits(point: Point) -> bool:
    """Is it within the budget?"""
    return point.peak <= point.space.limit


def moved(point: Point, space: ImplementationSpace) -> Point:
    """The same in another space of as many stages and ops."""
    return space.evaluate(point.keep)


def advised(space: ImplementationSpace, advice: Advice) -> Point:
    """What a solution of the bound model stores, and how it computes."""
    space = space.choosing(advice.choice)
    if space.joint:
        space = space.preferring(advice.preferred)
    keep = np.ones(space.shape, dtype=bool)
    row = {op: number for number, op in enumerate(space.stages.tolist())}
    for moment, stored in zip(advice.moments, advice.stored, strict=True):
        stage = min(row[op] for op in space.implementations.steps[moment])
        for i, op in enumerate(space.ops.tolist()):
            keep[stage, i] = stored[space.graph.tables.writes[op]].max() >= 0.5
    return space.evaluate(keep)


def widened(point: Point) -> Point:
    """The same in a space that may compute again before the loss, too."""
    space = point.space.whole()
    keep = np.ones(space.shape, dtype=bool)
    keep[-len(point.keep) :] = point.keep
    return space.evaluate(keep)


def spared(point: Point) -> Point:
    """The same with the group of each op that reads the fewest bytes: masks and small indices."""
    space, tables = point.space, point.space.graph.tables
    size = np.where(tables.resident, 0, tables.value_bytes)
    choice = space.choice.copy()
    for op in _undecided(space):
        choice[op] = min(
            space.implementations.groups(op),
            key=lambda g: int(size[space.implementations.reads(g)].sum()),
        )
    return moved(point, space.choosing(choice))


def repaired(point: Point, random: Random, deadline: float, noise: float = 0.0) -> Point:
    """Within the budget, unless nothing more can be evicted or time is up.

    First with the implementations that the space prefers, then without: those that did not fit are
    given up. Where evicting is not enough, an op at the peak is switched to a group that reads
    less, and all begins again: what was evicted in vain may be what that group reads.
    """
    best: Point | None = None
    for _ in range(ROUNDS):
        found = _evicted(point, random, deadline, noise)
        if best is None or _excess(found) < _excess(best):
            best = found
        choice = None if fits(found) else _relieving(found, deadline)
        if choice is None or planning_seconds() > deadline:
            break
        point = moved(point, point.space.choosing(choice))
    assert best is not None
    return best


def _evicted(point: Point, random: Random, deadline: float, noise: float) -> Point:
    """Evict until the budget holds; where that fails, take back what was evicted in vain."""
    limit = point.space.limit
    point = repair(point, limit, random, deadline, noise)
    if (point.space.preferred >= 0).any():
        point = moved(point, point.space.preferring(None))
    best = repair(point, limit, random, deadline, noise)
    while not fits(best) and planning_seconds() < deadline:
        point = _taken_back(best, random, deadline)
        found = repair(point, limit, random, deadline, noise)
        if _excess(found) >= _excess(best):
            break
        best = found
    return best


def _taken_back(point: Point, random: Random, deadline: float) -> Point:
    """Keep again, one by one, what takes bytes from above the budget: recomputing needs room."""
    for stage, op in random.permutation(np.argwhere(~point.keep)).tolist():
        if planning_seconds() > deadline:
            break
        found = point.keeping(stage, op)
        if (_excess(found), found.cost) < (_excess(point), point.cost):
            point = found
    return point


def _relieving(point: Point, deadline: float) -> IntArray | None:
    """Groups with the one switch, from the peak on, that takes most bytes from above the budget."""
    tables, trace, space = point.space.graph.tables, point.trace, point.space
    later = trace.codes[int(trace.bytes_during.argmax()) :]
    near = list(dict.fromkeys(tables.op_of[later[later >= 0]].tolist()))
    undecided = set(_undecided(space))
    choice, best = None, _excess(point)
    for op in [op for op in near if op in undecided][:NEAR]:
        for group in space.implementations.groups(op):
            if group != space.choice[op] and planning_seconds() < deadline:
                other = _with_group(point, op, group)
                if _excess(other) < best:
                    choice, best = other.space.choice, _excess(other)
    return choice


def _excess(point: Point) -> int:
    """Bytes above the budget, over all statements."""
    return int(np.maximum(point.trace.bytes_during - point.space.limit, 0).sum())


def improved(point: Point, random: Random, deadline: float) -> Point:
    """Give back, switch and drop, once each, while it saves cost."""
    point = give_back(point, point.space.limit, random, deadline)
    point = _switched(point, random, deadline)
    return _dropped(point, random, deadline)


def _better(found: Point, point: Point) -> bool:
    return fits(found) and (found.cost, found.peak) < (point.cost, point.peak)


def _switched(point: Point, random: Random, deadline: float) -> Point:
    """Try the other groups of each op, in random order."""
    for op in random.permutation(_undecided(point.space)).tolist():
        for group in point.space.implementations.groups(op):
            if planning_seconds() > deadline:
                return point
            if group == point.space.choice[op]:
                continue
            found = _with_group(point, op, group)
            if _better(found, point):
                point = found
    return point


def _undecided(space: ImplementationSpace) -> list[int]:
    """Ops that have several groups."""
    return [
        op for op in np.unique(space.all_ops).tolist() if len(space.implementations.groups(op)) > 1
    ]


def _with_group(point: Point, op: int, group: int) -> Point:
    choice = point.space.choice.copy()
    choice[op] = group
    return moved(point, point.space.choosing(choice))


def _dropped(point: Point, random: Random, deadline: float, most: int = 100) -> Point:
    """Drop values, at random, where that makes room for faster implementations."""
    if not point.space.joint:
        return point
    available = point.available
    stages, ops = np.nonzero(point.keep & available)
    first = np.diff(available, axis=0, prepend=False)[stages, ops] | (stages == 0)
    picked = np.flatnonzero(first)
    for k in random.permutation(picked)[:most].tolist():
        if planning_seconds() > deadline:
            break
        found = point.keeping(int(stages[k]), int(ops[k]), False)
        if _better(found, point):
            point = found
    return point


def perturbed(point: Point, random: Random) -> Point:
    """Other groups for a few ops, faster implementations, or dropped values given back."""
    space, choice, kind = point.space, point.space.choice.copy(), random.random()
    undecided = _undecided(space)
    if kind < 0.3 and undecided:
        count = 1 + int(random.integers(1 + len(undecided) // 10))
        for op in random.choice(undecided, size=count).tolist():
            choice[op] = random.choice(space.implementations.groups(op))
        space = space.choosing(choice)
    elif kind < 0.7 and space.joint:
        slow = _slow(point)
        if len(slow):
            preferred = space.preferred.copy()
            count = 1 + int(random.integers(min(4, len(slow))))
            for op, implementation in slow[random.choice(len(slow), size=count)].tolist():
                preferred[op] = implementation
            return moved(point, space.preferring(preferred))
    return perturb(moved(point, space), random)


def _slow(point: Point) -> IntArray:
    """Rows (op, implementation): what would be faster than the schedule, and does not fit."""
    tables, implementations = point.space.graph.tables, point.space.implementations
    found = []
    for implementation in np.unique(point.space.fastest(point)).tolist():
        rivals = implementations.members[int(implementations.group_of[implementation])]
        found += [
            (int(tables.op_of[implementation]), int(other))
            for other in rivals
            if tables.cost[other] < 0.99 * tables.cost[implementation]
        ]
    return np.array(found, dtype=np.int64).reshape(-1, 2)


def search(start: Point, random: Random, deadline: float) -> Iterator[Point]:
    """Iterated local search from ``start``, which fits the budget."""
    current = start
    while planning_seconds() < deadline:
        found = repaired(perturbed(current, random), random, deadline, noise=0.2)
        if fits(found):
            found = improved(found, random, deadline)
            if accepted(found.cost, current.cost, random):
                current = found
        yield found
