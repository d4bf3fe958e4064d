"""Our own search over two memories."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """hybrid."""

    plans_tried: Annotated[int, Means("that were simulated")]
    recompute_only_cost: Annotated[
        float | None, Means("of recomputation alone, if it was planned", "cost_unit")
    ]


CARDS = (
    Card(
        name="hybrid",
        planner="planner.Hybrid",
        problem="least makespan: each value is kept, recomputed or bridged by the host; ours",
        guarantee="bound: any plan with that link",
        scope="everything",
        page="hybrid.md",
        golden="every plan of small chains",
        ours=True,
        place=39,
        colour="#8a1c7c",
        facts=Facts,
    ),
)
