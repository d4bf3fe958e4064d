"""POET: the program of Checkmate with copies to a second memory."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """poet."""

    paged_values: Annotated[int, Means("values that go to the host and come back")]
    paged_compute_cost: Annotated[float, Means("sum over the plan's computes", "cost_unit")]


CARDS = (
    Card(
        name="poet",
        planner="planner.Poet",
        paper=Paper(
            authors="Patil et al.",
            year=2022,
            title="POET: Training Neural Networks on Tiny Devices with Integrated "
            "Rematerialization and Paging",
            url="https://arxiv.org/abs/2207.07697",
        ),
        problem="least energy of computing and copying within the budget (POET)",
        guarantee="none: its program knows no time of copies; small graphs",
        scope="small graphs, a link",
        page="poet.md",
        golden="Checkmate's program, where copies are dear; small chains by hand",
        knobs="`objective`, `copy_power`, `deadline`",
        place=44,
        colour="#8c6d31",
        facts=Facts,
    ),
)
