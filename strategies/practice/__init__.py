"""What people do by hand: checkpoint the blocks that a model repeats, as a whole or selectively."""

from rematbench.strategies.practice.planner import (
    EveryLayer,
    EveryNLayers,
    SaveDots,
    SelectiveAttention,
    SelectiveOps,
)

__all__ = ["EveryLayer", "EveryNLayers", "SaveDots", "SelectiveAttention", "SelectiveOps"]
