"""MONeT: joint choice of schedule and implementations (Shah et al., ICLR 2021)."""

from strategies.monet.planner import Monet

__all__ = ["Monet"]
