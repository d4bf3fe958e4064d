"""Event streams without a model: simrd's toy chain."""

from __future__ import annotations

from rematbench.graphs.builders.synthetic import check_length
from rematbench.streams.events import Annotate, Call, Event, EventStream, Release, Result


def toy_chain(length: int) -> EventStream:
    """The toy model of simrd's section 5.1: Algorithm 3's program, with its liveness.

    ``t1`` to ``tn``, then the gradients ``gn`` to ``g1``, all of one byte and cost one. As in
    Algorithm 3 with indices from 1, ``gi`` reads ``t(i-1)`` and the gradient after it; as in
    the original program, ``ti`` is released before ``gi`` is computed, not after. ``g1`` stays.
    As a graph, ``gn`` is the loss.

    >>> len(toy_chain(8).events)
    32
    """
    check_length("toy_chain", length)
    events: list[Event] = []
    for i in range(1, length + 1):
        reads = (f"t{i - 1}",) if i > 1 else ()
        events.append(Call("f", reads, (Result(f"t{i}", 1),), 1))
    for i in range(length, 0, -1):
        before = (f"t{i - 1}",) if i > 1 else ()
        after = (f"g{i + 1}",) if i < length else ()
        events += [Release(f"t{i}"), Call("g", (*before, *after), (Result(f"g{i}", 1),), 1)]
        events += [Release(name) for name in after] or [Annotate("BACKWARD")]
    return EventStream(tuple(events), f"toy_chain{length}", "unit")
