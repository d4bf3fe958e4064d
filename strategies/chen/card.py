"""Chen et al.'s sqrt(n) and greedy rules, and what Checkmate makes of them for all graphs."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import CHECKMATE, Card, Paper

PAPER = Paper(
    authors="Chen et al.",
    year=2016,
    title="Training Deep Nets with Sublinear Memory Cost",
    url="https://arxiv.org/abs/1604.06174",
)


class SqrtFacts(TypedDict, total=False):
    """chen_sqrt, ap_sqrt, linearized_sqrt."""

    candidates: Annotated[int, Means("ops where a segment may end")]
    segment_length: Annotated[int, Means("candidates from one checkpoint to the next")]


class GreedyFacts(TypedDict, total=False):
    """chen_greedy, ap_greedy, linearized_greedy."""

    candidates: Annotated[int, Means("ops where a segment may end")]
    segment_bytes: Annotated[float, Means("the knob b of the chosen plan", "bytes")]


CARDS = (
    Card(
        name="chen_sqrt",
        planner="planner.ChenSqrt",
        paper=PAPER,
        problem="a checkpoint every sqrt(n) layers",
        scope="chains",
        page="chen.md",
        golden="the paper's algorithm",
        place=1,
        facts=SqrtFacts,
    ),
    Card(
        name="ap_sqrt",
        planner="planner.ApSqrt",
        paper=CHECKMATE,
        problem="`chen_sqrt` on articulation points (Checkmate, B.1)",
        page="chen.md",
        golden="Checkmate's text",
        place=2,
        facts=SqrtFacts,
    ),
    Card(
        name="linearized_sqrt",
        planner="planner.LinearizedSqrt",
        paper=CHECKMATE,
        problem="`chen_sqrt` on the program order (Checkmate, B.2)",
        page="chen.md",
        golden="Checkmate's text",
        place=3,
        facts=SqrtFacts,
    ),
    Card(
        name="chen_greedy",
        planner="planner.ChenGreedy",
        paper=PAPER,
        problem="segments of about b bytes, b swept",
        scope="chains",
        page="chen.md",
        golden="the paper's algorithm",
        knobs="`segment_bytes`, swept unless given; `most` values of it",
        place=4,
        facts=GreedyFacts,
    ),
    Card(
        name="ap_greedy",
        planner="planner.ApGreedy",
        paper=CHECKMATE,
        problem="`chen_greedy` on articulation points",
        page="chen.md",
        golden="Checkmate's text",
        knobs="`segment_bytes`, swept unless given; `most` values of it",
        place=5,
        facts=GreedyFacts,
    ),
    Card(
        name="linearized_greedy",
        planner="planner.LinearizedGreedy",
        paper=CHECKMATE,
        problem="`chen_greedy` on the program order",
        page="chen.md",
        golden="Checkmate's text",
        knobs="`segment_bytes`, swept unless given; `most` values of it",
        place=6,
        facts=GreedyFacts,
    ),
)
