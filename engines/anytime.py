"""Anytime planning: an incumbent and a bound, improved until the gap closes or time is up.

Ctrl-C while a planner runs ends the search, and the incumbent is returned.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from types import FrameType
from typing import Any

from rematbench.base.clock import ALARMS, OutOfTime, planning_seconds
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Solution

MOST = 1e300
"""What stands for an infinite bound in files."""


class Progress:
    """What an anytime planner has found so far, and when.

    Args:
        started: by :func:`~rematbench.base.clock.planning_seconds`.
        gap: relative gap (cost - bound) / cost that is good enough.
        report: called with a few words at each improvement.
        clock: a planner that waits for another process goes by the wall clock.
        hand_over: called with each new incumbent, see :class:`~rematbench.graphs.planning.Problem`.

    Attributes:
        cost, plan: the incumbent; infinite and None without one.
        bound: the best proven lower bound of the cost; infinite: there is no plan.
        leanest: the smallest peak seen, in bytes, or None.
        incumbents: (seconds, cost or None, bound) at each improvement of either.
        interrupted: was there an interrupt?
        stopped: was it the end of the time?
    """

    def __init__(
        self,
        started: float,
        gap: float,
        report: Callable[[str], None],
        clock: Callable[[], float] = planning_seconds,
        hand_over: Callable[[Solution], None] = lambda solution: None,
    ) -> None:
        self.started, self.gap, self._report, self._clock = started, gap, report, clock
        self._hand_over = hand_over
        self.cost, self.bound = inf, 0.0
        self.plan: Plan | None = None
        self.leanest: int | None = None
        self.incumbents: list[tuple[float, float | None, float]] = []
        self.interrupted = self.stopped = False

    def see(self, peak: int) -> None:
        """Note the peak of a schedule, within the budget or not."""
        self.leanest = peak if self.leanest is None else min(self.leanest, peak)

    def offer(self, cost: float, plan: Plan) -> bool:
        """A plan within the budget: is it the new incumbent?"""
        if cost >= self.cost:
            return False
        self.cost, self.plan = cost, plan
        self._record()
        self._hand_over(Solution(plan, details=self.details()))
        return True

    def raise_bound(self, bound: float, by: float = 0.0) -> None:
        """A proven lower bound, unless it rises by less than ``by``, relatively."""
        if bound > self.bound * (1 + by):
            self.bound = bound
            self._record()

    def closed(self, bound: float | None = None) -> bool:
        """Is the gap to a bound, by default the best, good enough?"""
        bound = self.bound if bound is None else bound
        return bound == inf if self.plan is None else self.cost - bound <= self.gap * self.cost

    def rest(self) -> bool:
        """Nothing to do while the solver works, but to look for an interrupt.

        Raises:
            KeyboardInterrupt: somebody interrupted.
        """
        if self.interrupted:
            raise KeyboardInterrupt
        return False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """An interrupt ends the block if there is an incumbent.

        It is only noted, since one raised inside a compiled kernel would break it; a second one
        is raised.
        """

        def note(number: int, frame: FrameType | None) -> None:
            if self.interrupted:
                raise KeyboardInterrupt
            self.interrupted, self.stopped = True, number in ALARMS

        is_main = threading.current_thread() is threading.main_thread()
        signals = (signal.SIGINT, signal.SIGUSR1, *ALARMS) if is_main else ()
        before = {each: signal.signal(each, note) for each in signals}
        try:
            yield
        except KeyboardInterrupt:
            if self.plan is None and self.stopped:
                raise OutOfTime from None
            if self.plan is None:
                raise
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)

    def details(self) -> dict[str, Any]:
        """What goes into the row's ``extra``."""
        return {
            "incumbents": self.incumbents.copy(),
            "seconds_to_gap_5": self._seconds_to_gap(0.05),
            "seconds_to_gap_2": self._seconds_to_gap(0.02),
            "interrupted": self.interrupted and not self.stopped,
        }

    def _seconds_to_gap(self, gap: float) -> float | None:
        """When the relative gap was first at most ``gap``."""
        improved = ((s, c, bound) for s, c, bound in self.incumbents if c is not None)
        return next((s for s, c, bound in improved if c - bound <= gap * c), None)

    def _record(self) -> None:
        cost = None if self.plan is None else self.cost
        self.incumbents.append((self._clock() - self.started, cost, min(self.bound, MOST)))
        if cost and self.bound <= cost:
            self._report(f"cost {cost:.6g}, gap {1 - self.bound / cost:.2%}")
        elif cost:  # the row will say that the bound cannot be right, or that they are equal
            self._report(f"cost {cost:.6g}, bound {self.bound:.6g}")
