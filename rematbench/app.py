"""The Hydra application: one job is one row."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from time import time
from typing import Any

# Hydra then passes its errors on, instead of printing a traceback and leaving.
os.environ.setdefault("HYDRA_FULL_ERROR", "1")

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from rematbench import cache, progress, terminal
from rematbench.graphs.errors import RematbenchError
from rematbench.mistakes import bad_row, explain
from rematbench.plugins import register_strategies
from rematbench.resolvers import register_resolvers
from rematbench.row import Row, format_row, marked, write_row
from rematbench.settings import Settings, chosen, settings_from
from rematbench.terminal import announce, working
from rematbench.warm_starts import with_known_plans
from rematbench.worker import the_worker

BAD_CONFIGURATION = 2
Work = Callable[[Mapping[str, Any], Settings, Path], Row]
"""From (configuration, its settings, run directory) to a row, which it has also written."""
_mistakes: list[Exception] = []


def run_job(settings: Settings, folder: Path, force: bool = False) -> Row:
    """One job in the worker process, or from the cache.

    Args:
        folder: run directory, which gets ``row.json`` and the plan's files.
        force: plan again even where the cache has the row.

    Raises:
        RematbenchError: the configuration, model or graph file is bad.
    """
    settings = with_known_plans(settings, folder)
    kept = cache.Kept(settings)
    row = None if force else kept.recall(folder)
    if row is None:
        cache.clear(folder)
        worker = the_worker()
        with working(f"{settings.label} {settings.strategy} budget={settings.budget}") as say:
            row = worker.run(settings, folder, say)
        kept.remember(folder, row, worker.loaded, worker.began)
    return row


def task(config: DictConfig, work: Work) -> Row | None:
    """Hydra's task: from a composed configuration to a row on disk and on the screen.

    Args:
        work: writes the row, and what belongs to it, into the run directory.
    """
    run = HydraConfig.get()
    folder = Path(run.runtime.output_dir)
    single = run.mode == RunMode.RUN
    strategy = str(run.runtime.choices.strategy)
    began = time()
    try:
        plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
        assert isinstance(plain, dict)
        named = {str(k): v for k, v in plain.items()}
        named["experiment"] = chosen(run.runtime.choices)
        row = work(named, settings_from(named, strategy), folder)
    except (RematbenchError, OmegaConfBaseException) as error:
        if single:
            mistake(error)
            return None
        model = OmegaConf.select(config, "model.name", throw_on_missing=False)
        row = bad_row(model, strategy, explain(error))
        group = OmegaConf.select(config, "group", throw_on_missing=False)
        row["extra"] |= marked(chosen(run.runtime.choices), group)
        write_row(folder / "row.json", row)
    if single:
        print(format_row(row))
    else:
        cached = bool(row["extra"].get("cached"))
        sweep = Path(run.sweep.dir)
        announce(row, progress.advance(sweep, folder.name, row["status"], cached, began))
    return row


def mistake(error: Exception) -> None:
    """Let :func:`command` tell it: Hydra would add words of its own to an exception."""
    _mistakes.append(error)


def command(name: str, hydra_main: Callable[[], Any]) -> None:
    """A command. Exits 2 for a bad configuration, with one line that says what.

    Args:
        name: of the command.
        hydra_main: the decorated task.
    """
    _mistakes.clear()
    terminal.bad_jobs = 0
    try:
        register_strategies()
        register_resolvers()
        hydra_main()
        if _mistakes:
            raise _mistakes[0]
    except (HydraException, OmegaConfBaseException, RematbenchError) as error:
        print(f"{name}: {explain(error)}", file=sys.stderr)
        sys.exit(BAD_CONFIGURATION)
    except KeyboardInterrupt:
        print(f"{name}: interrupted; finished jobs are kept", file=sys.stderr)
        sys.exit(130)
    if terminal.bad_jobs:
        sys.exit(BAD_CONFIGURATION)


def _work(config: Mapping[str, Any], settings: Settings, folder: Path) -> Row:
    return run_job(settings, folder, force=bool(config["force"]))


def _job(config: DictConfig) -> Row | None:
    return task(config, _work)


def _finished(config: Mapping[str, Any], strategy: str, folder: Path) -> Row | None:
    """A job's row from the cache, its files into ``folder``; None where the job has to run."""
    if config["force"]:
        return None
    return cache.Kept(with_known_plans(settings_from(config, strategy), folder)).recall(folder)


# The sweeper asks this before it launches a job.
_job.finished = _finished  # type: ignore[attr-defined]
_hydra_main = hydra.main(
    version_base="1.3", config_path="pkg://rematbench.conf", config_name="config"
)(_job)


def main() -> None:
    """The ``rematbench`` command."""
    command("rematbench", _hydra_main)


if __name__ == "__main__":
    main()
