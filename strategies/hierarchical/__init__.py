"""hierarchical: a plan from blocks, each solved alone, after the idea of Rockmate (ICML 2023)."""

from rematbench.strategies.hierarchical.planner import BlockSearch, Hierarchical

__all__ = ["BlockSearch", "Hierarchical"]
