"""What planners compile before their time counts."""

from __future__ import annotations

from collections.abc import Callable

from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.planning import Strategy, SupportsWarmUp, SupportsWarmUpInParts

_warm: set[str] = set()


def warm_up(strategy: Strategy) -> None:
    """Compile the kernels that planners share, once on a machine, and do what this one asks for,
    once in a process.
    """
    if repr(strategy) in _warm:
        return
    shared()
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    _warm.add(repr(strategy))


def shared() -> None:
    """Compile the kernels that planners share."""
    plan_with_checkpoints(unit_chain(3), [0])


def parts(strategy: Strategy) -> list[Callable[[], None]]:
    """What a planner asks for beside the shared kernels, as calls that may run side by side."""
    if isinstance(strategy, SupportsWarmUpInParts):
        return list(strategy.warm_ups())
    return [strategy.warm_up] if isinstance(strategy, SupportsWarmUp) else []
