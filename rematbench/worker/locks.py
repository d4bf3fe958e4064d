"""One job at a time in a run directory, whoever else was given the same one."""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Wait until no other process works in a folder, and keep others waiting.

    The lock is the system's, on the directory itself: it leaves no file, and goes with its process.
    On file systems without such locks, one goes on without. It is not reentrant.
    """
    descriptor = None
    with suppress(OSError):  # the folder cannot be made: who writes into it says so
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    if descriptor is None:
        yield
        return
    try:
        _lock(descriptor, folder)
        yield
    finally:
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_UN)  # a forked child has the descriptor, too
        os.close(descriptor)


def _lock(descriptor: int, folder: Path) -> None:
    with suppress(OSError):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"rematbench: {folder}: another run works there; waiting for it", file=sys.stderr)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
