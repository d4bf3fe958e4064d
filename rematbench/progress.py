"""How far a sweep is: a file with a line per finished job, which any process may add to."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import time

from rematbench.graphs.files import write_bytes

NAME = "progress.csv"
_HEADER = "job,status,cached,began,ended"


@dataclass(frozen=True)
class Progress:
    """How far a sweep is.

    Attributes:
        done: finished jobs.
        total: all jobs.
        seconds_left: at the pace of the jobs that ran so far, several at a time where a launcher
            runs several; None before the first. Jobs that are still to come from the cache
            count as if they ran.
    """

    done: int
    total: int
    seconds_left: float | None

    def __str__(self) -> str:
        if self.seconds_left is None or self.done >= self.total:
            return f"{self.done}/{self.total}"
        return f"{self.done}/{self.total}, about {duration(self.seconds_left)} left"


def duration(seconds: float) -> str:
    """Seconds for people.

    >>> duration(47), duration(400), duration(10000)
    ('47 s', '7 min', '2.8 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def start(folder: Path, jobs: int) -> None:
    """A sweep of so many jobs begins."""
    write_bytes(folder / NAME, f"{_HEADER},{jobs}\n".encode())


def advance(folder: Path, job: str, status: str, cached: bool, began: float) -> Progress | None:
    """A job has finished.

    Args:
        folder: of the sweep.
        began: when it did, in seconds since the epoch.

    Returns:
        How far the sweep is; None where no sweep began, or its folder is full.
    """
    path = folder / NAME
    if not path.exists():
        return None
    line = f"{job},{status},{int(cached)},{began:.3f},{time():.3f}\n"
    try:
        # One write at the end of the file: lines of concurrent processes do not mix.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)
        return read(folder)
    except OSError:  # the job is done all the same
        return None


def read(folder: Path) -> Progress:
    """How far a sweep is, now."""
    header, *lines = (folder / NAME).read_text(encoding="utf-8").splitlines()
    total = int(header.rpartition(",")[2])
    cells = [line.split(",") for line in lines]
    cells = [each for each in cells if len(each) == 5]  # others are cut off: still being written
    ran = [float(began) for _, _, cached, began, _ in cells if cached == "0"]
    pace = (time() - min(ran)) / len(ran) if ran else None
    left = None if pace is None else pace * (total - len(cells))
    return Progress(len(cells), total, left)
