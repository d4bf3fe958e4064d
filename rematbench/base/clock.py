"""The clock that planners are limited by, and what ends one that does not look at it.

With one thread (``threads=1``, as in the leaderboard) a second is one of the processor's: a
planner gets as much done beside other work as alone. With more, CPU seconds of a planner that uses
one thread would not be those of one that uses all, and a second is one of the wall clock.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter, process_time
from types import FrameType

LATE, LATE_SHARE = 0.25, 0.01
"""What a planner may overrun before it is stopped: seconds, and a share of its limit."""
REPEAT = 0.5
"""Seconds until it is told again: an anytime planner notes the first time and finishes its step."""
BACKGROUND = "rematbench solver"
"""The name of a thread that may go on when its planner has ended."""
ALARMS = (signal.SIGALRM, signal.SIGPROF)
_WHOLE = ("importlib.", "numba.", "llvmlite.", "namedtuple_")
"""Modules whose calls are never broken off: what imports, what compiles kernels and runs them."""


class OutOfTime(BaseException):
    """The planner's time is up. No :class:`Exception`: planners catch those of what they call."""


def available_threads() -> int:
    """As many as the job has (``threads=``), or the cores that this process may use."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isdigit() and int(given):
        return int(given)
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def cpu_seconds() -> float:
    """Of this process and of those that it waited for, such as a solver's."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return process_time() + ended.ru_utime + ended.ru_stime


def planning_seconds() -> float:
    """Now, in seconds since some moment: only differences mean something."""
    return cpu_seconds() if available_threads() == 1 else perf_counter()


@contextmanager
def stopped_after(limit: float) -> Iterator[None]:
    """Raise :class:`OutOfTime` in the block when it overruns, if it is in the main thread.

    Args:
        limit: seconds of :func:`planning_seconds`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    block = sys._getframe(2)  # above this function and the context manager that it becomes

    def stop(number: int, frame: FrameType | None) -> None:
        caller = _caller_of_whole(frame, block)
        if caller is None:
            raise OutOfTime
        if caller.f_trace is None:
            _raise_in(caller)

    timer = signal.ITIMER_PROF if available_threads() == 1 else signal.ITIMER_REAL
    before = {each: signal.signal(each, stop) for each in ALARMS}
    signal.setitimer(timer, min(limit + LATE + LATE_SHARE * limit, threading.TIMEOUT_MAX), REPEAT)
    try:
        yield
    finally:
        signal.setitimer(timer, 0.0)
        for each, handler in before.items():
            signal.signal(each, handler)


def _caller_of_whole(frame: FrameType | None, block: FrameType) -> FrameType | None:
    """Who in a block called what must not be broken off, if that is under way.

    An import would leave half of a module, and of those that it imports, which no later import
    mends. Of numba's work, compiling a kernel and making the named tuple that it returns are
    meant; garbage is its work, too: LLVM's memory is given back in calls of Python's.
    """
    caller = None
    while frame is not None and frame is not block:
        if str(frame.f_globals.get("__name__")).startswith(_WHOLE):
            caller = frame.f_back
        frame = frame.f_back
    return caller


def _raise_in(caller: FrameType) -> None:
    """Raise :class:`OutOfTime` as soon as this frame goes on.

    Numba would go on with what an exception has prevented, and crash, or keep half a kernel.
    """
    before = sys.gettrace()

    def trace(frame: FrameType, event: str, argument: object) -> None:
        sys.settrace(before)
        frame.f_trace = None
        raise OutOfTime

    caller.f_trace = trace
    sys.settrace(before or (lambda *_: None))
