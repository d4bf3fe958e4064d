"""The commands' front doors: what they do before they import anything that takes long.

Each answers ``--help`` and ``--version`` at once, and leaves quietly when it is interrupted while
it loads, or when whoever reads its output has gone.
"""

from __future__ import annotations

import io
import os
import sys

from rematbench.base.start import INTERRUPTED, catch_interrupts


def run(name: str, module: str) -> None:
    """A command, from its arguments to its exit.

    Args:
        name: of the command.
        module: has its ``main``.
    """
    for stream in (sys.stdout, sys.stderr):  # names beyond what the terminal can show
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    leaving: SystemExit | None = None
    try:
        try:
            _answer(name, module)
        except SystemExit as asked:
            leaving = asked
        print(end="", flush=True)  # as Python ends, a reader who has gone would be a traceback
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        leaving = SystemExit(INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        leaving = leaving or SystemExit(1)
    except OSError as error:
        from rematbench.base.errors import tell_os_error

        print(f"{name}: {tell_os_error(error)}", file=sys.stderr)
        leaving = SystemExit(2)
    if leaving is not None:
        raise leaving


def _answer(name: str, module: str) -> None:
    """What is asked of a command: its version, its help or its work."""
    given = sys.argv[1:]
    if "--version" in given:
        from rematbench.cli.helps import version_text

        print(version_text())
        return
    if {"--help", "-h"} & set(given):
        from rematbench.cli.helps import help_text

        print(help_text(name, given))
        return
    import gc
    import importlib

    gc.set_threshold(100_000)  # settings are little garbage, and planners have their own processes
    main = importlib.import_module(module).main
    catch_interrupts()
    main()


def rematbench() -> None:
    """``rematbench`` and ``python -m rematbench``."""
    run("rematbench", "rematbench.cli.app")


def fit() -> None:
    """``rematbench-fit``."""
    run("rematbench-fit", "rematbench.cli.fit")


def max_batch() -> None:
    """``rematbench-max-batch``."""
    run("rematbench-max-batch", "rematbench.cli.max_batch")


def record() -> None:
    """``rematbench-record``."""
    run("rematbench-record", "rematbench.cli.record")


def suite() -> None:
    """``rematbench-suite``."""
    run("rematbench-suite", "rematbench.cli.suite")


def report() -> None:
    """``rematbench-report``."""
    run("rematbench-report", "rematbench.report.app")


def instances() -> None:
    """``rematbench-instances``."""
    run("rematbench-instances", "rematbench.instances.app")


def verify() -> None:
    """``rematbench-verify``."""
    run("rematbench-verify", "rematbench.cli.verify")
