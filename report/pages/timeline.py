"""``trace.csv`` as curves: live bytes by statement, or the events of an online run by its clock."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rematbench.base.errors import ConfigError

WIDTH, HEIGHT = 900, 260  # of the drawing, in pixels
_STATEMENTS = ["statement", "action", "name", "bytes_during", "bytes_after"]
_EVENTS = ["event", "tensor", "clock"]
_MOST_LINES = 2_000_000


@dataclass(frozen=True)
class Curve:
    """A curve of a timeline: an SVG path and its name."""

    name: str
    path: str


@dataclass(frozen=True)
class Timeline:
    """What a page draws.

    Attributes:
        kind: ``bytes`` or ``events``.
        count: of statements, or of the clock.
        top: the value at the upper edge.
        curves: one of live bytes, or one per kind of event, counted up.
    """

    kind: str
    count: int
    top: float
    curves: tuple[Curve, ...]

    def height_of(self, value: float) -> float:
        """Where a horizontal line at some value goes."""
        return round(HEIGHT * (1 - value / self.top), 2)


def read_timeline(path: Path, inside: Sequence[float] = ()) -> Timeline:
    """The timeline of a ``trace.csv``.

    Args:
        inside: values that must be inside the drawing, say the budget.

    Raises:
        ConfigError: the file is damaged or none of ours.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            head, *lines = csv.reader(file)
        if len(lines) > _MOST_LINES:
            raise ConfigError(f"{path}: {len(lines)} lines are too many to draw")
        if head == _STATEMENTS:
            return _of_bytes([int(line[3]) for line in lines], inside)
        if head == _EVENTS:
            return _of_events([line[0] for line in lines], [int(line[2]) for line in lines])
    except (OSError, UnicodeDecodeError, csv.Error, ValueError, IndexError) as error:
        raise ConfigError(f"{path}: damaged ({error}); run its job again") from None
    raise ConfigError(f"{path}: its columns are {head[:5]}, which no job writes")


def _of_bytes(during: list[int], inside: Sequence[float]) -> Timeline:
    if not during:
        raise ValueError("no statement")
    values = np.array(during, dtype=np.float64)
    top = max(float(values.max()), 1.0, *inside) * 1.04
    # One step per two pixels at most, each as high as the highest statement in it: no peak is lost.
    steps = min(len(values), WIDTH // 2)
    starts = np.unique(np.linspace(0, len(values), steps + 1).astype(np.int64))
    highs = np.maximum.reduceat(values, starts[:-1])
    return Timeline("bytes", len(values), top, (Curve("live bytes", _steps(starts, highs, top)),))


def _steps(starts: NDArray[np.int64], highs: NDArray[np.float64], top: float) -> str:
    across = np.round(starts * (WIDTH / starts[-1]), 1).tolist()
    down = np.round(HEIGHT * (1 - highs / top), 1).tolist()
    path = "".join(f"H{x:g}V{y:g}" for x, y in zip(across[:-1], down, strict=True))
    return f"M0 {HEIGHT}{path}H{WIDTH}V{HEIGHT}Z"


def _of_events(events: list[str], clock: list[int]) -> Timeline:
    if not events:
        raise ValueError("no event")
    end = max(1, *clock)
    at: dict[str, list[int]] = {name: [] for name in dict.fromkeys(events)}
    for name, time in zip(events, clock, strict=True):
        at[name].append(time)
    top = 1.04 * max(len(times) for times in at.values())
    curves = (Curve(name, _counted(times, end, top)) for name, times in at.items())
    return Timeline("events", end, top, tuple(curves))


def _counted(times: list[int], end: int, top: float) -> str:
    chosen = np.unique(np.linspace(1, len(times), min(len(times), WIDTH // 2)).astype(np.int64))
    points = [
        f"L{times[n - 1] / end * WIDTH:.1f} {HEIGHT * (1 - n / top):.1f}" for n in chosen.tolist()
    ]
    return f"M0 {HEIGHT}{''.join(points)}H{WIDTH}"
