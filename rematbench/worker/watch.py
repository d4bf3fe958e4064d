"""What somebody's own code looks at while a job runs: files, variables, the clock, the outside.

A result depends on it, and Python tells of some of it: by audit events of files, folders, sockets
and processes; by ``os.environ``, ``time`` and the sources of random numbers that nobody seeded,
which are listened to here. What counts is what the user's own modules ask for, themselves or
through a library that they call; variables, clocks and random numbers only themselves, or through
what is Python's own or compiled. Nobody sees what a compiled library opens, or asks the system, by
itself.
"""

from __future__ import annotations

import functools
import os
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from rematbench.base.cache_dirs import is_installed_file
from rematbench.base.origin import own, shown

_FOLDERS = frozenset(("os.listdir", "os.scandir"))
# What nobody can look up again: by audit event, or by function of a module.
_OUTSIDE = {
    "socket.connect": "the network",
    "socket.getaddrinfo": "the network",
    "socket.gethostbyname": "the network",
    "subprocess.Popen": "another process",
    "os.system": "another process",
    "os.posix_spawn": "another process",
    "os.exec": "another process",
    "os.fork": "another process",
    "ctypes.dlopen": "a library of its own (ctypes)",
}
_CLOCKS = (
    *("time", "time_ns", "localtime", "gmtime", "ctime", "asctime", "strftime"),
    *("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns"),
    *("process_time", "process_time_ns", "thread_time", "thread_time_ns"),
    *("clock_gettime", "clock_gettime_ns"),
)
_NOW = frozenset(("now", "utcnow", "today"))
"""Methods of ``datetime``, which cannot be listened to: modules that name them count."""
_NOT_FILES = ("/proc/", "/sys/", "/dev/")
_READ_SOURCE = frozenset(("linecache.py", "tokenize.py"))
_NAMING = frozenset(("tempfile.py",))
"""Of Python's own modules, those that draw random names, on which no result depends."""
_CLOCK, _CHANCE = "the clock", "the system's random numbers"


@dataclass
class Seen:
    """What was looked at.

    Attributes:
        files: paths of files that were opened for reading, and of folders that were listed.
        variables: names of environment variables.
        outside: what nobody can look up again, in words, each with its place.
    """

    files: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)
    outside: set[str] = field(default_factory=set)

    def __ior__(self, other: Seen) -> Seen:
        self.files |= other.files
        self.variables |= other.variables
        self.outside |= other.outside
        return self


