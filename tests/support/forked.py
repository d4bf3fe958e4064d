"""Workers that begin as forks of a process that has imported PyTorch, which takes seconds.

Only what is installed is imported beforehand; of rematbench, and of a test's own modules, a worker
imports what it needs, as ever. Where an environment says how Python or a library is to start, the
worker is started by Python itself, as it is for every command that a test runs in its own process;
so it is where there is a GPU, which no process may use whose parent has used it.
"""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from typing import IO, Any

import torch

IMPORTED = [
    "numba",
    "torch._inductor.compile_fx",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
]
"""Once, by the process that all of them are forked from."""
FORKS = sys.platform == "linux" and not torch.cuda.is_available()
READ_AT_THE_START = ("PYTHON", "LD_", "LC_", "LANG", "TORCH", "NUMBA", "OMP", "MKL", "CUDA")
"""Beginnings of the names of environment variables that are looked at only once."""
ENVIRONMENT = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Of the process that has imported; workers on one thread have the same."""


def begin_server() -> None:
    """Begin the process that forks; it is begun once."""
    multiprocessing.set_forkserver_preload(IMPORTED)
    before = dict(os.environ)
    os.environ.update(ENVIRONMENT)
    try:
        multiprocessing.forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)


STARTED = {name: value for name, value in os.environ.items() if name.startswith(READ_AT_THE_START)}


def is_as_started(environment: Mapping[str, str]) -> bool:
    """Would a process that starts in this environment be like one that is forked?"""
    started = {
        name: value for name, value in environment.items() if name.startswith(READ_AT_THE_START)
    }
    return ENVIRONMENT | started == STARTED | ENVIRONMENT


_BEGIN = """
import os, sys
for number, file in enumerate(files):
    os.dup2(file.fileno(), number)
    file.close()
os.environ.clear()
os.environ.update(environment)
os.chdir(folder)
sys.argv = ["-c"]
"""
# Text, since a frame of this file would be somebody's own code to the worker.


class Forked:
    """A worker: what :class:`rematbench.worker.worker.Worker` uses of ``subprocess.Popen``."""

    def __init__(self, code: str, log: IO[bytes], environment: Mapping[str, str]) -> None:
        begin_server()
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        files = [Connection(each) for each in (theirs_in, theirs_out, os.dup(log.fileno()))]
        names = {"files": files, "environment": dict(environment), "folder": os.getcwd()}
        context = multiprocessing.get_context("forkserver")
        self._process = context.Process(target=exec, args=(_BEGIN + code, names))
        self._process.start()
        for file in files:
            file.close()
        assert self._process.pid is not None
        self.pid = self._process.pid
        self.stdin, self.stdout = os.fdopen(ours_in, "w"), os.fdopen(ours_out)

    def poll(self) -> int | None:
        """The exit code, where it has ended."""
        return self._process.exitcode

    def wait(self) -> int:
        """The exit code, once it ends."""
        self._process.join()
        assert self._process.exitcode is not None
        return self._process.exitcode

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """As ``Popen`` does."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Subprocess:
    """The module ``subprocess``, for whom a worker is begun by."""

    PIPE = subprocess.PIPE

    @staticmethod
    def Popen(
        arguments: Sequence[str], *, stderr: IO[bytes], env: Mapping[str, str], **more: Any
    ) -> Any:
        """Fork where that comes to the same; start Python where it does not."""
        if FORKS and is_as_started(env):
            assert arguments[:3] == [sys.executable, "-P", "-c"]
            return Forked(arguments[3], stderr, env)
        return subprocess.Popen(arguments, stderr=stderr, env=env, **more)
