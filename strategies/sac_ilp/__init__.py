"""PyTorch's program for selective activation checkpointing by module, ``sac_milp``."""

from rematbench.strategies.sac_ilp.planner import SacIlp

__all__ = ["SacIlp"]
