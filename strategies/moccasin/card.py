"""Moccasin: retention intervals, by CP-SAT."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """moccasin."""

    computes: Annotated[int, Means("of an op at most (C), first one included")]
    fitted_seconds: Annotated[float, Means("until a plan was within the budget", "seconds")]


CARDS = (
    Card(
        name="moccasin",
        planner="planner.Moccasin",
        paper=Paper(
            authors="Bartan et al.",
            year=2023,
            title="Moccasin: Efficient Tensor Rematerialization for Neural Networks",
            url="https://arxiv.org/abs/2304.14463",
        ),
        problem="least cost with at most C computes of an op, by retention intervals, on CP-SAT "
        "(extra `moccasin`)",
        guarantee="optimal, bound: C",
        page="moccasin.md",
        golden="published overheads on the shared graphs",
        knobs="`computes` (2): C",
        wall_clock=True,
        turn="first",
        place=26,
        colour="#7cae00",
        facts=Facts,
    ),
)
