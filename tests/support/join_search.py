"""Joins by search over memory states: the paper's operations, and nothing of its theorems."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from math import inf

Branch = tuple[frozenset[int], int]
"""Which forward values are stored, and the level of the stored gradient (-1: none yet)."""


def makespan(lengths: Sequence[int], slots: int) -> float:
    """Least cost of all gradients of a join, with unit steps (Beaumont et al., section 2.2).

    F replaces its input, B reads a gradient and a forward value and leaves one slot, Turn turns
    the ends of all branches into gradients, and a copy takes a slot and costs nothing. A gradient
    that has arrived at its branch's input leaves its slot.
    """
    start = tuple((frozenset({0}), -1) for _ in lengths)
    best: dict[tuple[Branch, ...], float] = {start: 0.0}
    queue: list[tuple[float, int, tuple[Branch, ...]]] = [(0.0, 0, start)]
    if _used(start) > slots:
        return inf
    number = 0
    while queue:
        cost, _, state = heapq.heappop(queue)
        if cost > best[state]:
            continue
        if all(level == 0 for _, level in state):
            return cost
        for price, after in _steps(state, lengths):
            if _used(after) <= slots and cost + price < best.get(after, inf):
                best[after] = cost + price
                number += 1
                heapq.heappush(queue, (cost + price, number, after))
    return inf


def _used(state: Sequence[Branch]) -> int:
    return sum(len(stored) + (level > 0) for stored, level in state)


def _steps(
    state: tuple[Branch, ...], lengths: Sequence[int]
) -> Iterator[tuple[float, tuple[Branch, ...]]]:
    ends = [length in stored for (stored, _), length in zip(state, lengths, strict=True)]
    if all(ends) and all(level < 0 for _, level in state):
        turned = [
            (stored - {length}, length) for (stored, _), length in zip(state, lengths, strict=True)
        ]
        yield 1.0, tuple(turned)
    for place, (stored, level) in enumerate(state):
        for i in stored:
            if i < lengths[place]:
                for left in (stored, stored - {i}):  # with a copy of its input, or without
                    yield 1.0, _with(state, place, (left | {i + 1}, level))
        if level > 0 and level - 1 in stored:
            yield 1.0, _with(state, place, (stored - {level - 1}, level - 1))


def _with(state: tuple[Branch, ...], place: int, branch: Branch) -> tuple[Branch, ...]:
    return (*state[:place], branch, *state[place + 1 :])
