"""Where a row comes from: versions, commit, source, time."""

from __future__ import annotations

import functools
import hashlib
import platform
import subprocess
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HOUSE = Path(__file__).resolve().parent.parent
_PACKAGES = ("rematbench", "torch", "torchvision", "numpy", "networkx", "highspy", "pyomo")
_FOLDERS = ("graphs", "costmodel", "strategies", "validator", "rematbench")


@functools.cache
def versions() -> str:
    """Python's and the main packages' versions, for example ``python 3.12.1; torch 2.13.0``."""
    found = [f"python {platform.python_version()}"]
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return "; ".join(found)


@functools.cache
def commit() -> str | None:
    """The checkout's commit, with ``-dirty`` where files differ from it; None outside git."""
    try:
        asked = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        found = subprocess.run(asked, cwd=HOUSE, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


@functools.cache
def source_hash() -> str:
    """A hash of this program's own source, so that a cache never outlives the code it ran."""
    digest = hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((HOUSE / folder).rglob("*.py")):
            digest.update(str(path.relative_to(HOUSE)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def now() -> str:
    """UTC to the second, in ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
