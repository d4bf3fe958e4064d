"""Sweeps: Hydra's basic sweeper, for a list of sweeps, that goes on after anything."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from time import time
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from rematbench import progress, terminal
from rematbench.graphs.errors import ConfigError, RematbenchError
from rematbench.mistakes import explain, failed_row, one_line
from rematbench.row import Row, marked, read_row, write_leaderboard, write_row
from rematbench.settings import chosen

Job = list[str]
"""A job's overrides."""


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

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        """Hydra's hook: what there is to run, and by which launcher."""
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)
        self.task_function = task_function

    def sweep(self, arguments: list[str]) -> None:
        """Run all jobs that are not finished; ends with ``leaderboard.csv`` and a table.

        Job number n of the list is in folder n, however often the sweep is resumed.
        """
        assert self.config is not None
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        jobs = self._jobs(arguments)
        progress.start(folder, len(jobs))
        settled, waiting = self._settler(folder), {}
        rows: dict[int, Row] = {}
        for number, job in enumerate(jobs):
            row = settled(number, job)
            if row is not None:
                rows[number] = row
            elif isinstance(self.launcher, BasicLauncher):
                rows |= self._launch(folder, {number: job})
            else:
                waiting[number] = job
        if waiting:
            with terminal.following(folder):
                rows |= self._launch(folder, waiting)
        ordered = [rows[number] for number in sorted(rows)]
        terminal.bad_jobs = sum(bool(row["extra"].get("bad_config")) for row in ordered)
        write_leaderboard(folder / "leaderboard.csv", ordered)
        terminal.summarise(ordered, f"{folder / 'leaderboard.csv'}: {len(ordered)} rows")

    def _launch(self, folder: Path, jobs: Mapping[int, Job]) -> dict[int, Row]:
        """The rows of some jobs, whatever becomes of the processes that run them.

        Raises:
            ConfigError: the launcher brought back no row at all.
        """
        assert self.launcher is not None
        places = {number: folder / str(number) / "row.json" for number in jobs}
        for place in places.values():
            place.unlink(missing_ok=True)
        batch = [[*job, f"hydra.sweep.subdir={number}"] for number, job in jobs.items()]
        why = "the launcher lost it"
        try:
            for each in self.launcher.launch(batch, initial_job_idx=min(jobs)):
                each.return_value  # noqa: B018 (raises what ended the job, if it was not a row)
        except Exception as error:
            why += f": {one_line(error) or type(error).__name__}"
            if len(jobs) > 1 and not any(place.exists() for place in places.values()):
                name = type(self.launcher).__name__
                raise ConfigError(f"no job came back from {name}: {why}") from error
        rows = {}
        for number, place in places.items():
            if not place.exists():
                write_row(place, self._failed(jobs[number], why))
            rows[number] = read_row(place)
        return rows

    def _settler(self, folder: Path) -> Callable[[int, Job], Row | None]:
        """From a job to the row that it has without running; None where it has to run.

        Such rows are those of finished jobs, and of those whose configuration is bad.
        """
        compose = _Composer(self.hydra_context.config_loader, self.config)
        finished = getattr(self.task_function, "finished", None)

        def settled(number: int, job: Job) -> Row | None:
            began, place = time(), folder / str(number)
            try:
                config, strategy = compose(job)
                row = finished(config, strategy, place) if finished else None
            except (HydraException, OmegaConfBaseException) as error:
                row = self._failed(job, explain(error), bad_config=True)
                write_row(place / "row.json", row)
            except RematbenchError:
                return None  # the job itself says what is wrong
            if row is not None:
                far = progress.advance(folder, str(number), row["status"], True, began)
                terminal.announce(row, far)
            return row

        return settled

    def _failed(self, job: Job, reason: str, **extra: Any) -> Row:
        """The row of a job that did not run."""
        assert self.config is not None
        given = dict(override.split("=", 1) for override in job)
        mark = marked(chosen(self.config.hydra.runtime.choices), given.get("group"))
        return failed_row(given.get("model"), given.get("strategy"), reason, **mark, **extra)

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


class _Composer:
    """Composes the configurations of jobs, each choice of groups (model, strategy) once.

    Hydra composes from scratch for each job, which takes a tenth of a second.
    """

    def __init__(self, loader: ConfigLoaderImpl, master: DictConfig) -> None:
        self._loader = loader
        self._master = master
        self._groups = set(master.hydra.runtime.choices)
        self._parser = OverridesParser.create(config_loader=loader)
        self._known: dict[tuple[str, ...], tuple[DictConfig, str]] = {}

    def __call__(self, job: Job) -> tuple[dict[str, Any], str]:
        """The resolved configuration, and the name of the strategy.

        Raises:
            HydraException: there is no such key or choice.
            OmegaConfBaseException: an interpolation cannot be resolved, or a value is missing.
        """
        parsed = self._parser.parse_overrides(job)
        values = [o for o in parsed if o.key_or_group not in self._groups and o.package is None]
        choices = tuple(o.input_line for o in parsed if o not in values)
        if choices not in self._known:
            config = self._loader.load_sweep_config(self._master, list(choices))
            strategy = str(config.hydra.runtime.choices.strategy)
            with open_dict(config):
                del config["hydra"]
            self._known[choices] = (config, strategy)
        config, strategy = self._known[choices]
        config = copy.deepcopy(config)
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        named = {str(key): value for key, value in plain.items()}
        return named | {"experiment": chosen(self._master.hydra.runtime.choices)}, strategy


def _as_override(value: Any) -> str:
    """A value of a sweep as it would stand on the command line."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_as_override, value))
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
