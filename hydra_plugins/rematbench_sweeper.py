"""Sweeps: Hydra's basic sweeper, for a list of sweeps, that survives bad jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rematbench import terminal
from rematbench.mistakes import bad_row, explain
from rematbench.row import Row, write_leaderboard, write_row


class ExperimentSweeper(BasicSweeper):
    """Runs the jobs of several sweeps, one after the other, as one.

    Args:
        sweeps: each maps keys to values as they would stand on the command line (a list is a
            choice); the jobs are the union of their products. The command line's own overrides
            hold for all of them, and replace the keys that they name.
        max_batch_size: jobs handed to the launcher at once.
    """

    def __init__(
        self, sweeps: Sequence[Mapping[str, Any]] = (), max_batch_size: int | None = None
    ) -> None:
        super().__init__(max_batch_size)
        self.sweeps = sweeps

    def sweep(self, arguments: list[str]) -> Any:
        """Run all jobs; ends with ``leaderboard.csv`` and a table."""
        assert self.config is not None
        assert self.launcher is not None
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        good, bad = self._sorted_out(self._jobs(arguments))
        terminal.total_jobs = len(good) + len(bad)
        returns = self.launcher.launch(good, initial_job_idx=0) if good else []
        rows: list[Row] = [each.return_value for each in returns]
        for number, row in enumerate(bad, len(good)):
            write_row(folder / str(number) / "row.json", row)
            terminal.announce(number, row)
        rows += bad
        terminal.bad_jobs = sum(bool(row["extra"].get("bad_config")) for row in rows)
        write_leaderboard(folder / "leaderboard.csv", rows)
        terminal.summarise(rows, f"{folder / 'leaderboard.csv'}: {len(rows)} rows")
        return returns

    def _jobs(self, arguments: list[str]) -> list[list[str]]:
        """The overrides of each job, without repeats."""
        assert self.hydra_context is not None
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        jobs: list[list[str]] = []
        for sweep in self.sweeps or [{}]:
            listed = [f"{key}={_as_override(value)}" for key, value in sweep.items()]
            overrides = parser.parse_overrides(listed + arguments)
            jobs += [job for batch in self.split_arguments(overrides, None) for job in batch]
        return list({tuple(job): job for job in jobs}.values())

    def _sorted_out(self, jobs: list[list[str]]) -> tuple[list[list[str]], list[Row]]:
        """Jobs whose configuration can be composed, and the rows of those where it cannot."""
        assert self.hydra_context is not None
        loader = self.hydra_context.config_loader
        good, bad = [], []
        for job in jobs:
            try:
                loader.load_sweep_config(self.config, job)
                good.append(job)
            except (HydraException, OmegaConfBaseException) as error:
                chosen = dict(override.split("=", 1) for override in job)
                bad.append(bad_row(chosen.get("model"), chosen.get("strategy"), explain(error)))
        return good, bad


def _as_override(value: Any) -> str:
    """A value of a sweep as it would stand on the command line."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_as_override, value))
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
