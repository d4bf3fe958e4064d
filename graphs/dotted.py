"""Things by their dotted paths: ``package.module:name``, or ``package.module.Name``."""

from __future__ import annotations

import difflib
import importlib
import traceback
from pathlib import Path
from typing import Any

from rematbench.graphs.errors import ConfigError

# What stood beside everyone else's packages once, and does so in older scripts.
_ROOMS = frozenset(
    ("costmodel", "graphs", "report", "strategies", "streams", "training", "validator", "zoo")
)


def split(path: str) -> tuple[str, str]:
    """Module and name of a path; the name is empty where there is none.

    >>> split("package.module:make"), split("package.module.Class")
    (('package.module', 'make'), ('package.module', 'Class'))
    """
    if ":" in path:
        module, _, name = path.partition(":")
    else:
        module, _, name = path.rpartition(".")
    return module, name


def find(path: str, where: str) -> Any:
    """What stands at a path.

    A path into one of our rooms may lack the prefix ``rematbench.``, as in
    ``strategies.chen.ApGreedy``.

    Args:
        where: what to call it in messages: ``strategy.inner=nix``.

    Raises:
        ConfigError: it is no path, there is no such thing, or importing its module fails (with
            the file and line that say so).
    """
    place, name = split(path)
    if not all(part.isidentifier() for part in f"{place}.{name}".split(".")):
        raise ConfigError(f"{where}: give package.module:name")
    found = _module(place, where)
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part, dir(found), n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{where}: {place} has no {part}{hint}")
        found = getattr(found, part)
    return found


def _module(name: str, where: str) -> Any:
    try:
        return importlib.import_module(name)
    except Exception as error:
        if name.partition(".")[0] in _ROOMS and _is_missing(error, name):
            return _module(f"rematbench.{name}", where)
        if _is_missing(error, name):
            assert isinstance(error, ModuleNotFoundError)
            raise ConfigError(
                f"{where}: there is no module {error.name}; check the name and PYTHONPATH"
            ) from None
        frame = traceback.extract_tb(error.__traceback__)[-1]
        at = f"{Path(frame.filename).name}:{frame.lineno}"
        if isinstance(error, SyntaxError) and error.filename:
            at = f"{Path(error.filename).name}:{error.lineno}"
        said = " ".join(str(error).split())
        raise ConfigError(
            f"{where}: importing {name} failed: {type(error).__name__} at {at}: {said}"
        ) from error


def _is_missing(error: Exception, name: str) -> bool:
    """Is it the module itself that is missing, rather than something that it imports?"""
    return (
        isinstance(error, ModuleNotFoundError)
        and error.name is not None
        and (name == error.name or name.startswith(f"{error.name}."))
    )
