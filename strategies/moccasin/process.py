"""The solver's process, seen from outside: messages as they come, and its end."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryFile
from time import perf_counter, time
from typing import IO, Any

from rematbench.strategies.moccasin.instance import Instance

Message = dict[str, Any]

PATIENCE = 0.5
"""Seconds beyond the time limit after which the process is ended."""
_POLL = 0.1


def command() -> list[str]:
    """What runs in the process."""
    return [sys.executable, "-P", "-m", "rematbench.strategies.moccasin.worker"]


class SolverProcess:
    """A solver's process, at work on one instance.

    Args:
        instance: what to solve.
        seconds: how long it may take, its start included.
        threads, seed, gap: for the solver.
        start: computes within the budget, or None.

    Attributes:
        fault: how it died, where it died before it was done.
    """

    def __init__(
        self,
        instance: Instance,
        seconds: float,
        threads: int,
        seed: int,
        gap: float,
        start: list[int] | None,
    ) -> None:
        self.fault: str | None = None
        self._deadline = perf_counter() + seconds
        self._log = TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self._process = subprocess.Popen(
            command(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,  # Ctrl-C is for us to answer
        )
        self._lines: queue.Queue[str] = queue.Queue()
        listener = threading.Thread(target=self._listen, daemon=True)
        listener.start()
        asked = {"instance": instance.as_json(), "until": time() + seconds}
        self._ask(asked | {"threads": threads, "seed": seed, "gap": gap, "start": start})

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def messages(self) -> Iterator[Message | None]:
        """Every message, and None now and then while there is none.

        Ends with the process, or a little after the time limit.
        """
        while True:
            left = self._deadline + PATIENCE - perf_counter()
            if left <= 0:
                return
            try:
                line = self._lines.get(timeout=min(_POLL, left))
            except queue.Empty:
                yield None
                continue
            if not line:
                self._note_death()
                return
            message = _parsed(line)
            if message is not None:
                yield message
                if "end" in message:
                    return

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._log):
            _close(stream)

    def _ask(self, asked: Message) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # it died at once, which _listen will tell
            self._process.stdin.write(json.dumps(asked) + "\n")
            self._process.stdin.flush()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with suppress(ValueError):  # closed
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put("")

    def _note_death(self) -> None:
        code = self._process.wait()
        self._log.seek(0)
        said = [line for line in self._log.read().splitlines() if line.strip()]
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        self.fault = f"the solver's process {how}" + (f": {said[-1].strip()}" if said else "")


@contextmanager
def solving(process: SolverProcess) -> Iterator[SolverProcess]:
    """A process that is ended with the block."""
    try:
        yield process
    finally:
        process.close()


def _parsed(line: str) -> Message | None:
    """What a line says; None where a process was ended in the middle of it."""
    try:
        found: Message = json.loads(line)
    except json.JSONDecodeError:
        return None
    return found


def _close(stream: IO[str] | None) -> None:
    if stream is not None:
        with suppress(BrokenPipeError):
            stream.close()
