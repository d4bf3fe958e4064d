"""Backpropagation of joins of chains."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card, Paper

PAPER = Paper(
    authors="Beaumont et al.",
    year=2019,
    title="Optimal Memory-aware Backpropagation of Deep Join Networks",
    url="https://doi.org/10.1098/rsta.2019.0049",
)


class Facts(TypedDict, total=False):
    """join_dp, equiv_chain."""

    slots: Annotated[int, Means("values of the chain that may be live")]
    branches: Annotated[list[int], Means("steps of each branch")]
    makespan: Annotated[float, Means("of Theorem 3, in operations")]
    c_min: Annotated[int, Means("fewest slots that suffice")]
    c_opt: Annotated[int, Means("slots from which nothing is recomputed")]
    bytes_per_slot: Annotated[float, Means("the simulated peak over the slots", "bytes")]


CARDS = (
    Card(
        name="join_dp",
        planner="planner.JoinDp",
        paper=PAPER,
        problem="fewest operations of joins of chains (Theorem 3)",
        guarantee="optimal: in slots",
        scope="joins: `model=join`, `siamese`, `cross_modal`",
        page="joins.md",
        golden="the paper's tables; a search over memory states",
        knobs="`slots`, swept unless given",
        place=11,
        facts=Facts,
    ),
    Card(
        name="equiv_chain",
        planner="planner.EquivChain",
        paper=PAPER,
        problem="a join as one chain, in each reading of the paper",
        scope="joins",
        page="joins.md",
        golden="the paper's figures",
        knobs="`reading=join`, `chain`, `turn`; `slots`",
        place=12,
        facts=Facts,
    ),
)
