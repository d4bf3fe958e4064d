"""Checkpoint-all: keep every activation until its last use; the baseline of every ratio."""

from rematbench.strategies.checkpoint_all.planner import CheckpointAll

__all__ = ["CheckpointAll"]
