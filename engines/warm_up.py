"""What planners compile before their time counts."""

from __future__ import annotations

from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.planning import Strategy, SupportsWarmUp


def warm_up(strategy: Strategy) -> None:
    """Compile the kernels that planners share, once on a machine, and do what this one asks for."""
    plan_with_checkpoints(unit_chain(3), [0])
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
