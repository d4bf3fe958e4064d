"""PyTorch's program for selective checkpointing by module."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """sac_ilp."""

    discarded: Annotated[
        dict[str, float], Means("per checkpointed module, the share of its bytes to drop", "ratio")
    ]
    modelled_peak_bytes: Annotated[int, Means("by the program's own model", "bytes")]
    program_budget_bytes: Annotated[int, Means("that the program was given", "bytes")]


CARDS = (
    Card(
        name="sac_ilp",
        planner="planner.SacIlp",
        problem="which modules to checkpoint, and what share of each (PyTorch's `sac_milp`, 2024; "
        "extra `sac`)",
        guarantee="none for the simulated peak",
        scope="training steps whose ops have scopes",
        page="sac_ilp.md",
        golden="PyTorch's own program runs",
        turn="alone",
        place=28,
        colour="#f58231",
        facts=Facts,
    ),
)
