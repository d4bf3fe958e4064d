"""What decides a job's result besides its settings: the code that it ran.

The worker says which modules it has loaded. Those that are no installed package's, and those of
rematbench, of the strategy and of the model wherever they are, count by what they execute;
installed packages count by their versions. Files and environment variables that somebody's own
code was seen to read count by their contents (:mod:`rematbench.worker.watch`).
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from importlib.machinery import PathFinder
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from rematbench.base.cache_dirs import cache_root, code_hashes, is_installed_file
from rematbench.base.code_hash import content_hash, locate
from rematbench.base.errors import RematbenchError
from rematbench.base.json_files import read_json, write_json

HOUSE = "rematbench"
ROOMS = (
    *("", "conf", "costmodel", "engines", "graphs", "strategies"),
    *("streams", "tracing", "training", "validator", "zoo"),
)
"""Its packages that a result can depend on."""


@dataclass(frozen=True)
class Loaded:
    """What a process has loaded.

    Attributes:
        modules: the file of each module that counts by its code.
        packages: names of distributions that installed modules came with.
        files, variables: that somebody's own code read: paths, and names.
        outside: what else it looked at, in words: such a job is not kept.
    """

    modules: dict[str, str] = field(default_factory=dict)
    packages: list[str] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    variables: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def changed_since(self, began: int) -> bool:
        """Has a file of all these changed since a time in nanoseconds since the epoch?"""
        return any(changed_since(path, began) for path in (*self.modules.values(), *self.files))


@dataclass(frozen=True)
class Manifest:
    """What a result depends on; JSON data.

    Attributes:
        modules: hash of each module that Python finds by its name.
        files: hash of each other one, by its path.
        folder: the current one, where there are such others: what leads to them may be relative.
        packages: version of each distribution.
        read: hash of what each file held that somebody's own code read, or of a folder's names.
        variables: hash of each environment variable that it read; None: it was not set.
    """

    modules: dict[str, str]
    files: dict[str, str]
    folder: str | None
    packages: dict[str, str | None]
    read: dict[str, str | None] = field(default_factory=dict)
    variables: dict[str, str | None] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """A hash of all this."""
        text = json.dumps(asdict(self), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def holds(self) -> bool:
        """Is all still as it was, here?"""
        looks: tuple[tuple[Callable[[str], str | None], Mapping[str, str | None]], ...] = (
            (installed_version, self.packages),
            (_hash, self.files),
            (_hash_of_input, self.read),
            (_hash_of_variable, self.variables),
            (_hash_of_module, self.modules),
        )
        return (self.folder is None or self.folder == os.getcwd()) and all(
            look(name) == known for look, table in looks for name, known in table.items()
        )


def loaded(names: Iterable[str]) -> Loaded:
    """What this process has loaded.

    Args:
        names: of modules that count by their code although they may be installed.
    """
    own = {HOUSE, *(name.partition(".")[0] for name in names)}
    modules: dict[str, str] = {}
    tops = set()
    for name, file in _loaded_files():
        top = name.partition(".")[0]
        # What an installed package calls a module's file need not be one (torch.ops).
        home = getattr(sys.modules.get(top), "__file__", None) or file
        installed = is_installed_file(home)
        if top in own or not installed:
            modules[name] = os.path.abspath(file)
        if installed and top not in sys.stdlib_module_names:
            tops.add(top)
    known = _distributions()
    packages = {package for top in tops for package in known.get(top, ())}
    return Loaded(modules, sorted(packages))


def _loaded_files() -> Iterator[tuple[str, str]]:
    """The modules that are loaded, and their files, without Python's and pip's own names."""
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        name = spec.name if name == "__main__" and spec is not None else name
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not name.startswith("__") and not is_card(name):
            yield name, file


def manifest(of: Loaded, began: int) -> Manifest | None:
    """The manifest of what a process has loaded.

    Args:
        began: when the process did, in nanoseconds since the epoch.

    Returns:
        None where a file has changed since then: the process may have loaded what it was before.
        Nor is there one of what nobody can look up again.
    """
    modules, files = {}, {}
    if of.outside or of.changed_since(began):
        return None
    for name, file in of.modules.items():
        found = _hash(file)
        if found is None:
            return None
        if _hash_of_module(name) == found:
            modules[name] = found
        else:
            files[file] = found
    code_hashes().save()
    packages = {name: installed_version(name) for name in of.packages}
    read = {path: _hash_of_input(path) for path in of.files}
    variables = {name: _hash_of_variable(name) for name in of.variables}
    return Manifest(modules, files, os.getcwd() if files else None, packages, read, variables)


def read_manifest(document: Any) -> Manifest:
    """From JSON data.

    Raises:
        TypeError, ValueError: it is none.
    """
    made = Manifest(**document)
    parts = (made.modules, made.files, made.packages, made.read, made.variables)
    if not all(isinstance(each, dict) for each in parts):
        raise ValueError("its manifest is damaged")
    return made


def changed_since(path: str, began: int) -> bool:
    """May a file have been written, replaced or removed since a time in nanoseconds?"""
    try:
        return os.stat(path).st_ctime_ns > began  # unlike mtime, nobody can set it
    except OSError:
        return True


def house() -> dict[str, str]:
    """All modules of rematbench that a result can depend on, and their files.

    Raises:
        RematbenchError: this installation lacks some.
    """
    found: dict[str, str] = {}
    for room in ROOMS:
        package = f"{HOUSE}.{room}".rstrip(".")
        door = locate(package)
        if door is None:
            raise RematbenchError(f"{package} is missing; install rematbench again")
        found |= dict(_modules_below(package, Path(door).parent))
    return found


def is_card(module: str) -> bool:
    """Is it a strategy's card? No result depends on what pages and pictures say of a strategy."""
    return module.startswith(f"{HOUSE}.strategies.") and module.endswith(".card")


