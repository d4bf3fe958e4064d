"""Ctrl-C while a planner runs: it ends the search, and the best plan so far is returned."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Protocol


class Interruptible(Protocol):
    """A search that looks at ``interrupted`` at every good moment to stop."""

    interrupted: bool


@contextmanager
def interruptible(search: Interruptible) -> Iterator[None]:
    """An interrupt is only noted, since one raised inside a compiled kernel would break it.

    A second one is raised.
    """

    def note(number: int, frame: FrameType | None) -> None:
        if search.interrupted:
            raise KeyboardInterrupt
        search.interrupted = True

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {each: signal.signal(each, note) for each in (signal.SIGINT, signal.SIGUSR1)}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
