"""What Hydra runs for a command, and how the command ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.cli import progress
from rematbench.cli.closing import closing_line
from rematbench.cli.mistakes import explain, failed_row
from rematbench.jobs.settings import Settings, chosen, settings_from
from rematbench.rows.row import Row, format_row, marked, write_row
from rematbench.rows.shown import announce

Config = Mapping[str, Any]
"""A resolved configuration as plain data."""
Work = Callable[[Config, Settings, Path], Row]
"""From (configuration, its settings, run directory) to a row, which it has also written."""
Recall = Callable[[Config, Settings, Path], Row | None]
"""A job's row without running it, its files in the run directory; None where it has to run."""
ERRORS = (RematbenchError, OmegaConfBaseException, OSError)
"""What is said in one line."""


def plain(config: DictConfig) -> dict[str, Any]:
    """A configuration, resolved.

    Raises:
        OmegaConfBaseException: an interpolation cannot be resolved, or a value is missing.
    """
    found = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items()}


class CommandTask:
    """Hydra's task of a command that makes no row.

    Hydra hands on neither results nor, without words of its own, exceptions: they stay here.

    Args:
        work: is given the resolved configuration.

    Attributes:
        mistake: what is wrong with the configuration, once it is known.
        bad_jobs: jobs of its sweep whose configuration was bad.
    """

    def __init__(self, work: Callable[[Config], None]) -> None:
        self._work = work
        self.mistake: Exception | None = None
        self.bad_jobs = 0

    def __call__(self, config: DictConfig) -> Row | None:
        """Run; the configuration's mistakes are kept."""
        try:
            self._work(plain(config))
        except ERRORS as error:
            self.mistake = error
        return None


class JobTask(CommandTask):
    """Hydra's task of a command whose jobs are rows.

    Args:
        work: makes a job's row.
        recall: finds it where it is finished; a sweep asks before it launches a job.
        show: prints the row of a single job.
    """

    def __init__(
        self, work: Work, recall: Recall | None = None, show: Callable[[Row], None] | None = None
    ) -> None:
        super().__init__(lambda config: None)
        self._run = work
        self._recall = recall
        self._show = show or _print_row

    def __call__(self, config: DictConfig) -> Row | None:
        """Run one job: a row on disk and on the screen."""
        run = HydraConfig.get()
        folder, strategy = Path(run.runtime.output_dir), str(run.runtime.choices["strategy"])
        experiment = chosen(run.runtime.choices)
        if run.mode == RunMode.RUN:
            try:
                if run.sweeper.get("sweeps"):
                    raise ConfigError(
                        f"experiment={experiment} is a list of sweeps: add -m to run it"
                    )
                named = plain(config) | {"experiment": experiment}
                row = self._run(named, settings_from(named, strategy), folder)
            except ERRORS as error:
                self.mistake = error
                return None
            self._show(row)
            print(closing_line(row, folder))
            return row
        began = time()
        try:
            named = plain(config) | {"experiment": experiment}
            row = self._run(named, settings_from(named, strategy), folder)
        except ERRORS as error:
            row = self._refused(config, strategy, experiment, error)
            write_row(folder / "row.json", row)
        cached = bool(row["extra"].get("cached"))
        far = progress.advance(Path(run.sweep.dir), folder.name, str(row["status"]), cached, began)
        announce(row, far)
        return row

    @staticmethod
    def _refused(
        config: DictConfig, strategy: str, experiment: str | None, error: Exception
    ) -> Row:
        raw = OmegaConf.to_container(config, resolve=False)
        assert isinstance(raw, dict)
        given = {str(key): value for key, value in raw.items()}
        mark = marked(experiment, given.get("group"))
        return failed_row(given, strategy, explain(error), bad_config=True, **mark)

    def finished(self, config: Config, strategy: str, folder: Path) -> Row | None:
        """A job's row without running it; None where it has to run."""
        if self._recall is None:
            return None
        return self._recall(config, settings_from(config, strategy), folder)

    def swept(self, rows: Sequence[Row]) -> None:
        """A sweep ended with these rows."""
        self.bad_jobs = sum(bool(row["extra"].get("bad_config")) for row in rows)


def _print_row(row: Row) -> None:
    print(format_row(row, extra=False))
