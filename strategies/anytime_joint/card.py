"""Our own search for schedule and implementations together."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """anytime_joint."""

    known: Annotated[list[dict[str, Any]], Means("plans that it was handed, and whether they fit")]


CARDS = (
    Card(
        name="anytime_joint",
        planner="planner.AnytimeJoint",
        problem="`monet`'s problem, by search and bounds: ours",
        guarantee="optimal, bound: one compute of an op per stage",
        scope="training steps; captured models have implementations to choose from",
        page="monet.md",
        golden="shortest paths through all states of memory",
        knobs="`variant=full`, `noop`, `conv`, `output`, `intermediate`: its ablation",
        ours=True,
        implementations=True,
        turn="first",
        place=36,
        colour="#2f4bd8",
        facts=Facts,
    ),
)
