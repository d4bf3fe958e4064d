"""Tests run side by side, so that each process keeps to one thread."""

import logging
import os

import pytest

os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture(autouse=True)
def loggers() -> None:
    """Hydra's `disabled` logging, in commands that tests call, turns off loggers that are there."""
    for name, logger in logging.root.manager.loggerDict.items():
        if name.startswith("rematbench") and isinstance(logger, logging.Logger):
            logger.disabled = False
