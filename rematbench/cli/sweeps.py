"""Sweeps: lists of products of jobs, which go on after anything.

Hydra reaches this through ``hydra_plugins/rematbench_sweeper.py``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from time import time
from types import SimpleNamespace
from typing import Any, cast

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_launcher import BasicLauncher
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.cli import progress, terminal
from rematbench.cli.composer import Composer
from rematbench.cli.hydra_task import JobTask
from rematbench.cli.mistakes import MISTAKES, explain, failed_row, one_line
from rematbench.jobs.settings import chosen
from rematbench.rows.row import Row, marked, read_row, write_leaderboard, write_row
from rematbench.rows.shown import announce, summarise
from rematbench.worker.ahead import compile_ahead

Job = list[str]
"""A job's overrides."""


@dataclass
class Sweep:
    """Several sweeps, whose jobs run one after the other, as one.

    Attributes:
        sweeps: each maps keys to values as they would stand on the command line (a list is a
            choice); the jobs are the union of their products. The command line's own overrides
            hold for all of them, and replace the keys that they name.
        loader: composes configurations.
        task: runs a job.
        config: what all jobs have in common.
        launcher: brings jobs to where they run.
    """

    sweeps: Sequence[Mapping[str, Any]]
    loader: ConfigLoaderImpl
    task: TaskFunction
    config: DictConfig
    launcher: Launcher

    @classmethod
    def of(
        cls,
        sweeps: Sequence[Mapping[str, Any]],
        context: HydraContext,
        task: TaskFunction,
        config: DictConfig,
    ) -> Sweep:
        """What Hydra hands to a sweeper, with the configured launcher."""
        launcher = Plugins.instance().instantiate_launcher(
            hydra_context=context, task_function=task, config=config
        )
        loader = context.config_loader
        assert isinstance(loader, ConfigLoaderImpl)
        return cls(sweeps, loader, task, config, launcher)

    def run(self, arguments: list[str]) -> None:
        """Run all jobs that are not finished; ends with ``leaderboard.csv`` and a table.

        Job number n of the list is in folder n, however often the sweep is resumed.

        Raises:
            ConfigError: there is no job, or the launcher brought none back.
            KeyboardInterrupt: the user stopped it; says what is kept.
        """
        jobs = jobs_of(self.sweeps, arguments, self.loader)
        folder = Path(self.config.hydra.sweep.dir)
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        progress.start(folder, len(jobs))
        rows: dict[int, Row] = {}
        try:
            self._run_into(rows, folder, jobs)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._kept(len(rows), len(jobs), folder)) from None
        ordered = [rows[number] for number in sorted(rows)]
        if isinstance(self.task, JobTask):
            self.task.swept(ordered)
        try:
            write_leaderboard(folder / "leaderboard.csv", ordered)
        finally:
            summarise(ordered, f"{folder / 'leaderboard.csv'}: {len(ordered)} rows")

    def _run_into(self, rows: dict[int, Row], folder: Path, jobs: Sequence[Job]) -> None:
        compose = Composer(self.loader, self.config)
        if _runs_here(self.launcher):
            basic = cast(BasicLauncher, self.launcher)
            assert basic.hydra_context is not None
            basic.hydra_context = replace(
                basic.hydra_context, config_loader=cast(ConfigLoader, compose)
            )
        waiting: dict[int, Job] = {}
        ahead = False
        for number, job in enumerate(jobs):
            row = self._settled(compose, folder, number, job)
            if row is not None:
                rows[number] = row
            elif _runs_here(self.launcher):
                if not ahead:
                    ahead = True
                    _compile_ahead(jobs)
                rows |= self.launch(folder, {number: job})
            else:
                waiting[number] = job
        if waiting:
            with terminal.following(folder):
                rows |= self.launch(folder, waiting)

    def _kept(self, done: int, total: int, folder: Path) -> str:
        if self.config.cache is None:
            return (
                f"interrupted after {done} of {total} jobs; their rows are in {folder}, and "
                "without a cache (cache=null) a second run repeats them"
            )
        return f"interrupted after {done} of {total} jobs; finished jobs are kept: run it again"

    def launch(self, folder: Path, jobs: Mapping[int, Job]) -> dict[int, Row]:
        """The rows of some jobs, whatever becomes of the processes that run them.

        Raises:
            ConfigError: the launcher brought back no row at all.
        """
        places = {number: folder / str(number) / "row.json" for number in jobs}
        old = {number: _identity(place) for number, place in places.items()}
        batch = [[*job, f"hydra.sweep.subdir={number}"] for number, job in jobs.items()]
        why, returned = "the launcher lost it", {}
        try:
            ended = self.launcher.launch(batch, initial_job_idx=min(jobs))
            for number, each in zip(jobs, ended, strict=False):
                returned[number] = each.return_value  # or raises what ended the job
        except Exception as error:
            why += f": {one_line(error) or type(error).__name__}"
            if len(jobs) > 1 and all(_identity(places[n]) == old[n] for n in jobs):
                name = type(self.launcher).__name__
                raise ConfigError(f"no job came back from {name}: {why}") from error
        rows = {}
        for number, place in places.items():
            row = returned.get(number)  # the file may be another sweep's by now
            if row is None and _identity(place) != old[number]:
                row = read_row(place)
            rows[number] = row or self._lost(place, jobs[number], why)
        return rows

    def _lost(self, place: Path, job: Job, why: str) -> Row:
        """The row of a job that left none."""
        try:
            row = self._failed(job, why)
            write_row(place, row)
        except OSError as error:  # it has no folder
            row = self._failed(job, explain(error), bad_config=True)
            announce(row)
        return row

    def _settled(self, compose: Composer, folder: Path, number: int, job: Job) -> Row | None:
        """The row that a job has without running; None where it has to run.

        Such rows are those of finished jobs, and of those whose configuration is bad.
        """
        began, place = time(), folder / str(number)
        try:
            config, strategy = compose(job)
            task = self.task
            row = task.finished(config, strategy, place) if isinstance(task, JobTask) else None
        except MISTAKES as error:
            name = str(self.config.hydra.job.config_name)
            row = self._failed(job, explain(error, name, job), bad_config=True)
            with contextlib.suppress(OSError):  # then it stands in the leaderboard alone
                write_row(place / "row.json", row)
        except (RematbenchError, OSError):
            return None  # the job itself says what is wrong
        if row is not None:
            far = progress.advance(folder, str(number), str(row["status"]), True, began)
            announce(row, far)
        return row

    def _failed(self, job: Job, reason: str, **extra: Any) -> Row:
        """The row of a job that did not run: what its overrides say of it."""
        choices = self.config.hydra.runtime.choices
        known: dict[str, Any] = {"model": {"name": choices.get("model")}}
        known |= {key: self.config.get(key) for key in ("budget", "batch_size", "resolution")}
        known |= {"strategy": choices.get("strategy"), "group": None}
        for override in OverridesParser.create().parse_overrides(job):
            key, _, below = override.key_or_group.partition(".")
            if key == "model":
                known["model"][below or "name"] = override.value()
            elif not below:
                known[key] = override.value()
        mark = marked(chosen(choices), known["group"])
        return failed_row(known, known["strategy"], reason, **mark, **extra)


