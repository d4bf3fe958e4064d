"""Dynamic tensor rematerialization: ``simrd``'s runtime (papers/simrd.txt), compiled and exact."""

from rematbench.strategies.dtr.planner import Dtr

__all__ = ["Dtr"]
