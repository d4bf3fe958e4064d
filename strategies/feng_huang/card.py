"""Feng and Huang's ACG solver, and the baseline of their Table 2."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper

PAPER = Paper(
    authors="Feng & Huang",
    year=2021,
    title="Optimal Gradient Checkpoint Search for Arbitrary Computation Graphs",
    url="https://arxiv.org/abs/1808.00079",
)


class Facts(TypedDict, total=False):
    """feng_huang, random_checkpoints."""

    checkpoint_bytes: Annotated[int, Means("of the checkpoints, in the paper's objective", "bytes")]
    largest_segment_bytes: Annotated[int, Means("the objective's other part", "bytes")]
    no_checkpoint_bytes: Annotated[int, Means("of everything between source and target", "bytes")]
    tail: Annotated[str, Means("what follows the last checkpoint is kept or recomputed")]
    checkpoint_vertices: Annotated[
        int | list[int], Means("feng_huang: their number; random_checkpoints: which")
    ]
    vertices: Annotated[int, Means("of its network")]
    edges: Annotated[int, Means("of its network")]
    valid_draws: Annotated[int, Means("random_checkpoints: draws that divide the network")]
    invalid_draws: Annotated[int, Means("random_checkpoints: draws that do not")]


CARDS = (
    Card(
        name="feng_huang",
        planner="planner.FengHuang",
        paper=PAPER,
        problem="least sum of checkpoints and the largest segment",
        guarantee="optimal: for that objective",
        page="feng_huang.md",
        golden="the paper's tables",
        knobs="`solver=lcg`: chains",
        place=10,
        colour="#6a3d9a",
        facts=Facts,
    ),
    Card(
        name="random_checkpoints",
        planner="random_checkpoints.RandomCheckpoints",
        paper=PAPER,
        problem="the baseline of their Table 2",
        scope="where a draw is valid",
        page="feng_huang.md",
        golden="the paper's table",
        place=13,
        facts=Facts,
    ),
)
