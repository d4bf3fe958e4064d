"""The ``rematbench`` command: one job is one row. What the commands with keys have in common."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

# Hydra then passes its errors on, instead of printing a traceback and leaving.
os.environ.setdefault("HYDRA_FULL_ERROR", "1")

import hydra
from hydra._internal.hydra import Hydra

from rematbench.base.checks import flag
from rematbench.base.errors import RematbenchError
from rematbench.base.start import INTERRUPTED, catch_interrupts
from rematbench.cli.command_line import read_command_line
from rematbench.cli.hydra_task import CommandTask, Config, JobTask
from rematbench.cli.mistakes import MISTAKES, explain
from rematbench.cli.plugins import register_plugins
from rematbench.cli.resolvers import register_resolvers
from rematbench.cli.terminal import working
from rematbench.jobs.settings import Settings
from rematbench.jobs.warm_starts import with_known_plans
from rematbench.rows.row import Row, joined, write_row
from rematbench.worker import cache
from rematbench.worker.locks import alone_in
from rematbench.worker.worker import the_worker

BAD_CONFIGURATION = 2
_OTHERS = ("--config", "-c", "hydra.mode", "hydra.searchpath", "+hydra", "++hydra")
"""How words begin that bring other configurations than ours."""


def run_job(settings: Settings, folder: Path, force: bool = False) -> Row:
    """One job in the worker process, or from the cache.

    Args:
        folder: run directory, which gets ``row.json`` and the plan's files.
        force: plan again even where the cache has the row.

    Raises:
        RematbenchError: the configuration, model or graph file is bad.
    """
    settings = with_known_plans(settings, folder)
    kept = cache.CachePlace(settings)
    with alone_in(folder):
        row = None if force else kept.recall(folder)
        if row is None:
            cache.clear(folder)
            worker = the_worker()
            with working(f"{settings.label} {settings.strategy} budget={settings.budget}") as say:
                row = worker.run(settings, folder, say)
            if worker.loaded.outside and settings.cache is not None:
                row = joined(row, {"extra": {"uncached": "; ".join(worker.loaded.outside)}})
                write_row(folder / "row.json", row)
            kept.remember(folder, row, worker.loaded, worker.began)
    return row


def command(name: str, config: str, task: CommandTask) -> None:
    """Run a command. Exits 2 for a bad configuration, with one line that says what.

    Args:
        name: of the command.
        config: its file in ``conf``.
        task: what Hydra is to run.
    """
    overrides: Sequence[str] = ()
    catch_interrupts()
    try:
        register_plugins()
        register_resolvers()
        given = read_command_line(sys.argv[1:])
        overrides = given.overrides
        decorate = hydra.main(
            version_base="1.3", config_path="pkg://rematbench.conf", config_name=config
        )
        with _arguments(name, given.words):
            decorate(task)()
        if task.mistake is not None:
            raise task.mistake
    except BrokenPipeError:  # whoever reads the output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except (*MISTAKES, RematbenchError, OSError) as error:
        print(f"{name}: {explain(error, config, overrides)}", file=sys.stderr)
        sys.exit(BAD_CONFIGURATION)
    except KeyboardInterrupt as interrupt:
        print(f"{name}: {str(interrupt) or 'interrupted'}", file=sys.stderr)
        sys.exit(INTERRUPTED)
    if task.bad_jobs:
        sys.exit(BAD_CONFIGURATION)


def _no_mode(self: Hydra, config_name: str | None, overrides: list[str]) -> None:
    """What our configurations say of ``hydra.mode``: Hydra composes each once more to see it."""


@contextmanager
def _arguments(name: str, words: Sequence[str]) -> Iterator[None]:
    """Hydra reads the process's."""
    before, mode = sys.argv, Hydra.get_mode
    sys.argv = [name, *words]
    if not any(word.startswith(_OTHERS) for word in words):
        Hydra.get_mode = _no_mode  # type: ignore[method-assign]
    try:
        yield
    finally:
        sys.argv = before
        Hydra.get_mode = mode  # type: ignore[method-assign]


def run_or_recall(config: Config, settings: Settings, folder: Path) -> Row:
    """A job of ``rematbench``."""
    return run_job(settings, folder, force=flag("force", config["force"]))


def recall(config: Config, settings: Settings, folder: Path) -> Row | None:
    """Its row, where it is finished."""
    if flag("force", config["force"]):
        return None
    with alone_in(folder):
        return cache.CachePlace(with_known_plans(settings, folder)).recall(folder)


def main() -> None:
    """The ``rematbench`` command."""
    command("rematbench", "config", JobTask(run_or_recall, recall))


if __name__ == "__main__":
    main()
