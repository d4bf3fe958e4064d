"""The worker's own side: requests on standard input, answers on standard output, lines of JSON.

Whatever a job raises travels to the parent as data; the process goes on.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from time import sleep
from types import FrameType
from typing import IO, Any

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.clock import BACKGROUND
from rematbench.base.errors import RematbenchError, is_out_of_memory
from rematbench.base.origin import accuse, one_line, own, place
from rematbench.worker.watch import Watch

# What tells the worker that the user wants to stop.
ASK = signal.SIGUSR1
# Seconds between two looks for the parent.
PATROL = 0.2

Message = dict[str, Any]
Say = Callable[[str], None]


class StopAsked(KeyboardInterrupt):
    """The user wants to stop. (A plain KeyboardInterrupt is the model's own.)"""


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until the parent closes the pipe, or wants a fresh process."""

    def answer(message: Message) -> None:
        answers.write(json.dumps(message) + "\n")
        answers.flush()

    home, watch = _World(), Watch()
    logging.getLogger(FOR_THE_USER).addHandler(_Forward(answer))
    for line in requests:
        request = json.loads(line)
        _forgo_bytecode(request)
        if home.is_another(request):
            answer({"again": True})
            return

        def say(phase: str, request: Message = request) -> None:
            # What a plan's process holds is told before it may be killed for its time, too.
            answer({"phase": phase} | (_loaded(request, watch) if phase == "plan" else {}))

        with watch.during(_targets(request)):
            message = done(request, say)
        answer(message | _loaded(request, watch))
        home.note(request)


class _Forward(logging.Handler):
    """Warnings for the user go to the parent, which has a screen."""

    def __init__(self, answer: Callable[[Message], None]) -> None:
        super().__init__(logging.WARNING)
        self._answer = answer

    def emit(self, record: logging.LogRecord) -> None:
        self._answer({"warning": record.getMessage()})


def _forgo_bytecode(request: Message) -> None:
    """Write no ``*.pyc`` of somebody's own modules.

    Python takes one for a module that has changed within the same second without changing its size.
    """
    if _targets(request):
        sys.dont_write_bytecode = True


def _theirs(request: Mapping[str, Any]) -> tuple[str, str, str]:
    """Dotted paths of what may be somebody's own: strategy, cost model (or ""), model (or "")."""
    from rematbench.costmodel.plugins import registered

    settings = request.get("settings", {})
    costs = registered().get(settings.get("costmodel", ""))
    target = str(_model(request).get("target") or "")
    return str(settings.get("target", "")), costs.path if costs else "", target


def done(request: Mapping[str, Any], say: Say) -> Message:
    """What comes of a request: ``row``, ``message`` (of a recording) or ``bad`` (the input is).

    Raises:
        Asked: the user wants to stop.
    """
    try:
        if "record" in request:
            from rematbench.jobs.recording import record_to_file

            return {"message": record_to_file(request["record"], say)}
        from rematbench.jobs.job import run
        from rematbench.jobs.settings import Settings

        settings, folder = Settings.read(request["settings"]), Path(request["folder"])
        return {"row": run(settings, folder, say, request.get("stopped"))}
    except StopAsked:
        raise
    except RematbenchError as error:
        return {"bad": one_line(error)}
    except BaseException as error:  # SystemExit and its like, too
        return _failed(request, error)


def _targets(request: Mapping[str, Any]) -> list[str]:
    """Dotted paths of what is somebody's own."""
    return [path for path in _theirs(request) if path and not path.startswith("rematbench.")]


def _loaded(request: Mapping[str, Any], watch: Watch) -> Message:
    """The modules that the process holds, and what was read: the parent knows what is stale."""
    from rematbench.worker.manifest import loaded

    found = loaded(_theirs(request))
    seen = watch.seen_by(_targets(request), found.modules.values())
    text = {name: sorted(each) for name, each in asdict(seen).items()}
    return {"loaded": asdict(found) | text}


def _failed(request: Mapping[str, Any], error: BaseException) -> Message:
    """The answer where something raised what it should not.

    The user's own code, or a library that cannot be imported, is bad input; anything else is a
    row that says where we failed.
    """
    is_theirs = place(error) is not None and not is_out_of_memory(error)
    if is_theirs or "record" in request:
        return {"bad": accuse(error)}
    if isinstance(error, ImportError):
        name = error.name or "a library"
        return {"bad": f"{name} cannot be imported here: {one_line(error)}; repair or install it"}
    from rematbench.jobs.job import failed_with
    from rematbench.jobs.settings import Settings

    settings, folder = Settings.read(request["settings"]), Path(request["folder"])
    return {"row": failed_with(error, settings, folder)}


class _World:
    """What a process has of its user: folder, modules, PyTorch's defaults. None may be stale."""

    def __init__(self) -> None:
        self._has_modules = False
        self._changed_by: Any = None

    def note(self, request: Mapping[str, Any]) -> None:
        """Look at what a job has left."""
        files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
        self._has_modules = any(isinstance(file, str) and own(file) for file in files)
        if _torch_defaults() not in (None, _PLAIN_DEFAULTS) and self._changed_by is None:
            self._changed_by = _model(request)

    def is_another(self, request: Mapping[str, Any]) -> bool:
        """Would a job run in another world than it should?"""
        if _folder() != request["cwd"]:
            if self._has_modules:
                return True
            self._move(request["cwd"])
        busy = BACKGROUND in (thread.name for thread in threading.enumerate())  # takes others' time
        return busy or (self._changed_by is not None and self._changed_by != _model(request))

    def _move(self, folder: str) -> None:
        os.chdir(folder)
        sys.path[-1] = folder  # where the parent put the current folder


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _model(request: Mapping[str, Any]) -> Any:
    asked = request.get("record") or request["settings"]
    return asked["model"]


# As PyTorch starts: dtype, device, gradients.
_PLAIN_DEFAULTS = ("torch.float32", "cpu", True)


def _torch_defaults() -> tuple[str, str, bool] | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_device"):
        return None
    device = str(torch.get_default_device())
    return str(torch.get_default_dtype()), device, bool(torch.is_grad_enabled())


def _leave_with(parent: int) -> None:
    """End this process, in the middle of a job, when its parent was killed."""
    while os.getppid() == parent:
        sleep(PATROL)
    os._exit(1)


def _asked(number: int, frame: FrameType | None) -> None:
    raise StopAsked


def main() -> None:
    """Run as the child."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt means
    signal.signal(ASK, _asked)
    faulthandler.enable()
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    with contextlib.suppress(OSError):  # where memory runs out, this is to go, and not the sweep
        Path("/proc/self/oom_score_adj").write_text("800")
    requests, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a model that asks for input gets none, and not our requests
    os.dup2(2, 1)  # whatever else prints goes to the log
    try:
        serve(requests, answers)
    except StopAsked:
        os._exit(130)  # without waiting for a solver's thread
    except BrokenPipeError:
        pass
