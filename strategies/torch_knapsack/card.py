"""PyTorch's partitioner with one of our strategies as its solver."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """torch_knapsack."""

    share: Annotated[
        float | None, Means("of the budget that the strategy inside was given", "ratio")
    ]


CARDS = (
    Card(
        name="torch_knapsack",
        planner="planner.TorchKnapsack",
        problem="PyTorch's partitioner with another strategy as its solver",
        scope="PyTorch models",
        golden="PyTorch's own program runs",
        knobs="`inner=linearized_greedy`",
        prepared=True,
        turn="alone",
        colour="#3cb44b",
        facts=Facts,
    ),
)
