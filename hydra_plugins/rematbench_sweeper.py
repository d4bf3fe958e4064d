"""Rematbench's sweeper as Hydra finds it: every Hydra program imports this, so it loads nothing.

What it does is in :mod:`rematbench.cli.sweeps`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class ExperimentSweeper(Sweeper):
    """Runs the jobs of several sweeps, one after the other, as one.

    Args:
        sweeps: each maps keys to values as they would stand on the command line.
        max_batch_size: not used: jobs go to the launcher one by one, or all at once.
    """

    def __init__(
        self, sweeps: Sequence[Mapping[str, Any]] = (), max_batch_size: int | None = None
    ) -> None:
        self.sweeps = sweeps
        self._sweep: Any = None

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Hydra's hook: what there is to run, and by which launcher."""
        from rematbench.cli.sweeps import Sweep

        self._sweep = Sweep.of(self.sweeps, hydra_context, task_function, config)

    def sweep(self, arguments: list[str]) -> None:
        """Hydra's hook: run all jobs."""
        self._sweep.run(arguments)
