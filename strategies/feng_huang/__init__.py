"""Feng & Huang, Optimal Gradient Checkpoint Search for Arbitrary Computation Graphs."""

from rematbench.strategies.feng_huang.planner import FengHuang
from rematbench.strategies.feng_huang.random_checkpoints import RandomCheckpoints
from rematbench.strategies.feng_huang.segments import Segment, SegmentType, division_tree
from rematbench.strategies.feng_huang.solver import Checkpoints, solve, solve_linear

__all__ = [
    "Checkpoints",
    "FengHuang",
    "RandomCheckpoints",
    "Segment",
    "SegmentType",
    "division_tree",
    "solve",
    "solve_linear",
]
