"""Blocks of any graph, solved once per kind and combined: ours, after Rockmate."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """hierarchical."""

    block_kinds: Annotated[int, Means("blocks that differ, of blocks")]


CARDS = (
    Card(
        name="hierarchical",
        planner="planner.Hierarchical",
        problem="`rockmate`'s idea on any graph: blocks are found, solved once per kind, "
        "combined, improved across their borders: ours",
        guarantee="bound",
        scope="everything; seconds at 10,000 ops",
        page="hierarchical.md",
        golden="`anytime`",
        ours=True,
        turn="first",
        place=34,
        colour="#f032e6",
        facts=Facts,
    ),
)
