"""PyTorch's min-cut partitioner under its activation budget."""

from __future__ import annotations

from typing import Annotated, Any, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """torch_budget."""

    ratio: Annotated[float, Means("the activation budget of the chosen plan", "ratio")]
    failures: Annotated[
        list[dict[str, Any]], Means("ratios at which the partitioner failed, and how")
    ]


CARDS = (
    Card(
        name="torch_budget",
        planner="planner.TorchBudget",
        problem="saved activations within a ratio (PyTorch's min-cut partitioner under "
        "`activation_memory_budget`); ratio and solver swept for a true peak",
        guarantee="none for the peak",
        scope="PyTorch models",
        golden="PyTorch's own program runs",
        prepared=True,
        turn="alone",
        place=22,
        facts=Facts,
    ),
)
