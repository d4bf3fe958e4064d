"""Rockmate: options of blocks, combined by rotor's program."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """rockmate."""

    blocks_solved: Annotated[int, Means("blocks that differ in more than names")]
    block_options: Annotated[int, Means("ways to run a block, of all blocks together")]


CARDS = (
    Card(
        name="rockmate",
        planner="planner.Rockmate",
        paper=Paper(
            authors="Zhao et al.",
            year=2023,
            title="Rockmate: an Efficient, Fast, Automatic and Generic Tool for "
            "Re-materialization in PyTorch",
            url="https://arxiv.org/abs/2307.01236",
        ),
        problem="options of blocks between cut points, combined by rotor's program",
        guarantee="none overall; blocks are optimal",
        scope="cut points that allow two stages",
        page="rockmate.md",
        golden="`chain_dp`, `anytime`",
        knobs="`engine=program`, `search`",
        turn="first",
        place=27,
        colour="#e6194b",
        facts=Facts,
    ),
)
