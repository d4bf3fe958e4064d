"""The rematerialization pass of XLA."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """xla_remat."""

    rank: Annotated[str, Means("by which candidates were picked: bytes or cost")]
    limit_bytes: Annotated[int | None, Means("that the pass was given; null: none", "bytes")]


CARDS = (
    Card(
        name="xla_remat",
        planner="planner.XlaRemat",
        problem="walk the schedule; where it is above the limit, rematerialize the best value or "
        "block (XLA's HLO pass)",
        page="xla_remat.md",
        golden="the pass's rule",
        knobs="`rank=bytes`, its own rule, or `cost`",
        place=25,
        colour="#6b4f1d",
        facts=Facts,
    ),
)
