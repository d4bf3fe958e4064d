"""Independent segments and the division tree (Feng & Huang, Definitions 1 to 6, Algorithms 2 to 4).

An independent segment lies between a source and a target vertex, and no *inner* vertex of it has
an edge to the outside. Read "does not exist" for the "exists" of the paper's Definition 1 and of
its Algorithms 2 and 4; where its Algorithm 4 rejects a pair of vertices as soon as anything
between them touches the outside, we take the largest independent segment inside the pair.
The tree is the one of the triconnected components: series and parallel parts are folded first,
and what is left is split at its linear splitting vertices, branches and separation pairs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

Edge = tuple[int, int]


class SegmentType(StrEnum):
    """The type of an independent segment; an edge has no inner vertex."""

    EDGE = "edge"
    LINEAR = "linear"
    BRANCH = "branch"
    COMPLICATE = "complicate"


@dataclass(frozen=True, slots=True, eq=False)
class Segment:
    """A node of the division tree.

    Attributes:
        kind: how its members are put together.
        source, target: its two end vertices.
        members: its division; of a linear segment in topological order.
        cost: bytes of its inner vertices, without source and target.
    """

    kind: SegmentType
    source: int
    target: int
    members: tuple[Segment, ...] = ()
    cost: int = 0


def division_tree(costs: Sequence[int], edges: Iterable[Edge]) -> Segment:
    """The division tree of a graph, from the whole graph down to its edges.

    Args:
        costs: bytes per vertex; vertex 0 is the source and the last one the target.
        edges: pairs (from, to) with from < to, so that the numbering is topological. Every
            vertex lies on a path from the source to the target.

    Returns:
        The root: the segment from the source to the target.

    Raises:
        ValueError: an edge runs backwards, or a vertex is on no path.
    """
    distinct = sorted(set(edges))
    _check(len(costs), distinct)
    kernel = _fold(costs, [Segment(SegmentType.EDGE, *edge) for edge in distinct])
    return _divide(costs, kernel, 0, len(costs) - 1)


def _check(count: int, edges: Sequence[Edge]) -> None:
    backwards = next((e for e in edges if not 0 <= e[0] < e[1] < count), None)
    if backwards is not None:
        raise ValueError(f"edge {backwards} is not in topological order of {count} vertices")
    entered, left = {v for _, v in edges}, {u for u, _ in edges}
    lost = [
        v for v in range(count) if (v and v not in entered) or (v < count - 1 and v not in left)
    ]
    if lost:
        raise ValueError(f"vertex {lost[0]} is on no path from the source to the target")


def _join(kind: SegmentType, parts: Sequence[Segment], inner_cost: int, ends: Edge) -> Segment:
    """One segment of ``parts``; those of the same kind are dissolved into it."""
    if len(parts) == 1:
        return parts[0]
    members: list[Segment] = []
    for part in parts:
        members.extend(part.members if part.kind is kind is not SegmentType.COMPLICATE else (part,))
    cost = sum(part.cost for part in parts) + inner_cost
    return Segment(kind, *ends, tuple(members), cost)


def _fold(costs: Sequence[int], segments: Iterable[Segment]) -> list[Segment]:
    """Fold every vertex with one way in and one way out, and every set of parallel segments."""
    after: dict[int, dict[int, Segment]] = {v: {} for v in range(len(costs))}
    before: dict[int, set[int]] = {v: set() for v in range(len(costs))}
    for segment in segments:
        after[segment.source][segment.target] = segment
        before[segment.target].add(segment.source)
    waiting = list(range(len(costs) - 2, 0, -1))
    while waiting:
        v = waiting.pop()
        if len(before[v]) != 1 or len(after[v]) != 1:
            continue
        (u,), (w,) = before[v], after[v]
        first, second = after[u].pop(v), after[v].pop(w)
        before[w].remove(v)
        before[v].clear()
        folded = _join(SegmentType.LINEAR, (first, second), costs[v], (u, w))
        if w in after[u]:
            folded = _join(SegmentType.BRANCH, (after[u][w], folded), 0, (u, w))
            waiting.extend((u, w))
        after[u][w] = folded
        before[w].add(u)
    return [segment for targets in after.values() for segment in targets.values()]


def _divide(costs: Sequence[int], parts: list[Segment], source: int, target: int) -> Segment:
    """Divide the segment that consists of ``parts`` at its linear splitting vertices (Alg. 2)."""
    reach = source
    pieces: list[list[Segment]] = []
    cuts: list[int] = [source]
    for part in sorted(parts, key=lambda p: (p.source, p.target)):
        if part.source >= reach:  # nothing jumps over this vertex
            if part.source != source:
                cuts.append(part.source)
            pieces.append([])
        pieces[-1].append(part)
        reach = max(reach, part.target)
    cuts.append(target)
    members = [
        _divide_branches(costs, piece, cuts[i], cuts[i + 1]) for i, piece in enumerate(pieces)
    ]
    inner = sum(costs[v] for v in cuts[1:-1])
    return _join(SegmentType.LINEAR, members, inner, (source, target))


def _divide_branches(
    costs: Sequence[int], parts: list[Segment], source: int, target: int
) -> Segment:
    """Divide a segment without linear splitting vertex into its branches (Alg. 3)."""
    if len(parts) == 1:
        return parts[0]
    branches = _components(parts, {source, target})
    if len(branches) == 1:
        return _divide_complicate(costs, parts, source, target)
    members = [_divide(costs, branch, source, target) for branch in branches]
    return _join(SegmentType.BRANCH, members, 0, (source, target))


def _components(parts: Sequence[Segment], ends: set[int]) -> list[list[Segment]]:
    """Parts that are connected with each other through other vertices than ``ends``."""
    leader: dict[int, int] = {}

    def find(v: int) -> int:
        root = v
        while leader.setdefault(root, root) != root:
            root = leader[root]
        while leader[v] != root:
            leader[v], v = root, leader[v]
        return root

    for part in parts:
        if part.source not in ends and part.target not in ends:
            leader[find(part.source)] = find(part.target)
    groups: dict[tuple[int, int], list[Segment]] = {}
    for number, part in enumerate(parts):
        inner = part.source if part.source not in ends else part.target
        key = (-1, number) if inner in ends else (find(inner), 0)
        groups.setdefault(key, []).append(part)
    return list(groups.values())


def _divide_complicate(
    costs: Sequence[int], parts: list[Segment], source: int, target: int
) -> Segment:
    """Divide a complicate segment into its largest members (Definition 6, Alg. 4 corrected)."""
    neighbours: dict[int, list[int]] = {}
    for part in parts:
        neighbours.setdefault(part.source, []).append(part.target)
        neighbours.setdefault(part.target, []).append(part.source)
    neighbours[source].append(target)  # holds the two ends together
    neighbours[target].append(source)
    owner: dict[int, Edge] = {}
    for pair, seeds in _separation_pairs(neighbours, source, target):
        if not any(seed in owner for seed in seeds):
            owner.update(dict.fromkeys(_inside(neighbours, pair, seeds), pair))
    groups: dict[Edge, list[Segment]] = {}
    for part in parts:
        ends = (part.source, part.target)
        pair = owner.get(part.source, owner.get(part.target, ends))
        groups.setdefault(pair, []).append(part)
    members = [_divide(costs, group, *pair) for pair, group in sorted(groups.items())]
    skeleton = set(neighbours) - set(owner) - {source, target}
    inner = sum(costs[v] for v in skeleton)
    return _join(SegmentType.COMPLICATE, members, inner, (source, target))


def _inside(neighbours: dict[int, list[int]], pair: Edge, seeds: Iterable[int]) -> set[int]:
    """Vertices that ``seeds`` reach without passing the pair."""
    found = set(seeds)
    waiting = list(found)
    while waiting:
        for w in neighbours[waiting.pop()]:
            if w not in found and w not in pair:
                found.add(w)
                waiting.append(w)
    return found


def _separation_pairs(
    neighbours: dict[int, list[int]], source: int, target: int
) -> list[tuple[Edge, list[int]]]:
    """Pairs that cut vertices off from the two ends, those that cut off most first.

    Returns:
        Per pair one vertex of each part that it cuts off.
    """
    cut_off: Counter[Edge] = Counter()
    seeds: dict[Edge, list[int]] = {}
    for k in neighbours:
        root = target if k == source else source
        for t, seed, count in _hanging(neighbours, k, root):
            pair = (k, t)
            if k < t and pair != (source, target):  # each pair once
                seeds.setdefault(pair, []).append(seed)
                cut_off[pair] += count
    return [(pair, seeds[pair]) for pair, _ in cut_off.most_common()]


def _hanging(
    neighbours: dict[int, list[int]], removed: int, root: int
) -> list[tuple[int, int, int]]:
    """What each articulation point holds on to the root's part, once ``removed`` is gone.

    Returns:
        Per part (articulation point, a vertex of the part, number of its vertices). Hopcroft
        and Tarjan's depth-first search.
    """
    entered = {removed: -1, root: 0}
    low = {root: 0}
    path = [(root, iter(neighbours[root]))]
    found: list[tuple[int, int, int]] = []
    while path:
        v, rest = path[-1]
        for w in rest:
            if w not in entered:
                entered[w] = low[w] = len(entered) - 1
                path.append((w, iter(neighbours[w])))
                break
            if w != removed and entered[w] < low[v]:
                low[v] = entered[w]
        else:
            path.pop()
            if not path:
                break
            parent = path[-1][0]
            if low[v] >= entered[parent] and parent != root:
                found.append((parent, v, len(entered) - 1 - entered[v]))
            low[parent] = min(low[parent], low[v])
    return found
