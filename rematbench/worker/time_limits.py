"""When the parent stops a worker: its planner is late, its job too long, or too large."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from time import monotonic
from typing import Any

from rematbench.jobs.settings import Settings
from rematbench.rows.row import Outcome
from rematbench.worker import process_memory
from rematbench.worker.serve import PATROL

# No planner's row is later than a share of its limit, or these seconds, by the clock that the limit
# is of (a signal has asked it to stop before): so it is killed with its worker somewhat earlier.
LATE_SHARE, LATE, MARGIN = 0.05, 1.0, 1.5 * PATROL
# With one thread the limit is in CPU seconds. A planner that waits uses none, and one beside ten
# other processes few: it is killed after so many times as long, and these seconds, by the wall
# clock. With more threads the seconds count.
PATIENT, GRACE = 12.0, 5.0
WARM_UP = "warm up"
"""How the phase is called in which kernels compile, once on a machine."""


class WorkerEnd(Exception):
    """The worker has died, or was stopped: status, reason and extras of the row.

    Attributes:
        planned: (seconds, CPU seconds) of the planner, where it was stopped at its time limit.
        is_too_large: was it stopped for its memory?
    """

    def __init__(
        self,
        status: str,
        reason: str,
        planned: tuple[float, float] | None = None,
        is_too_large: bool = False,
        **extra: Any,
    ) -> None:
        super().__init__(reason)
        self.outcome: Outcome = {"status": status, "reason": reason}
        self.planned, self.is_too_large, self.extra = planned, is_too_large, extra


@dataclass(frozen=True)
class Limits:
    """When a worker is stopped.

    Attributes:
        plan: seconds for the planner, by the wall clock.
        busy: CPU seconds for the planner.
        job: seconds for all, by the wall clock.
        memory: resident bytes, or None.
    """

    plan: float = inf
    busy: float = inf
    job: float = inf
    memory: int | None = None

    @classmethod
    def of(cls, settings: Settings) -> Limits:
        """Those of a job."""
        limit = settings.time_limit
        late = limit + max(LATE_SHARE * limit, LATE) - MARGIN
        job = settings.job_time_limit or inf
        if settings.threads == 1:
            return cls(PATIENT * limit + GRACE, late, job, settings.job_memory_limit)
        return cls(late + GRACE, inf, job, settings.job_memory_limit)


class WatchedJob:
    """A worker at one job, and its limits.

    Attributes:
        is_due: is it time to look again?
    """

    def __init__(self, pid: int, limits: Limits) -> None:
        self._pid, self._limits, self._began = pid, limits, monotonic()
        self._looked = self._began
        self._planning: tuple[float, float] | None = None  # wall clock, CPU seconds
        self._warming: float | None = None

    def enter(self, phase: str) -> None:
        """The worker says what it does from now on: warming up counts for no limit."""
        now = monotonic()
        if self._warming is not None:
            self._began += now - self._warming
        self._warming = now if phase.startswith(WARM_UP) else None
        if phase == "plan":
            self._planning = now, process_memory.cpu_seconds(self._pid)
        elif not phase.startswith("plan:"):  # news from the planner
            self._planning = None

    @property
    def is_due(self) -> bool:
        """Where messages come one after the other, it is looked at between them."""
        return monotonic() - self._looked >= PATROL

    def end(self, resident: int) -> WorkerEnd | None:
        """Why it has to be stopped now, or None.

        Args:
            resident: bytes that it holds.
        """
        self._looked = monotonic()
        limits = self._limits
        if limits.memory is not None and resident > limits.memory:
            reason = f"the job held more than job_memory_limit={limits.memory} bytes"
            return WorkerEnd("out_of_memory", reason, is_too_large=True)
        if self._planning is not None:
            seconds = self._looked - self._planning[0]
            busy = process_memory.cpu_seconds(self._pid) - self._planning[1]
            if seconds > limits.plan or busy > limits.busy:
                reason = "the planner ran on past its time limit and was stopped without a plan"
                return WorkerEnd("time_limit", reason, (seconds, busy))
        if self._warming is None and self._looked - self._began > limits.job:
            reason = f"the job ran longer than job_time_limit={limits.job:g} s"
            return WorkerEnd("time_limit", reason, job_limit=limits.job)
        return None
