"""hybrid: keep, recompute or offload, in one plan."""

from rematbench.strategies.hybrid.planner import Hybrid

__all__ = ["Hybrid"]
