"""A child process that runs jobs, so that a crash, a hang or exhausted memory ends as a row.

Requests and answers are lines of JSON. One worker serves many jobs: it keeps the captured model
and the imported libraries. The parent never imports torch.
"""

from __future__ import annotations

import atexit
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from time import time_ns
from typing import IO, Any

from rematbench.base.errors import ConfigError, ExecutionError
from rematbench.jobs.first_row import first_row
from rematbench.jobs.settings import Settings
from rematbench.rows.row import Row, joined, write_row
from rematbench.worker.manifest import Loaded
from rematbench.worker.postmortem import Witness
from rematbench.worker.serve import ASK, PATROL
from rematbench.worker.time_limits import Limits, WatchedJob, WorkerEnd

# Bytes of a dead worker's log that are read for its last words.
_TAIL = 64 * 1024
Message = dict[str, Any]
Say = Callable[[str], None]


class Worker:
    """The parent's end of a worker process, which is started on demand and after a death."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this)
        self._lines: queue.Queue[str] = queue.Queue()
        self._threads: int | None = None
        self._served = 0  # jobs of this process
        self._phase = ""
        self._witness = Witness(0)
        self.began = 0  # when this process did, in nanoseconds since the epoch
        self.loaded = Loaded()  # by this process, as it last said
        self._environment: dict[str, str] = {}  # as this process began

    def run(self, settings: Settings, folder: Path, say: Say) -> Row:
        """Run one job; whatever happens to the worker, there is a row.

        Args:
            say: called with the name of each phase as it begins.

        Raises:
            ConfigError: the worker found the input bad.
        """
        request: Message = {"settings": asdict(settings), "folder": str(folder.absolute())}
        limits = Limits.of(settings)
        try:
            try:
                answer = self._ask(request, settings.threads, limits, say)
            except WorkerEnd as end:
                from rematbench.jobs import handed_over  # takes NumPy along

                if end.planned is None or not handed_over.is_there(folder):
                    raise
                request["stopped"] = end.planned  # another process makes its row
                answer = self._ask(request, settings.threads, limits, say)
        except WorkerEnd as end:
            row = joined(first_row(settings), end.outcome, {"extra": end.extra})
            write_row(folder / "row.json", row)
            return row
        found: Row = answer["row"]
        return found

    def record(self, config: Mapping[str, Any], say: Say) -> str:
        """Record a training step, as ``conf/record.yaml`` lays it out; returns what to tell.

        Raises:
            ConfigError: the worker found the input bad.
            ExecutionError: it died.
        """
        try:
            answer = self._ask({"record": dict(config)}, None, Limits(), say)
        except WorkerEnd as end:
            raise ExecutionError(str(end)) from None
        return str(answer["message"])

    def stop(self) -> None:
        """End the worker process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _ask(self, request: Message, threads: int | None, limits: Limits, say: Say) -> Message:
        """A request's answer, of another process where this one says that it is not fit for it."""
        if self.loaded.changed_since(self.began) or self._is_elsewhere():
            self.stop()  # it runs what is no longer there
        request["cwd"] = os.getcwd()
        while True:
            process = self._alive(threads)
            answer = self._talk(process, request, limits, say)
            self._served += 1
            if "again" in answer or self._is_elsewhere():
                self.stop()
                continue
            if "bad" in answer:
                raise ConfigError(answer["bad"])
            return answer

    def _is_elsewhere(self) -> bool:
        """Has a variable that its last job read changed since the process began?"""
        known = ((name, self._environment.get(name)) for name in self.loaded.variables)
        return any(os.environ.get(name) != value for name, value in known)

    def _alive(self, threads: int | None) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None and threads == self._threads:
            return self._process
        self.stop()
        self._threads = threads
        self._log.seek(0)
        self._log.truncate()
        self.began, self.loaded, self._environment = time_ns(), Loaded(), dict(os.environ)
        counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _start()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                text=True,
                # A model may go through a set of words: its graph is the same in every process.
                env={"PYTHONHASHSEED": "0"} | os.environ | (counts if threads else {}),
            )
        except OSError as error:
            raise ConfigError(f"the worker process cannot be started: {error}") from None
        self._served = 0
        self._lines = queue.Queue()
        self._witness = Witness(self._process.pid)
        listener = threading.Thread(target=_listen, args=(self._process, self._lines), daemon=True)
        listener.start()
        return self._process

    def _talk(
        self, process: subprocess.Popen[str], request: Message, limits: Limits, say: Say
    ) -> Message:
        assert process.stdin is not None
        self._phase = ""
        self._witness.begin()
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return self._answer(process, limits, say)
        except BrokenPipeError:
            raise self._death(process) from None
        except KeyboardInterrupt:
            return self._interrupted(process, limits, say)

    def _answer(self, process: subprocess.Popen[str], limits: Limits, say: Say) -> Message:
        """The worker's answer.

        Raises:
            Ended: it died, or was stopped at a limit.
        """
        watch = WatchedJob(process.pid, limits)
        while True:
            line = self._next_line(process)
            if line is None or watch.is_due:
                end = watch.end(self._witness.look())
                if end is not None:
                    return self._ended(process, end)
            if line is None:
                continue
            if not line:
                raise self._death(process)
            message: Message = json.loads(line)
            if "loaded" in message:
                self.loaded = Loaded(**message["loaded"])
            if "warning" in message:
                print(f"rematbench: {message['warning']}", file=sys.stderr)
                continue
            if "phase" not in message:
                return message
            self._phase = message["phase"]
            say(self._phase)
            watch.enter(self._phase)

    def _next_line(self, process: subprocess.Popen[str]) -> str | None:
        """What the worker says next: empty at the end of its output, None: nothing for a while."""
        try:
            return self._lines.get(timeout=PATROL)
        except queue.Empty:
            if process.poll() is not None and self._lines.empty():
                raise self._death(process) from None  # its own children may hold the pipe
            return None

    def _ended(self, process: subprocess.Popen[str], end: WorkerEnd) -> Message:
        """Stop the worker at a limit; what is too large for one that served may fit another."""
        process.kill()
        process.wait()
        if end.is_too_large and self._served:  # of earlier jobs' leftovers, perhaps
            return {"again": True}
        raise end

    def _interrupted(self, process: subprocess.Popen[str], limits: Limits, say: Say) -> Message:
        """Ask an anytime planner for its best plan; any other worker is ended.

        Raises:
            KeyboardInterrupt: the worker had nothing, or the user asked again.
        """
        try:
            if self._phase.startswith("plan"):
                process.send_signal(ASK)
                return self._answer(process, limits, say)
        except (KeyboardInterrupt, WorkerEnd):
            pass
        self.stop()
        raise KeyboardInterrupt

    def _death(self, process: subprocess.Popen[str]) -> WorkerEnd:
        code = process.wait()
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - _TAIL))
        log = self._log.read().decode(errors="replace")
        outcome = self._witness.verdict(code, log, self._phase)
        return WorkerEnd(outcome["status"], outcome["reason"])


def _listen(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Pass lines on as they come; an empty one when the process has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def _start() -> str:
    """What the child runs: it looks where we look, but into the current folder last.

    There a file ``random.py`` beside somebody's model would else be what NumPy imports.
    """
    here = os.path.realpath(os.getcwd())
    path = [place for place in sys.path if os.path.realpath(place or here) != here]
    serve = "from rematbench.worker.serve import main; main()"
    return f"import sys; sys.path[:] = {[*path, here]!r}; {serve}"


_worker: Worker | None = None


def the_worker() -> Worker:
    """This process's worker."""
    global _worker
    if _worker is None:
        _worker = Worker()
        atexit.register(_worker.stop)
    return _worker
