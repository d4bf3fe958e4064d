"""The fast variant: search, bounds and exact programs side by side, the best plan always at hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from strategies.checkmate.relaxation import Relaxation, merged_stages
from strategies.checkmate.search import give_back, repair, search
from strategies.checkmate.space import Schedule, Space

LINEAR_COLUMNS = 35_000
"""Most columns of a linear program."""
INTEGRAL_COLUMNS = (3_000, 10_000, 35_000)
"""Most columns of the mixed-integer programs, which are solved one after the other."""


class Progress:
    """The best schedule and bound so far, and how they came about.

    Args:
        budget: in bytes.
        gap: relative gap that is good enough.
        deadline: on the clock of ``perf_counter``.
        report: told about each improvement.

    Attributes:
        best: the cheapest schedule within the budget, or None.
        leanest: the smallest peak seen, in bytes.
        bounds: per space, a proven lower bound of the cost, in the graph's unit.
        incumbents: (seconds, cost, bound) at each improvement of either.
        nodes: of all branch-and-bound trees.
        size: of the largest program.
    """

    def __init__(
        self, budget: int, gap: float, deadline: float, report: Callable[[str], None]
    ) -> None:
        self.budget, self.gap, self.deadline = budget, gap, deadline
        self.report = report
        self.started = perf_counter()
        self.best: Schedule | None = None
        self.leanest: int | None = None
        self.bounds: dict[str, float] = {}
        self.incumbents: list[tuple[float, float | None, float]] = []
        self.nodes = 0
        self.size: dict[str, int] = {}

    @property
    def bound(self) -> float:
        """The best bound, whatever its space."""
        return max(self.bounds.values(), default=0.0)
