"""What a user sees while jobs run: the phase that each is in, and how far a sweep is."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

from rematbench.cli import progress
from rematbench.rows.shown import console

# Seconds between two lines where there is no terminal.
PERIOD = 10.0


@contextmanager
def _telling(first: str) -> Iterator[Callable[[str], None]]:
    """A spinner beside the latest text; without a terminal, now and then a plain line of it."""
    if sys.stderr.isatty():
        with console().status(first) as status:
            yield status.update
        return
    latest, over, began = [first], threading.Event(), monotonic()

    def tell() -> None:
        while not over.wait(PERIOD):
            print(f"{monotonic() - began:4.0f} s  {latest[-1]}", file=sys.stderr, flush=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield latest.append
    finally:
        over.set()
        teller.join()


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Tell which phase a job is in."""
    with _telling(f"{what}: start") as tell:
        yield lambda phase: tell(f"{what}: {phase}")


@contextmanager
def following(folder: Path) -> Iterator[None]:
    """Tell how far a sweep is whose jobs run elsewhere."""
    over = threading.Event()
    with _telling(str(progress.read(folder))) as tell:

        def follow() -> None:
            while not over.wait(1.0):
                tell(str(progress.read(folder)))

        follower = threading.Thread(target=follow, daemon=True)
        follower.start()
        try:
            yield
        finally:
            over.set()
            follower.join()
