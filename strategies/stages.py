"""Plans from what is kept, by the name that plug-ins know: :mod:`rematbench.engines.plans`."""

from rematbench.engines.plans.stages import plan_keeping, plan_with_checkpoints

__all__ = ["plan_keeping", "plan_with_checkpoints"]
