"""What every runtime of DTR evicts by: heuristics, their scores, sets of evicted storages.

The simulated runtimes (:mod:`rematbench.strategies.dtr`) and the live one
(:mod:`rematbench.training.online`) follow the same heuristics of Kirisame et al., "Dynamic Tensor
Rematerialization" (ICLR 2021), section 4.1; simrd's paper defines them formally in its section 4.3.
The compiled runtime repeats in kernels what stands here, with Python's own rounding; the tests
hold it against the readable one, which runs this.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Cost = Literal["estar", "eqclass", "local", "none"]


@dataclass(frozen=True, slots=True)
class Heuristic:
    """The score h(s, m, c) = c / (m * s) of a storage; the least is evicted.

    Attributes:
        staleness: divide by the time since the last access?
        size: divide by the bytes?
        cost: ``estar`` (its own and that of the evicted storages in reach, e*), ``eqclass``
            (e* by evicted components), ``local`` (its own) or ``none`` (1). Without staleness,
            size and cost the choice is random.
        oldest: evict what was accessed longest ago instead (simrd's LRU, which scores by the
            time stamp itself).
    """

    staleness: bool = True
    size: bool = True
    cost: Cost = "estar"
    oldest: bool = False

    @property
    def random(self) -> bool:
        """Does nothing tell the storages apart?"""
        return not (self.oldest or self.staleness or self.size or self.cost != "none")

    def score(self, cost: Any, size: Any, last: Any, staleness: Any) -> Any:
        """h(s, m, c), of one storage or, as arrays, of many.

        Args:
            cost: to make it again, evicted neighbours included where ``cost`` says so.
            size: its bytes.
            last: the clock at its last access; ``staleness``: the time since then.

        Raises:
            ZeroDivisionError: of one storage, of no size or used just now: infinitely dear.
        """
        if self.oldest:
            return last
        divisor = size if self.size else 1
        if self.staleness:
            divisor = divisor * staleness
        return (1 if self.cost == "none" else cost) / divisor


HEURISTICS = {
    "full": Heuristic(),
    "eqclass": Heuristic(cost="eqclass"),
    "local": Heuristic(cost="local"),
    "lru": Heuristic(staleness=False, size=False, cost="none", oldest=True),
    "largest": Heuristic(staleness=False, cost="none"),
    "random": Heuristic(staleness=False, size=False, cost="none"),
}


class Component:
    """A set of evicted storages that hang together: a node of a union-find forest.

    Attributes:
        cost: of all of the set, at its root; elsewhere out of date.
        parent: the next node towards the root; None at the root.
    """

    __slots__ = ("cost", "parent")

    def __init__(self, cost: float = 0) -> None:
        self.cost = cost
        self.parent: Component | None = None

    def root(self) -> Component:
        """What stands for the whole set; the path points at it afterwards."""
        if self.parent is None:
            return self
        root = self.parent
        while root.parent is not None:
            root = root.parent
        node = self
        while node.parent is not None and node.parent is not root:
            node.parent, node = root, node.parent
        return root

    def find(self) -> tuple[Component, int]:
        """The root, and how many nodes lay on the way to it, both ends included."""
        node, length = self, 1
        while node.parent is not None:
            node, length = node.parent, length + 1
        return self.root(), length

    def absorb(self, other: Component) -> None:
        """Join the set of the root ``other`` to that of this root."""
        other.parent = self
        self.cost += other.cost
