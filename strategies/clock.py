"""The planners' clock, under the name that plug-ins know: see :mod:`rematbench.base.clock`."""

from rematbench.base.clock import OutOfTime, available_threads, planning_seconds

__all__ = ["OutOfTime", "available_threads", "planning_seconds"]
