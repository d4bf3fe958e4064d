"""``with rematbench.budget("8GiB"):``, the budget of whatever trains within."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import Any

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import ConfigError
from rematbench.costmodel.device import NotedPeaks
from rematbench.graphs.budget import Budget, parse_budget
from rematbench.training.compiled.options import Options

_warn = logging.getLogger(FOR_THE_USER)


class BudgetWithin:
    """A context: models compiled without a ``budget`` of their own keep to this one inside.

    Attributes:
        budget: that is to be kept.
        peak_bytes: the largest peak that was measured inside; None while none was. On an
            accelerator, what its allocator has handed out at most, from entering to leaving. On the
            CPU, of each graph's first halves, and of the steps that are counted: the second one,
            and the first by each plan of a whole step.
    """

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.peak_bytes: int | None = None
        self._ran = False
        self._noted: NotedPeaks | None = None
        self._leaves: list[Callable[[], None]] = []

    def __enter__(self) -> BudgetWithin:
        global _now
        if _now is not None:
            raise ConfigError(
                f"budget({self.budget}) within budget({_now.budget}): one holds at a time, since "
                "it is the process's; leave the other one first"
            )
        self.peak_bytes, self._ran = None, False
        self._noted = NotedPeaks.of_this_process()
        _now = self
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        global _now
        try:
            for leave in self._leaves:
                leave()
            if self._noted is not None:
                self.note(self._noted.stop())
        finally:
            _now, self._leaves = None, []
        if not self._ran and error is None:
            _warn.warning(
                "rematbench: no step of a model that is compiled by "
                'torch.compile(model, backend="rematbench") has begun within budget(%s)',
                self.budget,
            )

    def note(self, peak: int | None) -> None:
        """A peak was measured."""
        if peak is not None:
            self.peak_bytes = max(peak, self.peak_bytes or 0)

    def runs(self, leave: Callable[[], None]) -> None:
        """A call has begun inside.

        Args:
            leave: ends what is counted for it.
        """
        self._ran = True
        if leave not in self._leaves:
            self._leaves.append(leave)

    def __repr__(self) -> str:
        peak = "nothing measured" if self.peak_bytes is None else f"peak {self.peak_bytes:,} bytes"
        return f"budget({self.budget}): {peak}"


_now: BudgetWithin | None = None


def budget(given: Any) -> BudgetWithin:
    """A budget for all that trains within ``with rematbench.budget("8GiB") as b:``.

    Each model that is compiled with ``backend="rematbench"`` and without a ``budget`` keeps to it
    inside, its optimizer's step included, and has none outside. ``b.peak_bytes`` tells the largest
    peak that was measured (:class:`BudgetWithin`).

    Args:
        given: bytes, ``"8GiB"``, or a fraction of ordinary training's peak.

    Raises:
        BudgetError: it is no budget.
        ConfigError: on entering, where another one holds; of a model's step, which has another
            ``budget`` of its own.
    """
    if given is None:
        raise ConfigError('budget(None): give bytes, such as "8GiB", or a fraction, such as 0.5')
    return BudgetWithin(parse_budget(given))


def options_now(given: Options, name: str) -> Options:
    """The options of a model, with the budget that holds just now.

    Raises:
        ConfigError: it has another one of its own.
    """
    holds = Budget() if _now is None else _now.budget
    if given.budget == holds or (given.budget != Budget() and _now is None):
        return given
    if given.budget == Budget():
        return replace(given, budget=holds)
    raise ConfigError(
        f"{name}: compiled with options={{'budget': {given.budget}}}, and trains within "
        f"budget({holds}); leave one of them out"
    )


def note(peak: int | None) -> None:
    """A peak was measured."""
    if _now is not None:
        _now.note(peak)


def runs(leave: Callable[[], None]) -> None:
    """A call begins; see :meth:`BudgetWithin.runs`."""
    if _now is not None:
        _now.runs(leave)
