"""The settings of a small job on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rematbench.graphs.budget import Budget
from rematbench.jobs.settings import Settings


def settings_of(model: Mapping[str, Any], strategy: str, target: str, **others: Any) -> Settings:
    """Without a budget and a device, costs as operations.

    Args:
        strategy, target: the strategy's name and the path of its class.
        others: that are not as here.
    """
    known: dict[str, Any] = {
        **{"options": {}, "budget": Budget(), "time_limit": 10.0, "costmodel": "flops"},
        **{"preset": "v100", "device": "none", "repeats": 1, "seed": 0},
        **{"accounting": "full", "threads": 1, "cache": None},
    }
    return Settings(model=dict(model), strategy=strategy, target=target, **(known | others))
