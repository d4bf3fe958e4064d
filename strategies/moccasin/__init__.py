"""Retention intervals by constraint programming (Bartan et al., ICML 2023: Moccasin)."""

from rematbench.strategies.moccasin.planner import Moccasin

__all__ = ["Moccasin"]
