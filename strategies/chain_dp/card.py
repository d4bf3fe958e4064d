"""Rotor: the least time of a chain of unequal stages."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """chain_dp."""

    stages: Annotated[int, Means("of the chain")]
    unit_bytes: Annotated[int, Means("sizes are rounded up to multiples of it", "bytes")]
    rounding_loss_at_most: Annotated[
        float, Means("what rounding may have cost, over the optimum", "ratio")
    ]
    held_bytes: Annotated[int, Means("live throughout, beside the residents", "bytes")]
    planned_bytes: Annotated[int, Means("the peak that was planned for", "bytes")]


CARDS = (
    Card(
        name="chain_dp",
        planner="planner.ChainDp",
        paper=Paper(
            authors="Beaumont et al.",
            year=2019,
            title="Optimal checkpointing for heterogeneous chains: how to train deep neural "
            "networks with limited memory",
            url="https://arxiv.org/abs/1911.13214",
        ),
        problem="least time of a chain of unequal stages within so many bytes (rotor)",
        guarantee="optimal: schedules of the chain, in bytes; in slots beyond `exact_steps`",
        scope="cut points that allow two stages",
        page="chain_dp.md",
        golden="makespans of 40 cases, exact and published",
        knobs="`retain=false`: persistent schedules only",
        place=9,
        colour="#000075",
        facts=Facts,
    ),
)
