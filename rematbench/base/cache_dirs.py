"""Places: installed packages, where to keep what can be made again, whom to tell."""

from __future__ import annotations

import os
import sysconfig
import tempfile
from functools import cache
from pathlib import Path

from rematbench.base.code_hash import CodeHashes

FOR_THE_USER = "rematbench.user"
"""The logger whose warnings the commands print, whichever process they arise in."""


@cache
def is_installed_file(path: str) -> bool:
    """Does a file belong to Python, or to an installed distribution?"""
    if {"site-packages", "dist-packages"}.intersection(Path(path).parts):
        return True
    return any(path.startswith(home + os.sep) for home in _standard_library())


@cache
def _standard_library() -> tuple[str, ...]:
    homes = {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")}
    return tuple(form for home in homes for form in {home, os.path.realpath(home)})


@cache
def code_hashes() -> CodeHashes:
    """This user's hashes of Python files."""
    root = cache_root()
    return CodeHashes(None if root is None else root / "code_hashes.json")


@cache
def cache_root() -> Path | None:
    """The folder for what can be made again: the first that can be written.

    These are: numba's own (``NUMBA_CACHE_DIR``), the package's, the user's, a temporary one.
    """
    own = os.environ.get("NUMBA_CACHE_DIR")
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    places = [
        *([Path(own) / "rematbench"] if own else []),
        Path(__file__).parent / "__pycache__" / "kernels",
        Path(home) / "rematbench" / "kernels",
        _temporary(),
    ]
    return next((place for place in places if _is_writable(place)), None)


def _temporary() -> Path:
    return Path(tempfile.gettempdir()) / f"rematbench-{os.getuid()}"


def _is_writable(place: Path) -> bool:
    try:
        if place == _temporary():  # whoever could write there could make us run anything
            place.mkdir(mode=0o700, exist_ok=True)
            found = place.lstat()
            if found.st_uid != os.getuid() or found.st_mode & 0o022:
                return False
        place.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=place).close()
    except OSError:
        return False
    return True
