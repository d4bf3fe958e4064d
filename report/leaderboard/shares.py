"""Shares that say what they are shares of."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan

import pandas as pd

FEW = 4
"""Networks below which a cell says how many it rests on."""


@dataclass(frozen=True)
class CountOf:
    """So many of so many.

    Attributes:
        count: problems of which something holds.
        of: all of them.
        networks: that they are of.
    """

    count: int
    of: int
    networks: int

    @property
    def value(self) -> float:
        """Between 0 and 1; missing of nothing."""
        return self.count / self.of if self.of else nan

    @property
    def basis(self) -> str:
        """How many it is of, and of how few networks: ``of 10, on 2 networks``."""
        return f"of {self.of}{few(self.networks)}"

    def __str__(self) -> str:
        """With its counts: ``84 % (21 of 25)``."""
        return f"{100 * self.value:.0f} % ({self.count} {self.basis})" if self.of else "–"


def share(holds: pd.Series, lines: pd.DataFrame) -> CountOf:
    """On how many of some lines something holds."""
    return CountOf(int(holds.sum()), len(lines), int(lines["network"].nunique()))


def few(networks: int) -> str:
    """That a cell rests on few networks, where it does."""
    if networks >= FEW:
        return ""
    return f", on {networks} network{'s' if networks != 1 else ''}"


def plain(frame: pd.DataFrame) -> pd.DataFrame:
    """A table for programs: each share as a number, with ``_count`` and ``_of`` beside it."""
    columns = {}
    for name in frame:
        shares = [each for each in frame[name] if isinstance(each, CountOf)]
        if not shares:
            columns[name] = frame[name]
            continue
        for ending, part in (("", "value"), ("_count", "count"), ("_of", "of")):
            columns[f"{name}{ending}"] = frame[name].map(
                lambda each, part=part: getattr(each, part, nan)
            )
    return pd.DataFrame(columns)
