"""Ordinary training."""

from __future__ import annotations

from rematbench.strategies.cards import Card

CARDS = (
    Card(
        name="checkpoint_all",
        planner="planner.CheckpointAll",
        problem="ordinary training: keep everything",
        guarantee="least cost",
        golden="eager PyTorch, bit by bit",
        turn="never",
        place=0,
    ),
)
