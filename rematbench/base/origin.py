"""Whose code an error is of, and where: what somebody can act on, in one line."""

from __future__ import annotations

import functools
import os
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]
# The rooms stand beside the package in a checkout, and in it where it is installed.
_ROOMS = (
    *("graphs", "tracing", "streams", "zoo", "costmodel", "engines", "strategies", "validator"),
    *("training", "report", "conf", "rematbench", "hydra_plugins"),
)
_SITES = frozenset(("site-packages", "dist-packages"))
_KNOWN = frozenset(
    ("torch", "torchgen", "functorch", "numpy", "numba", "hydra", "omegaconf", "rematbench")
)
_LONGEST = 600  # characters of a message


def one_line(error: BaseException) -> str:
    """An error's message on one line that any file can hold."""
    try:
        text = error.msg if isinstance(error, SyntaxError) else str(error)
    except BaseException:  # whatever somebody's __str__ does
        text = "(its message cannot be printed)"
    return printable(text)


def printable(text: object) -> str:
    """A text on one line that any terminal and file can hold: no escapes, no lone surrogates."""
    line = " ".join(str(text).encode("utf-8", "backslashreplace").decode().split())
    return "".join(c if c.isprintable() else "?" for c in line)


def accuse(error: BaseException) -> str:
    """Who raised what where: ``ValueError at mymodel.py:6 in broken: no such thing here``."""
    where, message = place(error), one_line(error)
    if len(message) > _LONGEST:
        message = f"{message[:_LONGEST]}..."
    at = f" at {where}" if where else ""
    return f"{type(error).__name__}{at}" + (f": {message}" if message else "")


def place(error: BaseException) -> str | None:
    """File, line and function where an error arose: the innermost frame in the user's own code.

    Where there is none, the innermost one that is neither Python's nor PyTorch's nor ours, such
    as a library's of models; None where there is none of those either.
    """
    return own_place(error) or _first_frame(error, _foreign)


def own_place(error: BaseException) -> str | None:
    """As :func:`place`, in the user's own code only."""
    if isinstance(error, SyntaxError) and error.filename and own(error.filename):
        return f"{shown(error.filename)}:{error.lineno or 1}"
    return _first_frame(error, own)


def _first_frame(error: BaseException, is_theirs: Callable[[str], bool]) -> str | None:
    for each in _chain(error):
        for filename, line, function in _frames(each):
            if is_theirs(filename):
                return f"{shown(filename)}:{line}" + _within(function)
    return None


@functools.cache
def own(filename: str) -> bool:
    """Is a source file the user's own: not ours, not Python's, not an installed package's?"""
    return _is_file(filename) and not _is_installed(filename) and not _ours(filename)


@functools.cache
def _foreign(filename: str) -> bool:
    """Is it an installed package's, other than PyTorch and what it calls?"""
    parts = Path(filename).parts
    return bool(_SITES.intersection(parts)) and not _KNOWN.intersection(parts)


def shown(filename: str) -> str:
    """A path as short as it can be: within its package, or below the current folder."""
    parts = Path(filename).parts
    for place, part in enumerate(parts):
        if part in _SITES:
            return os.path.join(*parts[place + 1 :])
    try:
        near = os.path.relpath(filename)
    except (OSError, ValueError):
        return filename
    return filename if near.startswith(os.pardir) else near


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error, then what it came of; each once."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or each.__context__


def _frames(error: BaseException) -> list[tuple[str, int, str]]:
    """File, line and function of each frame, innermost first."""
    walked = [
        (frame.f_code.co_filename, line, frame.f_code.co_name)
        for frame, line in traceback.walk_tb(error.__traceback__)
    ]
    return walked[::-1]


def _within(function: str) -> str:
    return "" if function.startswith("<") else f" in {function}"


def _is_file(filename: str) -> bool:
    return bool(filename) and not filename.startswith("<") and os.path.exists(filename)


def _is_installed(filename: str) -> bool:
    return bool(_SITES.intersection(Path(filename).parts)) or _is_below(filename, _python())


def _is_below(filename: str, folders: tuple[str, ...]) -> bool:
    full = os.path.realpath(filename)
    return any(full.startswith(folder + os.sep) for folder in folders)


def _ours(filename: str) -> bool:
    return _is_below(filename, (str(_PACKAGE), *(str(_PACKAGE.parent / room) for room in _ROOMS)))


@functools.cache
def _python() -> tuple[str, ...]:
    """Folders of Python's own modules."""
    paths = sysconfig.get_paths()
    return tuple(os.path.realpath(paths[key]) for key in ("stdlib", "platstdlib"))