class Watch:
    """Notes what somebody's own code looks at; one for a process, since it cannot be taken down."""

    def __init__(self) -> None:
        self._past: list[tuple[frozenset[str], Seen]] = []
        self._now: Seen | None = None
        self._listens = False

    @contextmanager
    def during(self, targets: Iterable[str]) -> Iterator[None]:
        """A job with somebody's own code, by its dotted paths; with none, nobody listens."""
        theirs = frozenset(targets)
        if not theirs:
            yield
            return
        self._listen()
        self._now = Seen()
        self._past.append((theirs, self._now))
        try:
            yield
        finally:
            self._now = None

    def seen_by(self, targets: Iterable[str], modules: Iterable[str] = ()) -> Seen:
        """What jobs with one of these targets have looked at: a later job may use what they made.

        Args:
            modules: files of loaded modules.
        """
        theirs, found = frozenset(targets), Seen()
        for others, seen in self._past:
            if theirs & others:
                found |= seen
        if theirs:
            found.outside |= {f"the clock ({shown(f)})" for f in modules if own(f) and _dates(f)}
        return found

    def _listen(self) -> None:
        if self._listens:
            return
        self._listens = True
        sys.addaudithook(self._heard)
        variables: Any = type(os.environ)  # that of os.environb, too
        plain = variables.__getitem__

        def get(environ: Any, key: Any) -> Any:
            if self._now is not None and isinstance(key, str | bytes) and _asker(sys._getframe(1)):
                self._now.variables.add(os.fsdecode(key))
            return plain(environ, key)

        variables.__getitem__ = get
        for name in _CLOCKS:
            self._count(time, name, _CLOCK)
        self._count(os, "times", _CLOCK)
        self._listen_to_chance()

    def _listen_to_chance(self) -> None:
        """Whatever takes the system's entropy: directly, or to seed a generator without a seed."""
        for module, name in ((os, "urandom"), (os, "getrandom"), (random, "_urandom")):
            self._count(module, name, _CHANCE)  # the last: SystemRandom, secrets, NumPy's seeds
        random.seed = self._seeding(random.seed)
        seed: Any = random.Random.seed

        def seed_one(generator: random.Random, a: Any = None, *rest: Any, **kwargs: Any) -> None:
            if a is None:
                self._note(_CHANCE, sys._getframe(1))
            seed(generator, a, *rest, **kwargs)

        of: Any = random.Random
        of.seed = seed_one

    def _seeding(self, seed: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(seed)
        def listening(a: Any = None, *rest: Any, **kwargs: Any) -> None:
            if a is None:
                self._note(_CHANCE, sys._getframe(1))
            seed(a, *rest, **kwargs)

        return listening

    def _count(self, module: Any, name: str, what: str) -> None:
        if hasattr(module, name):
            setattr(module, name, _Listening(getattr(module, name), self._note, what))

    def _note(self, what: str, frame: FrameType) -> None:
        if self._now is not None and (asker := _asker(frame, _NAMING)):
            self._now.outside.add(_label(what, asker))

    def _heard(self, event: str, args: tuple[Any, ...]) -> None:
        seen = self._now
        if seen is None:
            return
        path = None
        if event == "open" and _reads(args[1], args[2]):
            path = _path(args[0])
        elif event in _FOLDERS:
            path = _path("." if args[0] is None else args[0])
        elif event in _OUTSIDE and (frame := _first_own(sys._getframe(1))):
            seen.outside.add(_label(_OUTSIDE[event], frame))
        if path is not None and _is_asked(sys._getframe(1)):
            seen.files.add(path)


class _Listening:
    """A function of Python's that is listened to; like one, it binds to no class that holds it."""

    def __init__(
        self, function: Callable[..., Any], note: Callable[[str, FrameType], None], what: str
    ) -> None:
        functools.update_wrapper(self, function)
        self._function, self._note, self._what = function, note, what

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self._note(self._what, sys._getframe(1))
        return self._function(*args, **kwargs)

    def __reduce__(self) -> str:
        return str(self._function.__name__)  # by name, as functions are pickled


def _path(given: Any) -> str | None:
    """Of a file that counts; None: it is installed, the system's, or already open."""
    if not isinstance(given, str | bytes):
        return None
    path = os.path.abspath(os.fsdecode(given))
    counts = not path.startswith(_NOT_FILES) and not is_installed_file(path)
    return path if counts else None


def _reads(mode: str | None, flags: int) -> bool:
    """Is a file's content from before asked for?"""
    if mode is not None:
        return "r" in mode or "a+" in mode
    return flags & os.O_ACCMODE != os.O_WRONLY and not flags & (os.O_TRUNC | os.O_EXCL)


def _is_asked(frame: FrameType) -> bool:
    """Do the user's modules ask for a file? Not where Python imports, or reads source."""
    filename = frame.f_code.co_filename
    if filename.startswith("<frozen importlib") or Path(filename).name in _READ_SOURCE:
        return False
    return _first_own(frame) is not None


def _first_own(frame: FrameType | None) -> FrameType | None:
    """The innermost frame in the user's own modules."""
    while frame is not None and not own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _asker(frame: FrameType | None, unless: frozenset[str] = frozenset()) -> FrameType | None:
    """The frame that asks, apart from Python's own, if it is the user's; else None.

    Args:
        unless: names of files of Python's own through which nothing counts that is asked.
    """
    while frame is not None and _is_pythons(frame.f_code.co_filename):
        if Path(frame.f_code.co_filename).name in unless:
            return None
        frame = frame.f_back
    return frame if frame is not None and own(frame.f_code.co_filename) else None


@functools.cache
def _is_pythons(filename: str) -> bool:
    if filename.startswith("<frozen"):
        return True
    parts = Path(filename).parts
    return is_installed_file(filename) and not {"site-packages", "dist-packages"} & {*parts}


def _label(what: str, frame: FrameType) -> str:
    return f"{what} ({shown(frame.f_code.co_filename)}:{frame.f_lineno})"


@functools.cache
def _dates(path: str) -> bool:
    """Does a module name ``datetime``, and its methods that read the clock?"""
    try:
        code = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError, ValueError):
        return False
    names = set(_names(code))
    return "datetime" in names and bool(_NOW & names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)
