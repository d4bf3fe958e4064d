"""Coop: evictions of neighbouring addresses."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """coop, beside what it shares with dtr."""

    fragmentation: Annotated[
        float, Means("free share of the memory, mean over blocks that found no room", "ratio")
    ]
    scattered_evictions: Annotated[
        int, Means("evictions while enough was free, in too small pieces")
    ]
    dtr_at_addresses: Annotated[
        dict[str, Any], Means("the same of DTR, where a storage needs one piece of memory")
    ]


CARDS = (
    Card(
        name="coop",
        planner="planner.Coop",
        paper=Paper(
            authors="Zhang et al.",
            year=2023,
            title="Coop: Memory is not a Commodity",
            url="https://arxiv.org/abs/2311.00591",
        ),
        problem="evict online the contiguous run that costs least; says how DTR fares there",
        scope="everything, logs",
        page="coop.md",
        golden="none: no program at hand",
        knobs="`ends`, `cost`",
        place=35,
        colour="#dcae96",
        facts=Facts,
    ),
)
