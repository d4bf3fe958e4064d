"""Sequences of lower sets."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper


class Facts(TypedDict, total=False):
    """kusumoto."""

    family: Annotated[str, Means("of lower sets that the plan is a sequence of")]
    lower_sets: Annotated[int, Means("of that family")]
    blocks: Annotated[int, Means("lower sets of the plan")]
    formula_peak_bytes: Annotated[int, Means("the peak by the paper's formula", "bytes")]
    planned_bytes: Annotated[int, Means("the peak that was planned for", "bytes")]
    costs_rounded: Annotated[bool, Means("were costs rounded to whole units?")]


CARDS = (
    Card(
        name="kusumoto",
        planner="planner.Kusumoto",
        paper=Paper(
            authors="Kusumoto et al.",
            year=2019,
            title="A Graph Theoretic Framework of Recomputation Algorithms for Memory-Efficient "
            "Backpropagation",
            url="https://arxiv.org/abs/1905.11722",
        ),
        problem="least (or most) recomputation of a sequence of lower sets within so many bytes",
        guarantee="optimal: canonical strategies, by the paper's formula, family `exact`",
        scope="training steps",
        page="kusumoto.md",
        golden="overheads of 100 graphs, and of VGG-19, ResNet-50, U-Net",
        knobs="`family=exact`, `approximate`; `objective=time`, `memory`",
        place=24,
        colour="#469990",
        facts=Facts,
    ),
)
