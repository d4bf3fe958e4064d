"""A child process that runs jobs, so that a crash, a hang or exhausted memory ends as a row.

Requests and answers are lines of JSON. One worker serves many jobs: it keeps the captured model
and the imported libraries. The parent never imports torch.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import asdict
from math import inf
from pathlib import Path
from time import monotonic, sleep, time_ns
from typing import IO, Any

from rematbench.graphs.errors import ConfigError, RematbenchError
from rematbench.job import first_row, run
from rematbench.manifest import Loaded, changed_since, loaded
from rematbench.mistakes import one_line
from rematbench.row import Row, write_row
from rematbench.settings import Settings

# Seconds past the planner's own time limit before the worker is killed.
GRACE = 15.0
# Seconds between two looks at a running worker.
PATROL = 0.2
# What tells the worker that the user wants to stop.
ASK = signal.SIGUSR1


class Worker:
    """The parent's end of a worker process, which is started on demand and after a death."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (lives as long as this)
        self._lines: queue.Queue[str] = queue.Queue()
        self._threads: int | None = None
        self._served = 0  # jobs of this process
        self.began = 0  # when this process did, in nanoseconds since the epoch
        self.loaded = Loaded()  # by this process, as it last said

    def run(self, settings: Settings, folder: Path, say: Callable[[str], None]) -> Row:
        """Run one job; whatever happens to the worker, there is a row.

        Args:
            say: called with the name of each phase as it begins.

        Raises:
            ConfigError: the worker found the input bad.
        """
        if any(changed_since(path, self.began) for path in self.loaded.modules.values()):
            self.stop()  # it runs what is no longer there
        process = self._alive(settings.threads)
        assert process.stdin is not None
        request = {"settings": asdict(settings), "folder": str(folder.absolute())}
        try:
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            answer = self._answer(process, settings, folder, say)
        except BrokenPipeError:
            answer = None
        except KeyboardInterrupt:
            answer = self._interrupted(process, settings, folder, say)
        if answer is None:
            answer = {"row": self._death(process, settings, folder)}
        self._served += 1
        if "again" in answer:
            return self.run(settings, folder, say)
        if "bad" in answer:
            raise ConfigError(answer["bad"])
        row: Row = answer["row"]
        return row

    def stop(self) -> None:
        """End the worker process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _alive(self, threads: int | None) -> subprocess.Popen[str]:
        if self._process is not None and self._process.poll() is None and threads == self._threads:
            return self._process
        self.stop()
        self._threads = threads
        self._log.seek(0)
        self._log.truncate()
        counts = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
        self.began, self.loaded = time_ns(), Loaded()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "rematbench.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=os.environ | (counts if threads else {}) | {"PYTHONPATH": _path()},
        )
        self._served = 0
        self._lines = queue.Queue()
        listener = threading.Thread(target=_listen, args=(self._process, self._lines), daemon=True)
        listener.start()
        return self._process

    def _answer(
        self,
        process: subprocess.Popen[str],
        settings: Settings,
        folder: Path,
        say: Callable[[str], None],
    ) -> dict[str, Any] | None:
        """The worker's answer; None when it died."""
        plan_ends, job_ends = inf, monotonic() + (settings.job_time_limit or inf)
        while True:
            left = min(plan_ends, job_ends) - monotonic()
            try:
                line = self._lines.get(timeout=max(0.0, min(left, PATROL)))
            except queue.Empty:
                too_large = self._too_large(process, settings)
                if not too_large and left > PATROL:
                    continue
                process.kill()
                process.wait()
                if too_large and self._served:  # of earlier jobs' leftovers, perhaps
                    return {"again": True}
                return {"row": _stopped(settings, folder, too_large, plan_ends <= job_ends)}
            if not line:
                return None
            message: dict[str, Any] = json.loads(line)
            if "loaded" in message:
                self.loaded = Loaded(**message["loaded"])
            if "phase" not in message:
                return message
            say(message["phase"])
            if message["phase"] == "plan":
                plan_ends = monotonic() + settings.time_limit + GRACE
            elif not message["phase"].startswith("plan:"):  # news from the planner
                plan_ends = inf

    @staticmethod
    def _too_large(process: subprocess.Popen[str], settings: Settings) -> bool:
        if settings.job_memory_limit is None:
            return False
        return resident_bytes(process.pid) > settings.job_memory_limit

    def _interrupted(
        self,
        process: subprocess.Popen[str],
        settings: Settings,
        folder: Path,
        say: Callable[[str], None],
    ) -> dict[str, Any] | None:
        """Ask an anytime planner for its best plan; any other worker dies of the question.

        Raises:
            KeyboardInterrupt: the worker had nothing, or the user asked again.
        """
        try:
            process.send_signal(ASK)
            answer = self._answer(process, settings, folder, say)
        except KeyboardInterrupt:
            answer = None
        if answer is None:
            self.stop()
            raise KeyboardInterrupt
        return answer

    def _death(self, process: subprocess.Popen[str], settings: Settings, folder: Path) -> Row:
        code = process.wait()
        self._log.seek(0)
        tail = self._log.read().decode(errors="replace").split()[-40:]
        said = f"; it last said: {' '.join(tail)}" if tail else ""
        row = first_row(settings)
        if code == -signal.SIGKILL:
            reason = "the worker was killed, most likely because memory ran out"
            row |= {"status": "out_of_memory", "reason": reason}
        else:
            how = f"signal {-code}" if code < 0 else f"exit code {code}"
            row |= {"status": "failed", "reason": f"the worker died of {how}{said}"}
        write_row(folder / "row.json", row)
        return row


