"""A chain of blocks, each planned by an integer program (Zhao et al., ICML 2023: Rockmate)."""

from rematbench.strategies.rockmate.planner import Rockmate

__all__ = ["Rockmate"]
