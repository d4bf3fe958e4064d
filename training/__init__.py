"""Plans in people's own training loops."""

from rematbench.training.step import Step, apply

__all__ = ["Step", "apply"]
