"""Tests run side by side, so that each process keeps to one thread."""

import gc
import logging
import os
import sys
import threading
from collections.abc import Iterator

import pytest

from rematbench.base.clock import BACKGROUND
from rematbench.worker import worker

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")

gc.disable()  # while all tests are imported, PyTorch and its libraries among what they import


def pytest_collection_finish() -> None:
    """From here on garbage is looked for again, but not among what has been imported."""
    gc.freeze()
    gc.enable()


@pytest.fixture(autouse=True, scope="session")
def forked_workers() -> Iterator[None]:
    """Workers of commands that run in this process need not import PyTorch each."""
    from forked import FORKS, Subprocess, begin_server  # and look at the environment as it is now

    if FORKS:
        begin_server()  # before a benchmark or a library begins one of its own
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker, "subprocess", Subprocess)
        yield


@pytest.fixture(autouse=True)
def loggers() -> None:
    """As in a new process: commands, launchers and libraries that tests ran may have set them.

    Hydra's `disabled` logging turns off loggers that are there; others raise the root's level.
    """
    logging.disable(logging.NOTSET)
    logging.root.setLevel(logging.WARNING)
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("rematbench") and isinstance(logger, logging.Logger):
            logger.disabled, logger.propagate = False, True
            logger.setLevel(logging.NOTSET)


@pytest.fixture(autouse=True)
def nothing_left_behind() -> None:
    """Solvers that an earlier test left behind would use up this one's CPU seconds."""
    for thread in threading.enumerate():
        if thread.name == BACKGROUND:
            thread.join()
    # A count of a compiled step ends where the next one begins; until then PyTorch's profiler runs.
    if calls := sys.modules.get("rematbench.training.compiled.calls"):
        calls.forget()
