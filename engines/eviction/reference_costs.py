"""The evicted neighbourhoods of section 4.2 in plain Python, for the readable path."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from rematbench.streams.eviction import Component

_Direction = Literal["forward", "backward"]
_BOTH: tuple[_Direction, _Direction] = ("forward", "backward")


@dataclass
class Reach:
    """What a storage reaches in one direction: evicted storages, and resident ones after them."""

    interior: set[StorageState] = field(default_factory=set)
    frontier: set[StorageState] = field(default_factory=set)
    cost: int = 0


@dataclass(eq=False)
class StorageState:
    """A buffer and what simrd knows of it (section 4.1).

    Attributes:
        root: its first tensor.
        tensors: all that view it, so far.
        cost, last: section 4.2's cost(S) and last_access(S).
        reads, readers: edges to parents and from children, with repeats.
        made: storages that an op made from it, whatever section 4.2 says of dependencies.
        waiting: undefined tensors that are made from it, when banishing.
    """

    bytes: int
    root: int
    tensors: list[int] = field(default_factory=list)
    cost: int = 0
    locks: int = 0
    refs: int = 0
    resident: bool = False
    pinned: bool = False
    banished: bool = False
    last: int = -(2**62)
    reads: int = 0
    readers: int = 0
    parents: dict[StorageState, None] = field(default_factory=dict)
    children: dict[StorageState, None] = field(default_factory=dict)
    made: dict[StorageState, None] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    forward: Reach = field(default_factory=Reach)
    backward: Reach = field(default_factory=Reach)
    component: Component | None = None

    def edges(self, direction: _Direction) -> tuple[Iterable[StorageState], int]:
        """Neighbours, and how many with repeats."""
        if direction == "forward":
            return self.children, self.readers
        return self.parents, self.reads

    def region(self, direction: _Direction) -> Reach:
        return self.forward if direction == "forward" else self.backward


class Nothing:
    """No neighbourhood at all. Methods return how many storages they looked at."""

    def created(self, storage: StorageState) -> None:
        """A storage came into being, not resident yet."""

    def evicted(self, storage: StorageState) -> int:
        """A storage was evicted."""
        return 0

    def computed(self, fresh: list[StorageState]) -> int:
        """Storages became resident."""
        return 0

    def cost(self, storage: StorageState) -> tuple[int, int, int]:
        """Cost of the neighbourhood, accesses, and the latest access to any of it."""
        return 0, 0, storage.last


class Regions(Nothing):
    """e* as simrd caches it: absorbed at an eviction, rebuilt at a rematerialization (4.5)."""

    def evicted(self, storage: StorageState) -> int:
        accesses = 0
        for ahead, back in (_BOTH, _BOTH[::-1]):
            own = storage.region(ahead)
            for other in storage.region(back).frontier:
                if other.resident:
                    region = other.region(ahead)
                    new = ({storage} | own.interior) - region.interior
                    region.interior |= new
                    region.frontier = (region.frontier - {storage}) | own.frontier
                    region.cost += sum(each.cost for each in new)
                    accesses += len(new)
        storage.forward, storage.backward = Reach(), Reach()
        return accesses

    def computed(self, fresh: list[StorageState]) -> int:
        accesses = 0
        around: dict[_Direction, set[StorageState]] = {"forward": set(), "backward": set()}
        for storage in fresh:
            accesses += self.rebuild(storage, "forward") + self.rebuild(storage, "backward")
            around["forward"] |= storage.backward.frontier
            around["backward"] |= storage.forward.frontier
        for direction in _BOTH:
            accesses += sum(self.rebuild(storage, direction) for storage in around[direction])
        return accesses

    def rebuild(self, storage: StorageState, direction: _Direction) -> int:
        region, pending, accesses = Reach(), [storage], 0
        while pending:
            neighbours, degree = pending.pop().edges(direction)
            accesses += degree
            for other in neighbours:
                if other.resident:
                    region.frontier |= {other} - {storage}
                elif other not in region.interior:
                    region.interior.add(other)
                    region.cost += other.cost
                    pending.append(other)
        if direction == "forward":
            storage.forward = region
        else:
            storage.backward = region
        return accesses

    def cost(self, storage: StorageState) -> tuple[int, int, int]:
        return storage.forward.cost + storage.backward.cost, 0, storage.last


class Walk(Nothing):
    """e* as a true union, walked afresh at every look: banishing's."""

    def cost(self, storage: StorageState) -> tuple[int, int, int]:
        reached: set[StorageState] = set()
        accesses = 0
        for direction in _BOTH:
            seen, pending = {storage}, [storage]
            while pending:
                neighbours, degree = pending.pop().edges(direction)
                accesses += degree
                new = {n for n in neighbours if not (n.resident or n.banished)} - seen
                seen |= new
                pending += new
            reached |= seen
        reached.discard(storage)
        latest = max((each.last for each in reached), default=storage.last)
        return sum(each.cost for each in reached), accesses, latest


class Components(Nothing):
    """The relaxed e*: evicted components, by union-find, whose connections outlive splits."""

    def created(self, storage: StorageState) -> None:
        storage.component = Component()

    def evicted(self, storage: StorageState) -> int:
        own = storage.component = Component(storage.cost)
        neighbours, accesses = self.evicted_neighbours(storage)
        for other in neighbours:
            left, steps = other.find()
            right, more = own.find()
            accesses += steps + more
            if left is not right:
                right.absorb(left)
        return accesses

    def computed(self, fresh: list[StorageState]) -> int:
        accesses = 0
        for storage in fresh:
            assert storage.component is not None
            _, steps = storage.component.find()
            root, again = storage.component.find()  # simrd looks it up twice, and counts both
            root.cost -= storage.cost
            accesses += steps + again
            storage.component = None
        return accesses

    def cost(self, storage: StorageState) -> tuple[int, int, int]:
        neighbours, accesses = self.evicted_neighbours(storage)
        accesses += sum(other.find()[1] for other in neighbours)
        roots = {other.root() for other in neighbours}
        return int(sum(root.cost for root in roots)), accesses, storage.last

    def evicted_neighbours(self, storage: StorageState) -> tuple[list[Component], int]:
        """Components of the evicted neighbours, and how many edges lead to neighbours."""
        around = dict.fromkeys([*storage.parents, *storage.children])
        found = [s.component for s in around if not s.resident and s.component is not None]
        return found, storage.reads + storage.readers
