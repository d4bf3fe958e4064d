"""Beaumont et al., "Optimal memory-aware backpropagation of deep join networks" (RR-9273)."""

from rematbench.strategies.joins.planner import EquivChain, JoinDp

__all__ = ["EquivChain", "JoinDp"]
