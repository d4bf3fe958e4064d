"""Searches that end when they have found what a test asks for, however slow the machine."""

from __future__ import annotations

from collections.abc import Callable
from math import inf

AMPLE = 300.0
"""Seconds that a search may take which ends long before."""


def until(cost: float = inf, gap: float = 1.0) -> Callable[[str], None]:
    """A ``Problem.report`` that ends a search once its plan costs so much, and its gap is so small.

    >>> until(cost=10, gap=0.1)("cost 12, gap 3.00%")
    >>> until(cost=10, gap=0.1)("cost 9, gap 3.00%")
    Traceback (most recent call last):
    KeyboardInterrupt
    """

    def report(words: str) -> None:
        found, _, rest = words.removeprefix("cost ").partition(", ")
        proven = rest.startswith("gap ") and float(rest[4:].rstrip("%")) <= 100 * gap
        if words.startswith("cost ") and float(found) <= cost and (gap >= 1 or proven):
            raise KeyboardInterrupt

    return report
