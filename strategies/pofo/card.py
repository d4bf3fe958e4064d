"""POFO: keep, recompute or offload the stages of a chain."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """pofo."""

    stages: Annotated[int, Means("of the chain")]
    held_bytes: Annotated[int, Means("live throughout, beside the residents", "bytes")]
    offloaded_inputs: Annotated[int, Means("of stages, that go to the host")]
    planned_bytes: Annotated[int, Means("the limit that the schedule was made for", "bytes")]
    planned_cost: Annotated[
        float, Means("what the recurrence claims that the schedule takes", "cost_unit")
    ]
    states_cut: Annotated[bool, Means("were states left out, so that objective may be too high?")]


CARDS = (
    Card(
        name="pofo",
        planner="planner.Pofo",
        paper=Paper(
            authors="Beaumont et al.",
            year=2021,
            title="Efficient Combination of Rematerialization and Offloading for Training DNNs",
            url="https://papers.nips.cc/paper/2021/hash/c8461bf13fca8a2b9912ab2eb1668e4b-Abstract.html",
        ),
        problem="least time of a chain whose stages are kept, recomputed or offloaded (POFO)",
        guarantee="none: its recurrence claims schedules that no memory holds",
        scope="cut points that allow two stages, a link",
        page="pofo.md",
        golden="its recurrence by exhaustion, small chains by hand",
        knobs="`most_stages`, `most_states`",
        place=43,
        colour="#1b7837",
        facts=Facts,
    ),
)
