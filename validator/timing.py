"""How long a step takes beside an eager step, and how surely that is known.

Plan and eager training run in turns. What else the machine does then slows both steps of a turn,
so that their ratio says more than either of them. Turns go on until the 95 % interval of the median
ratio is narrow enough.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from math import comb, inf

CONFIDENCE = 0.95
SPIKE = 3.0
"""An eager step is a spike above the upper quartile by so many interquartile ranges ..."""
LEAST_SPIKE = 1.1
"""... and above the median by this factor: steps of a quiet machine hardly differ."""
FEWEST_TURNS = 3
"""Where time is short."""


@dataclass(frozen=True)
class Timing:
    """How long to go on.

    Attributes:
        repeats: turns at least.
        within: relative half width of the interval that is good enough; None: ``repeats`` turns.
        seconds: in which they end, if there are :data:`FEWEST_TURNS`.
    """

    repeats: int = 5
    within: float | None = None
    seconds: float = inf

    def enough(self, planned: Sequence[Sequence[float]], eager: Sequence[float]) -> bool:
        """Have these turns, of some plans and of eager training, said enough?"""
        if len(eager) < self.repeats:
            return False
        if self.within is None:
            return True
        ratios = (Ratio.of(each, eager) for each in planned)
        return all(ratio.half_width <= self.within for ratio in ratios)


@dataclass(frozen=True)
class Ratio:
    """Seconds of a plan's step over those of the eager step beside it.

    Attributes:
        median: over the turns that count.
        low, high: the 95 % interval of the median, from order statistics: no distribution is
            assumed. With fewer than six turns, the least and the largest ratio.
        turns: that count; ``spikes``: that do not, since the eager step beside was one.
    """

    median: float
    low: float
    high: float
    turns: int
    spikes: int

    @classmethod
    def of(cls, planned: Sequence[float], eager: Sequence[float]) -> Ratio:
        """Of as many steps of both, in turns."""
        quiet = quiet_turns(eager)
        ratios = sorted(planned[turn] / eager[turn] for turn in quiet)
        rank = _rank(len(ratios))
        return cls(
            statistics.median(ratios),
            ratios[rank],
            ratios[-1 - rank],
            len(ratios),
            len(eager) - len(quiet),
        )

    @property
    def half_width(self) -> float:
        """Of the interval, relative to the median; infinite with fewer than six turns."""
        if self.turns < _LEAST_TURNS:
            return inf
        return max(self.high - self.median, self.median - self.low) / self.median

    @property
    def overhead(self) -> tuple[float, float]:
        """The interval, as overheads."""
        return self.low - 1, self.high - 1


def quiet_turns(eager: Sequence[float]) -> list[int]:
    """Turns whose eager step is no spike: else something had the machine for a moment."""
    if len(eager) < 4:
        return list(range(len(eager)))
    low, median, high = statistics.quantiles(eager, n=4, method="inclusive")
    most = max(high + SPIKE * (high - low), LEAST_SPIKE * median)
    return [turn for turn, seconds in enumerate(eager) if seconds <= most]


def _rank(count: int) -> int:
    """How many of the least values are below the interval of the median of ``count``."""
    tail, rank = 0.0, -1
    while tail + comb(count, rank + 1) / 2**count <= (1 - CONFIDENCE) / 2:
        rank += 1
        tail += comb(count, rank) / 2**count
    return max(rank, 0)


_LEAST_TURNS = next(count for count in range(1, 99) if 2 / 2**count <= 1 - CONFIDENCE)
