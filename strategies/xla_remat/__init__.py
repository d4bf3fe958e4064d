"""XLA's rematerialization pass (``hlo_rematerialization``), on our graphs."""

from rematbench.strategies.xla_remat.planner import XlaRemat

__all__ = ["XlaRemat"]
