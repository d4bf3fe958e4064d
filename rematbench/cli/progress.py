"""How far a sweep is: a file with a line per finished job, which any process may add to.

A line ``sweep,NAME,JOBS`` begins a sweep; several, one after the other or at once, may share a
folder and its file.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from time import time, time_ns

from rematbench.base.json_files import write_bytes

NAME = "progress.csv"
_HEADER = "job,status,cached,began,ended,sweep"
# The environment variable that tells a sweep's jobs, wherever they run, which it is.
_SWEEP = "REMATBENCH_SWEEP"


@dataclass(frozen=True)
class SweepProgress:
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
    """A sweep of so many jobs begins; what this process and its children finish is its own."""
    sweep = f"{os.getpid()}-{time_ns()}"
    os.environ[_SWEEP] = sweep
    path = folder / NAME
    if not path.exists():
        write_bytes(path, f"{_HEADER}\n".encode())
    _append(path, f"{_rest_of_line(path)}sweep,{sweep},{jobs}\n")


def advance(
    folder: Path, job: str, status: str, cached: bool, began: float
) -> SweepProgress | None:
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
    sweep = os.environ.get(_SWEEP, "")
    try:
        _append(path, f"{job},{status},{int(cached)},{began:.3f},{time():.3f},{sweep}\n")
        return read(folder)
    except OSError:  # the job is done all the same
        return None


def _rest_of_line(path: Path) -> str:
    """What ends the last line, where a sweep that was killed left half of one."""
    return "" if path.read_bytes()[-1:] in (b"", b"\n") else "\n"


def _append(path: Path, line: str) -> None:
    # One write at the end of the file: lines of concurrent processes do not mix.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, line.encode())
    finally:
        os.close(handle)


def read(folder: Path) -> SweepProgress:
    """How far this process's sweep is, now; others may share its folder."""
    # A disk's fault in a line of an earlier sweep is no reason to end this one.
    text = (folder / NAME).read_text(encoding="utf-8", errors="replace")
    lines = text.splitlines()[1:]
    cells = [line.split(",") for line in lines]
    begins = {each[1]: i for i, each in enumerate(cells) if each[0] == "sweep" and len(each) == 3}
    own = os.environ.get(_SWEEP, "")
    if own not in begins:  # a launcher's process that lacks our environment
        own = next(reversed(begins), "")
    since = cells[begins.get(own, 0) :]
    # Lines of another length are cut off: still being written.
    jobs = {each[0]: each for each in since if each[5:] in ([own], [""])}
    ran = [float(began) for _, _, cached, began, *_ in jobs.values() if cached == "0"]
    total = int(cells[begins[own]][2]) if own in begins else 0
    left = (time() - min(ran)) / len(ran) * (total - len(jobs)) if ran else None
    return SweepProgress(len(jobs), total, left)
