"""The LCG and ACG solvers (Feng & Huang, Algorithms 1, 5 and 6).

Both minimise bytes of checkpoints + bytes of the largest segment between them; source and target
are always kept and not counted. The paper tries every possible largest segment C; we go down
through them and skip those that cannot lead to a better total, which gives the same optimum.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from rematbench.strategies.feng_huang.segments import Edge, Segment, SegmentType, division_tree


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """A set of checkpoints and its price.

    Attributes:
        vertices: the checkpoints, in topological order, without source and target.
        bytes: of the checkpoints.
        largest: bytes of the inner vertices of the largest segment.
    """

    vertices: tuple[int, ...]
    bytes: int
    largest: int

    @property
    def objective(self) -> int:
        """Equations 1 and 2: bytes of the checkpoints plus the largest segment."""
        return self.bytes + self.largest


def solve_linear(costs: Sequence[int]) -> Checkpoints:
    """Algorithm 1: optimal checkpoints of a linear graph.

    Args:
        costs: bytes per vertex, from the source to the target.
    """
    return solve(costs, [(v, v + 1) for v in range(len(costs) - 1)])


def solve(costs: Sequence[int], edges: Iterable[Edge]) -> Checkpoints:
    """Algorithm 6: optimal checkpoints of any graph with one source and one target.

    Args:
        costs: bytes per vertex; vertex 0 is the source and the last one the target.
        edges: pairs (from, to) with from < to; every vertex is on a path from end to end.

    Raises:
        ValueError: an edge runs backwards, or a vertex is on no path.
    """
    if len(costs) < 2:
        return Checkpoints((), 0, 0)
    root = division_tree(costs, edges)
    lines = _lines(root, costs)
    return _best(root.cost, lambda limit: _within(root, costs, lines, limit))


def _best(whole: int, within: Callable[[int], Checkpoints]) -> Checkpoints:
    """The smallest objective over every limit C of the largest segment, 0 included.

    ``within(C).bytes`` falls with C. Between two limits low < C <= high the objective is thus at
    least ``within(high).bytes + low``; intervals whose bound is no better are dropped.
    """
    best = high = within(whole)
    intervals = [(-1, high)]
    while intervals:
        low, high = intervals.pop()  # what lies between low and high.largest is open
        top = min(high.largest, best.objective - high.bytes) - 1
        if top <= low or high.bytes + low + 1 >= best.objective:
            continue
        middle = within((low + 1 + top) // 2)
        upper = within(top) if top > (low + 1 + top) // 2 else middle
        best = min(best, middle, upper, key=lambda found: found.objective)
        intervals.append(((low + 1 + top) // 2, upper))
        intervals.append((low, middle))
    return best


@dataclass(frozen=True, slots=True)
class _Line:
    """A linear segment; from cut i to cut j it holds ``upto[j] - after[i]`` bytes."""

    cuts: tuple[int, ...]
    weights: tuple[int, ...]
    upto: tuple[int, ...]
    after: tuple[int, ...]


def _lines(root: Segment, costs: Sequence[int]) -> dict[Segment, _Line]:
    lines: dict[Segment, _Line] = {}
    waiting = [root]
    while waiting:
        segment = waiting.pop()
        waiting.extend(segment.members)
        if segment.kind is not SegmentType.LINEAR:
            continue
        cuts = (segment.source, *(member.target for member in segment.members))
        upto, after = [0], [0]
        for member in segment.members:
            upto.append(after[-1] + member.cost)
            after.append(upto[-1] + costs[member.target])
        weights = tuple(costs[v] for v in cuts)
        lines[segment] = _Line(cuts, weights, tuple(upto), tuple(after))
    return lines


def _within(
    root: Segment, costs: Sequence[int], lines: dict[Segment, _Line], limit: int
) -> Checkpoints:
    """Algorithm 5: fewest bytes of checkpoints such that no segment holds more than ``limit``."""
    chosen: list[int] = []
    largest = 0
    waiting = [root]
    while waiting:
        segment = waiting.pop()
        if segment.cost <= limit:
            largest = max(largest, segment.cost)
            continue
        if segment.kind is SegmentType.LINEAR:
            broken = [i for i, member in enumerate(segment.members) if member.cost > limit]
            cuts, longest = _cut_line(lines[segment], broken, limit)
            chosen.extend(cuts)
            largest = max(largest, longest)
            waiting.extend(segment.members[i] for i in broken)
            continue
        if segment.kind is SegmentType.COMPLICATE:  # every end of a member, once
            ends = {member.target for member in segment.members} - {segment.target}
            chosen.extend(ends)
        waiting.extend(segment.members)
    return Checkpoints(tuple(sorted(chosen)), sum(costs[v] for v in chosen), largest)


def _cut_line(line: _Line, broken: Sequence[int], limit: int) -> tuple[list[int], int]:
    """Checkpoints of a linear segment: both ends of its broken members, and the best between.

    Returns:
        The checkpoints without the segment's own ends, and the largest piece between them.
    """
    end = len(line.cuts) - 1
    chosen = {i for member in broken for i in (member, member + 1)} - {0, end}
    largest = start = 0
    for stop in (*broken, end):
        if start < stop:
            inner = _shortest_path(line, start, stop, limit)
            chosen.update(inner)
            places = [start, *inner, stop]
            pieces = pairwise(places)
            largest = max(largest, *(line.upto[j] - line.after[i] for i, j in pieces))
        start = stop + 1
    return [line.cuts[i] for i in sorted(chosen)], largest


def _shortest_path(line: _Line, start: int, stop: int, limit: int) -> list[int]:
    """Cheapest cuts strictly between ``start`` and ``stop`` with pieces of at most ``limit``.

    The shortest path in the accessibility graph of Algorithm 1, in linear time: the cuts that
    reach j form a window that only moves forward.
    """
    upto, after, weights = line.upto, line.after, line.weights
    if upto[stop] - after[start] <= limit:
        return []
    length = {start: 0}
    previous: dict[int, int] = {}
    window = deque([start])
    for j in range(start + 1, stop + 1):
        while upto[j] - after[window[0]] > limit:
            window.popleft()
        previous[j] = window[0]
        length[j] = length[window[0]] + weights[j]
        while window and length[window[-1]] >= length[j]:
            window.pop()
        window.append(j)
    path: list[int] = []
    place = previous[stop]
    while place != start:
        path.append(place)
        place = previous[place]
    return path[::-1]
