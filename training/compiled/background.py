"""Plans of further sizes are improved in a thread, while the loop goes on."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import Infeasible

if TYPE_CHECKING:
    from rematbench.training.compiled.planning import Planned

_warn = logging.getLogger(FOR_THE_USER)
Improve = Callable[[], "Planned | None"]
Adopt = Callable[["Planned"], None]


class Background:
    """One job after the other; what they found is adopted between two calls of the loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1, "rematbench plans")
        self._jobs: list[tuple[Future[Planned | None], weakref.WeakMethod[Adopt]]] = []

    def submit(self, improve: Improve, adopt: Adopt) -> None:
        """Improve a plan.

        Args:
            adopt: a method that takes the better plan; its object is not kept alive.
        """
        self._jobs.append((self._threads.submit(improve), weakref.WeakMethod(adopt)))

    def collect(self) -> None:
        """Hand over what has been found; what failed leaves the plan as it is."""
        done = [job for job in self._jobs if job[0].done()]
        self._jobs = [job for job in self._jobs if job not in done]
        for future, method in done:
            try:
                found = future.result()
            except Infeasible:
                continue
            except Exception as error:
                _warn.warning("rematbench: a plan is not improved: %s", error)
                continue
            adopt = method()
            if found is not None and adopt is not None:
                adopt(found)

    def wait(self) -> None:
        """Until all jobs are done."""
        for future, _ in self._jobs:
            future.exception()


BACKGROUND = Background()
