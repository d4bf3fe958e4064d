"""Griewank and Walther's binomial checkpointing."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper

PAPER = Paper(
    authors="Griewank & Walther",
    year=2000,
    title="Algorithm 799: Revolve",
    url="https://doi.org/10.1145/347837.347846",
)


class Facts(TypedDict, total=False):
    """revolve, ap_revolve."""

    slots: Annotated[int, Means("values of the chain that may be live")]
    steps: Annotated[int, Means("forward steps of the chain")]
    advances: Annotated[int, Means("forward steps that are run, recomputed ones included")]


CARDS = (
    Card(
        name="revolve",
        planner="planner.Revolve",
        paper=PAPER,
        problem="fewest forward steps of a chain of equal steps, for so many slots",
        guarantee="optimal: in slots",
        scope="chains",
        page="revolve.md",
        golden="the program `checkpoint_schedules`",
        knobs="`slots`, swept unless given",
        place=7,
        facts=Facts,
    ),
    Card(
        name="ap_revolve",
        planner="planner.ApRevolve",
        paper=PAPER,
        problem="the same between articulation points",
        scope="graphs with articulation points",
        page="revolve.md",
        golden="as `revolve`",
        knobs="`slots`, swept unless given",
        place=8,
        facts=Facts,
    ),
)
