"""Why a worker died: what its exit code, its last words and the memory around it say."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from math import inf

from rematbench.base.origin import own, shown
from rematbench.base.sizes import size
from rematbench.rows.row import Outcome
from rematbench.worker import process_memory

# Memory was short where less than this part of what the worker held was left.
_SHORT = 0.05
_FRAME = re.compile(r'File "(?P<file>[^"]+)", line (?P<line>\d+) in (?P<function>.+)')
_WORDS = 60  # at most, of what a worker said last


@dataclass
class Witness:
    """What was seen of a worker while it ran.

    Attributes:
        pid: of the worker.
        most: bytes that it held at most.
        least_free: fewest bytes that were available.
        killed_before: how often the kernel had killed for lack of memory when it began.
    """

    pid: int
    most: int = 0
    least_free: float = inf
    killed_before: int | None = None

    def begin(self) -> None:
        """A job begins."""
        self.most, self.least_free, self.killed_before = 0, inf, process_memory.kills()
        self.look()

    def look(self) -> int:
        """Note the memory; returns what the worker holds."""
        held = process_memory.resident_bytes(self.pid)
        free = process_memory.available_bytes()
        self.most = max(self.most, held)
        self.least_free = min(self.least_free, inf if free is None else free)
        return held

    def verdict(self, code: int, log: str, phase: str) -> Outcome:
        """Status and reason.

        Args:
            code: the exit code; below 0 for a signal.
            log: what the worker and its libraries had printed.
            phase: what it was doing.
        """
        doing = f" during {phase!r}" if phase else ""
        if code == -signal.SIGKILL:
            return self._killed(doing)
        if code < 0:
            how = f"the worker was ended by {_name(-code)}{doing}{_crashed_in(log)}"
        else:
            how = (
                f"the worker ended itself with exit code {code}{doing}: the model's code, or a "
                "library, left the process (os._exit)"
            )
        return {"status": "failed", "reason": how + _last_words(log)}

    def _killed(self, doing: str) -> Outcome:
        held = f"it held at most {size(self.most)}"
        left = "" if self.least_free == inf else f", {size(self.least_free)} were left"
        now = process_memory.kills()
        if now is not None and self.killed_before is not None and now > self.killed_before:
            why = f"the kernel killed the worker{doing} because memory ran out: {held}{left}"
            return {"status": "out_of_memory", "reason": why}
        if self.least_free < _SHORT * self.most:
            why = f"the worker was killed{doing}, most likely because memory ran out: {held}{left}"
            return {"status": "out_of_memory", "reason": why}
        why = (
            f"the worker was killed{doing} by {_name(signal.SIGKILL)}, sent by another program "
            f"or a scheduler; memory was not short: {held}{left}"
        )
        return {"status": "failed", "reason": why}


def _name(number: int) -> str:
    try:
        return f"signal {number} ({signal.Signals(number).name})"
    except ValueError:
        return f"signal {number}"


def _crashed_in(log: str) -> str:
    """The user's line that ran when the process crashed, as faulthandler tells it."""
    _, crashed, frames = log.rpartition("(most recent call first):")
    for found in _FRAME.finditer(frames if crashed else ""):
        if own(found["file"]):
            return f" at {shown(found['file'])}:{found['line']} in {found['function'].strip()}"
    return ""


def _last_words(log: str) -> str:
    said = log.partition("Fatal Python error:")[0] or log.partition("\n")[0]
    words = said.split()[-_WORDS:]
    return f"; it last said: {' '.join(words)}" if words else ""
