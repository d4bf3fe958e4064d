"""Random event streams for the tests of DTR."""

from __future__ import annotations

from hypothesis import strategies as st

from rematbench.streams.events import (
    Annotate,
    Call,
    Constant,
    Copy,
    CopyFrom,
    Event,
    EventStream,
    Mutate,
    Release,
    Result,
)


@st.composite
def streams(draw: st.DrawFn, most: int = 40) -> EventStream:
    """Calls with aliases and several results, mutations, copies and releases, in any order."""
    events: list[Event] = [Constant(f"w{i}", draw(st.integers(0, 5))) for i in range(2)]
    live, made = ["w0", "w1"], 0
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(("call", "call", "call", "release", "mutate", "copy", "from")))
        some = draw(st.lists(st.sampled_from(live), min_size=1, max_size=3))
        cost = draw(st.integers(0, 9))
        if kind == "call":
            results = []
            for _ in range(draw(st.integers(1, 2))):
                alias = draw(st.none() | st.integers(0, len(some) - 1))
                results.append(Result(f"t{made}", draw(st.integers(0, 9)), alias))
                made += 1
            events.append(Call("op", tuple(some), tuple(results), cost, draw(st.integers(0, 2))))
            live += [result.name for result in results]
        elif kind == "release" and len(live) > 1:
            live.remove(some[0])
            events.append(Release(some[0]))
        elif kind == "mutate":
            events.append(Mutate("op_", tuple(some), (0,), cost))
        elif kind == "copy":
            events.append(Copy(f"t{made}", some[0]))
            live.append(f"t{made}")
            made += 1
        elif kind == "from" and some[0] != some[-1]:
            events.append(CopyFrom(some[0], some[-1]))
    return EventStream((*events, Annotate("BACKWARD")), "random")