def resident_bytes(pid: int) -> int:
    """Memory that a process holds; 0 where it is gone."""
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


def _stopped(settings: Settings, folder: Path, too_large: bool, planning: bool) -> Row:
    """The row of a job whose worker was stopped at one of its limits."""
    row = first_row(settings)
    if too_large:
        reason = f"the job held more than job_memory_limit={settings.job_memory_limit} bytes"
        row["status"] = "out_of_memory"
    elif planning:
        reason = f"the planner ran {GRACE:g} s past its time limit and was stopped without a plan"
        row["status"] = "time_limit"
    else:
        reason = f"the job ran longer than job_time_limit={settings.job_time_limit:g} s"
        row["status"] = "time_limit"
        row["extra"]["job_limit"] = settings.job_time_limit
    row["reason"] = reason
    write_row(folder / "row.json", row)
    return row


def _listen(process: subprocess.Popen[str], lines: queue.Queue[str]) -> None:
    """Pass lines on as they come; an empty one when the process has ended."""
    assert process.stdout is not None
    for line in process.stdout:
        lines.put(line)
    lines.put("")


def _path() -> str:
    """The child's import path: this process's, so that a model beside the user is found."""
    return os.pathsep.join(path or os.getcwd() for path in sys.path)


_worker: Worker | None = None


def the_worker() -> Worker:
    """This process's worker."""
    global _worker
    if _worker is None:
        _worker = Worker()
        atexit.register(_worker.stop)
    return _worker


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until the parent closes the pipe."""

    def answer(**message: Any) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    for line in requests:
        request = json.loads(line)
        settings = Settings(**request["settings"])
        own = [settings.target, str(settings.model.get("target") or "")]

        def say(phase: str, own: list[str] = own) -> None:
            answer(phase=phase, **({"loaded": asdict(loaded(own))} if phase == "plan" else {}))

        try:
            row = run(settings, Path(request["folder"]), say)
            answer(row=row, loaded=asdict(loaded(own)))
        except RematbenchError as error:
            answer(bad=one_line(error))


def _leave_with(parent: int) -> None:
    """End this process, in the middle of a job, when its parent was killed."""
    while os.getppid() == parent:
        sleep(PATROL)
    os._exit(1)


def main() -> None:
    """Run as the child: requests on standard input, answers on standard output."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    signal.signal(ASK, signal.default_int_handler)  # raises KeyboardInterrupt
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    with contextlib.suppress(OSError):  # where memory runs out, this is to go, and not the sweep
        Path("/proc/self/oom_score_adj").write_text("800")
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints goes to the log
    try:
        serve(sys.stdin, answers)
    except KeyboardInterrupt:
        os._exit(130)  # without waiting for a solver's thread
    except BrokenPipeError:
        pass


if __name__ == "__main__":
    main()