def _runs_here(launcher: Launcher) -> bool:
    """Is it Hydra's own, which runs jobs in this process? By its name: Hydra imports its plugins
    anew, if somebody has imported them before.
    """
    kinds = (type(launcher), BasicLauncher)
    found, own = ((kind.__module__, kind.__qualname__) for kind in kinds)
    return found == own


def _compile_ahead(jobs: Iterable[Job]) -> None:
    """Compile the kernels of the strategies that jobs name."""
    pairs = (word.partition("=") for job in jobs for word in job)
    with terminal.working("sweep") as tell:
        compile_ahead((value for key, _, value in pairs if key == "strategy"), tell)


def _identity(place: Path) -> tuple[int, int] | None:
    """Of a file: another one as soon as it is written again."""
    try:
        found = place.stat()
    except OSError:  # none; or its folder is a file, say: its job says so
        return None
    return found.st_ino, found.st_mtime_ns


def jobs_of(
    sweeps: Sequence[Mapping[str, Any]], arguments: Sequence[str], loader: ConfigLoader
) -> list[Job]:
    """The overrides of each job, without repeats; a sweep over an empty list has none.

    Raises:
        ConfigError: a pattern matches nothing, or every sweep is over an empty list.
    """
    # A group's options are looked for once, and not for each sweep over ``glob(*)``.
    known = SimpleNamespace(get_group_options=cache(loader.get_group_options))
    parser = OverridesParser.create(config_loader=cast(ConfigLoader, known))
    jobs: list[Job] = []
    for sweep in _with_values(sweeps):
        listed = [f"{key}={_as_override(value)}" for key, value in sweep.items()]
        overrides = parser.parse_overrides([*listed, *arguments])
        for override in overrides:
            _refuse_empty(override, loader)
        jobs += [job for batch in BasicSweeper.split_arguments(overrides, None) for job in batch]
    return list({tuple(job): job for job in jobs}.values())


def _with_values(sweeps: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The sweeps that have a job; without any, the command line's own."""
    found = [sweep for sweep in sweeps or [{}] if [] not in sweep.values()]
    if not found:
        names = ", ".join(sorted({key for sweep in sweeps for key in sweep if sweep[key] == []}))
        raise ConfigError(f"there is no job: {names} has no value in any sweep; give one")
    return found


def _refuse_empty(override: Override, loader: ConfigLoader) -> None:
    if not override.is_sweep_override() or any(True for _ in override.sweep_string_iterator()):
        return
    names = loader.get_group_options(override.key_or_group)
    word = (override.input_line or "").partition("=")[2]
    hint = did_you_mean(word.removeprefix("glob(").strip("*)"), names)
    there = f"it may be one of: {', '.join(names)}" if names else "give at least one value"
    raise ConfigError(f"{override.input_line}: matches nothing; {hint}{there}")


def _as_override(value: Any) -> str:
    """A value of a sweep as it would stand on the command line."""
    if isinstance(value, Sequence) and not isinstance(value, str):
        return ",".join(map(_as_override, value))
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
