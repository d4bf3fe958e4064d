"""PyTorch's `checkpoint_sequential`, plain and selective."""

from __future__ import annotations

from typing import Annotated, TypedDict

from rematbench.base.meanings import Means
from rematbench.strategies.cards import Card


class Facts(TypedDict, total=False):
    """torch_checkpoint, torch_selective."""

    segments: Annotated[int, Means("parts of the network")]


CARDS = (
    Card(
        name="torch_checkpoint",
        planner="planner.TorchCheckpoint",
        problem="`checkpoint_sequential`, sqrt(n) segments",
        guarantee="none; one plan",
        scope="where articulation points allow two segments",
        golden="PyTorch's own run",
        knobs="`segments`",
        turn="alone",
        place=23,
        facts=Facts,
    ),
    Card(
        name="torch_selective",
        planner="planner.TorchCheckpoint",
        presets={"policy": "contractions"},
        problem="the same with a policy of selective checkpointing: kept in a segment is what "
        "convolutions, matrix products, attention and random draws make",
        guarantee="none; one plan",
        scope="PyTorch models",
        golden="PyTorch's own run",
        knobs="`segments`",
        turn="alone",
        facts=Facts,
    ),
)
