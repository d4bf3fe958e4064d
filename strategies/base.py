"""A strategy is a pure planner from a :class:`Problem` to a :class:`Solution`.

The types are in :mod:`rematbench.graphs.planning`; here is what planners share.
"""

from __future__ import annotations

from rematbench.base.checks import check_choice, check_share
from rematbench.base.clock import available_threads, planning_seconds
from rematbench.engines.candidates import cheapest_within, cost_of_once, fitted, without_plan
from rematbench.graphs.planning import (
    BoundOf,
    CheckpointedRun,
    ChoosesImplementations,
    CompiledRun,
    Degree,
    NativeRun,
    Problem,
    Solution,
    Strategy,
    SupportsWarmStart,
    SupportsWarmUp,
    Traits,
    Verdict,
)

__all__ = [
    "BoundOf",
    "CheckpointedRun",
    "ChoosesImplementations",
    "CompiledRun",
    "Degree",
    "NativeRun",
    "Problem",
    "Solution",
    "Strategy",
    "SupportsWarmStart",
    "SupportsWarmUp",
    "Traits",
    "Verdict",
    "available_threads",
    "cheapest_within",
    "check_choice",
    "check_share",
    "cost_of_once",
    "fitted",
    "planning_seconds",
    "without_plan",
]
