"""What the commands do before they import anything else."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
"""The exit code of a command that the user stopped."""
_COMMAND = "rematbench"


def leave_at_interrupts() -> None:
    """Until :func:`catch_interrupts`, an interrupt ends a command at once.

    While modules load there is nothing to save, nor anybody to catch an exception. Where interrupts
    are ignored (a job in the background), they stay so.
    """
    try:
        if _is_command() and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, _leave)
    except ValueError:  # a thread of somebody's program imports us
        return


def catch_interrupts() -> None:
    """From here on an interrupt is a KeyboardInterrupt."""
    if signal.getsignal(signal.SIGINT) is _leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _leave(number: int, frame: FrameType | None) -> None:
    os.write(2, b"rematbench: interrupted\n")
    os._exit(INTERRUPTED)


def demote_current_folder() -> None:
    """Look for modules in the current folder last, where one of our commands is starting.

    ``python -m`` (and an empty entry of PYTHONPATH) puts it first, so that a file ``random.py``
    beside somebody's model would be imported by NumPy; a console script does not look there at all,
    so that somebody's own strategy beside it is not found. A program of somebody's own that
    imports rematbench is left as it is.
    """
    if not _is_command():
        return
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:  # it was removed
        return
    kept = [path for path in sys.path if os.path.realpath(path or here) != here]
    sys.path[:] = [*kept, here]


def _is_command() -> bool:
    name = sys.argv[0] if sys.argv else ""
    if name == "-m":  # while Python looks for the module: its name stands behind the option
        asked = sys.orig_argv[sys.orig_argv.index("-m") + 1 :] if "-m" in sys.orig_argv else []
        return bool(asked) and (asked[0] + ".").startswith(f"{_COMMAND}.")
    stem = os.path.basename(name).removesuffix(".exe").removesuffix("-script.py")
    return stem == _COMMAND or stem.startswith(f"{_COMMAND}-")
