"""What lies outside of a graph of many sizes: counted at some of them, and left to it at all."""

from __future__ import annotations

from bisect import bisect_left

from rematbench.graphs.ir import Graph
from rematbench.training.compiled.outside import Outside, StepMeter

MOST_FAILURES = 3
"""Steps that could not be counted after which none is counted any more."""


class Around:
    """What a step holds besides its only graph, by the graph's size.

    The optimizer's state is the same at each size, logits grow with it: between two sizes that were
    counted bytes are interpolated. A size beyond them is given the nearest one's, and counted.

    Attributes:
        version: how often something was learnt.
        ending: bytes of all that is live from the backward pass to the end of the optimizer's
            step, whatever the plan: the most that was counted, and 0 before.
    """

    def __init__(self) -> None:
        self.version = self._failures = self._steps = self.ending = 0
        self._counted: dict[int, int] = {}

    def of(self, graph: Graph) -> int:
        """Bytes at the size of a graph, at most, while it holds anything; 0 before a count."""
        if not self._counted:
            return 0
        sizes, size = sorted(self._counted), _size(graph)
        place = bisect_left(sizes, size)
        low, high = (sizes[max(0, min(each, len(sizes) - 1))] for each in (place - 1, place))
        least, most = self._counted[low], self._counted[high]
        share = min(1.0, (size - low) / (high - low)) if high > low else 0.0
        return int(least + max(0.0, share) * (most - least))

    def wants(self, graph: Graph) -> bool:
        """Is a step of this size to be counted? Not the first one: optimizers begin there."""
        if not self._steps or self._failures == MOST_FAILURES:
            return False
        size = _size(graph)
        return not self._counted or not min(self._counted) <= size <= max(self._counted)

    def learn(self, graph: Graph, meter: StepMeter | None, outside: Outside | None) -> None:
        """A step is over.

        Args:
            meter: what was to count it; None: nothing was.
            outside: what was counted; None: nothing could be.
        """
        self._steps += 1
        if outside is not None and meter is not None:
            self._counted[_size(graph)] = outside.beside
            self.ending = max(self.ending, meter.ending_bytes)
            self.version += 1
        elif meter is not None:
            self._failures += 1


def _size(graph: Graph) -> int:
    return sum(value.bytes for value in graph.values)
