"""Kernels: functions that numba compiles, and that stay compiled on disk until they change.

Numba's own cache looks at the file of the compiled function alone, so that it would go on with a
callee, or a constant, of another file as it was. Here each kernel is kept in a folder named by the
code of its module and of all that this imports of ours; and by the named tuples of its folder,
which others may hand over: numba finds a tuple's class by its name, whatever fields it has by now.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import logging
import shutil
import threading
from collections.abc import Callable, Iterator
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

from rematbench.base.cache_dirs import FOR_THE_USER, cache_root, code_hashes, is_installed_file
from rematbench.base.code_hash import locate

Function = Callable[..., Any]
numba: Any
try:
    numba = importlib.import_module("numba")
except ImportError as error:  # it is not there, or does not know NumPy's latest release
    numba = None
    _why = "numba cannot be imported (%s): planners run as plain Python, many times slower"
    logging.getLogger(FOR_THE_USER).warning(_why, error)
Inner = TypeVar("Inner", bound=Function)
# Versions of a module's kernels that are kept, the latest ones.
_KEPT = 5


def kernel(function: Function) -> Function:
    """Compile a function with ``numba.njit``; it may call other kernels, of any module, not itself.

    Other threads may run meanwhile: HiGHS asks Python now and then whether to stop, and would wait.
    """
    return _compiled(function, _folder(function.__module__, function.__code__.co_filename))


def inner_kernel(function: Inner) -> Inner:
    """The same for what kernels of one module alone call: on disk it is a part of these."""
    return cast(Inner, _compiled(function, None))


def _compiled(function: Function, folder: Path | None) -> Function:
    """One dispatcher for Python, and one, without what numba puts around a function for it, for
    kernels: that takes a third as long to compile as the function.

    To kernels, a literal argument is one of its type, else numba compiles for each.

    Args:
        folder: where it is kept; None: nowhere.
    """
    if numba is None or numba.config.DISABLE_JIT:
        return _interpreted(function)
    kept = folder is not None
    njit, unliteral = numba.njit, numba.types.unliteral
    with _numba_folder(folder):
        compiled = njit(cache=kept, nogil=True, no_cfunc_wrapper=True)(function)
    with _numba_folder(folder and folder / "inner"):
        inner = njit(cache=kept, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)

    def template(args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        plain = {key: unliteral(of) for key, of in named.items()}
        return inner.get_call_template(tuple(map(unliteral, args)), plain)

    compiled.get_call_template, compiled.get_overload = template, inner.get_overload
    return cast(Function, compiled)


_inside = threading.local()


def _interpreted(function: Function) -> Function:
    """``function`` with what numba does to arguments and results: fields of records are attributes,
    and numbers come out as Python's.
    """

    @wraps(function)
    def called(*args: Any, **named: Any) -> Any:
        if getattr(_inside, "kernel", False):
            return function(*args, **named)
        _inside.kernel = True
        try:
            with np.errstate(over="ignore"):  # machine integers wrap around
                return _converted(function(*_converted(args), **named))
        finally:
            _inside.kernel = False

    return called


def _converted(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return item.view(np.recarray) if item.dtype.names else item
    if isinstance(item, np.generic) and item.dtype.names is None:
        return item.item()
    if isinstance(item, tuple):
        parts = [_converted(part) for part in item]
        return type(item)(*parts) if hasattr(item, "_fields") else tuple(parts)
    return item


@contextlib.contextmanager
def _numba_folder(folder: Path | None) -> Iterator[None]:
    """Numba chooses a function's folder when it meets the function."""
    config = numba.config
    before = config.CACHE_DIR
    config.CACHE_DIR = "" if folder is None else str(folder)
    try:
        yield
    finally:
        config.CACHE_DIR = before


@cache
def _folder(module: str, file: str) -> Path | None:
    """Where a module's kernels are kept; None where nothing can be written."""
    root = cache_root()
    if root is None:
        return None
    folder = root / f"{module}-{digest(module, file)}"
    try:
        if not folder.exists():
            folder.mkdir()
            _prune(root, module)
    except OSError:
        return None
    return folder


def _prune(root: Path, module: str) -> None:
    older = sorted(root.glob(f"{module}-*"), key=lambda place: place.stat().st_mtime)
    for place in older[:-_KEPT]:
        shutil.rmtree(place, ignore_errors=True)


def digest(module: str, file: str) -> str:
    """A hash of what a module, its folder's named tuples and all that these import of ours execute.

    Args:
        module: its full name; others of its top-level package are ours, and so is what is not
            installed at all.
        file: its path.
    """
    hashes = code_hashes()
    found: dict[str, str] = {}
    waiting = [(module, file), *_tuples_beside(module, file)]
    while waiting:
        name, path = waiting.pop()
        code = hashes.of(path)
        found[name] = code.hash
        package = name if Path(path).stem == "__init__" else name.rpartition(".")[0]
        for imported in code.imports:
            if imported.startswith("."):
                imported = importlib.util.resolve_name(imported, package)
            own = imported.partition(".")[0] == module.partition(".")[0]
            place = _located(imported) if own or not _is_installed(imported) else None
            if place is not None and imported not in found:
                found[imported] = ""
                waiting.append((imported, place))
    hashes.save()
    return hashlib.sha256(repr(sorted(found.items())).encode()).hexdigest()[:16]


def _tuples_beside(module: str, file: str) -> Iterator[tuple[str, str]]:
    """The modules of the same folder that define named tuples, with their paths."""
    package = module.rpartition(".")[0]
    for place in sorted(Path(file).parent.glob("*.py")):
        with contextlib.suppress(OSError):
            if "typing.NamedTuple" in code_hashes().of(place).imports:
                yield f"{package}.{place.stem}".lstrip("."), str(place)


@cache
def _located(module: str) -> str | None:
    place = locate(module)
    return place if place is not None and place.endswith(".py") else None


@cache
def _is_installed(module: str) -> bool:
    top = module.partition(".")[0]
    place = locate(top)
    return place is None or is_installed_file(place)
