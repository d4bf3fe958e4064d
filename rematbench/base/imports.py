"""Things by their dotted paths: ``package.module:name``, or ``package.module.Name``."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import sys
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError

# A path into one of these may lack ``rematbench.``, as scripts have it.
_ROOMS = frozenset(
    ("costmodel", "graphs", "report", "strategies", "streams", "training", "validator", "zoo")
)


@dataclass(frozen=True)
class Registered:
    """What another distribution registers as an entry point.

    Attributes:
        path: dotted, of what it is.
        source: the distribution.
    """

    path: str
    source: str


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """No garbage is looked for in the block, which imports: a sixth of PyTorch's time is that."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def registered_in(group: str) -> Mapping[str, Registered]:
    """What other distributions register in a group of entry points, by name; imports nothing."""
    return {
        found.name: Registered(
            found.value.replace(":", "."), found.dist.name if found.dist else found.value
        )
        for found in entry_points(group=group)
    }


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
            hint = did_you_mean(part, dir(found))
            raise ConfigError(f"{where}: {place} has no {part}; {hint}".rstrip("; "))
        found = getattr(found, part)
    return found


def _module(name: str, where: str) -> Any:
    name = _ours(name)
    writes = sys.dont_write_bytecode
    # Python takes a *.pyc for a file that has changed within its second without changing its size.
    sys.dont_write_bytecode = writes or not name.startswith("rematbench.")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name != missing and not name.startswith(f"{missing}."):
            raise _failed(name, where, error) from error  # something that it imports
        raise ConfigError(
            f"{where}: there is no module {missing}; check the name and PYTHONPATH"
        ) from None
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a module may call sys.exit(), too
        raise _failed(name, where, error) from error
    finally:
        sys.dont_write_bytecode = writes


def _ours(name: str) -> str:
    """The module's name today, where it is of a room of ours, and not of somebody else's."""
    if name.partition(".")[0] not in _ROOMS:
        return name
    theirs, ours = (_file(each) for each in (name, f"rematbench.{name}"))
    if theirs is not None and (ours is None or not theirs.samefile(ours)):
        return name
    return f"rematbench.{name}"


def _file(module: str) -> Path | None:
    try:
        spec = importlib.util.find_spec(module)
    except Exception:  # of a package around it, which says so itself when it is imported
        return None
    return Path(spec.origin) if spec is not None and spec.origin else None


def _failed(module: str, where: str, error: BaseException) -> ConfigError:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    at = f"{Path(frame.filename).name}:{frame.lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        at = f"{Path(error.filename).name}:{error.lineno}"
    said = " ".join(str(error).split())
    return ConfigError(
        f"{where}: importing {module} failed: {type(error).__name__} at {at}: {said}"
    )
