"""Dynamic tensor rematerialization: the runtime of its simulator, simrd, compiled and exact.

Sections are those of simrd's paper ("simrd: a simulator for Dynamic Tensor Rematerialization").
"""

from rematbench.strategies.dtr.planner import Dtr

__all__ = ["Dtr"]