def _modules_below(package: str, folder: Path) -> Iterator[tuple[str, str]]:
    for path in folder.rglob("*.py"):
        parts = path.relative_to(folder).with_suffix("").parts
        parts = parts[:-1] if parts[-1] == "__init__" else parts
        name = ".".join([package, *parts])
        if not is_card(name):
            yield name, str(path)


def house_hash() -> str:
    """A hash of all code of rematbench that a result can depend on."""
    hashes = code_hashes()
    found = sorted((name, hashes.of(path).hash) for name, path in house().items())
    hashes.save()
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()


def _hash(path: str) -> str | None:
    try:
        return code_hashes().of(path).hash
    except OSError:
        return None


def _hash_of_input(path: str) -> str | None:
    """Of a file's bytes, or of a folder's names; None: there is nothing."""
    try:
        if os.path.isdir(path):
            return hashlib.sha256(json.dumps(sorted(os.listdir(path))).encode()).hexdigest()[:32]
        return content_hash(path)
    except OSError:
        return None


def _hash_of_variable(name: str) -> str | None:
    value = os.environ.get(name)
    encoded = None if value is None else os.fsencode(value)
    return None if encoded is None else hashlib.sha256(encoded).hexdigest()[:32]


def _hash_of_module(name: str) -> str | None:
    """Of the file that the worker would load; None where that is in doubt."""
    if name.partition(".")[0] == HOUSE:
        place = _locate_ours(name)
        return None if place is None else _hash(place)
    # It looks into the current folder last; where Python finds another first, nobody should guess.
    here = os.getcwd()
    places = {locate(name), *([locate(name, [here])] if _is_beside(name, here) else [])}
    hashes = {_hash(place) for place in places - {None} if place is not None}
    return hashes.pop() if len(hashes) == 1 else None


@functools.cache
def _locate_ours(name: str) -> str | None:
    return locate(name)


def _is_beside(name: str, folder: str) -> bool:
    return PathFinder.find_spec(name.partition(".")[0], [folder]) is not None


@functools.cache
def installed_version(distribution: str) -> str | None:
    """The version of an installed distribution; None where there is none of the name."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _distributions() -> Mapping[str, list[str]]:
    """Distributions by the top-level modules that they bring; found once per installation."""
    root = cache_root()
    memo = None if root is None else root / "distributions.json"
    key = hashlib.sha256(json.dumps(_metadata()).encode()).hexdigest()
    with suppress(RematbenchError, AttributeError, KeyError, TypeError, ValueError):
        known = read_json(memo) if memo is not None else {}
        if known["key"] == key:
            return dict(known["tops"])
    tops = {top: sorted(set(found)) for top, found in packages_distributions().items()}
    if memo is not None:
        with suppress(OSError):
            write_json(memo, {"key": key, "tops": tops})
    return tops


def _metadata() -> list[str]:
    """Where the installed distributions say what they are."""
    folders = [place for place in sys.path if is_installed_file(os.path.join(place, "x"))]
    return sorted(
        entry.path
        for place in dict.fromkeys(folders)
        if os.path.isdir(place)
        for entry in os.scandir(place)
        if entry.name.endswith((".dist-info", ".egg-info", ".egg-link"))
    )
