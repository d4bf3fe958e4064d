"""Where a row comes from: versions, commit, hardware, time."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

HOUSE = Path(__file__).resolve().parents[2]
_PACKAGES = ("rematbench", "torch", "torchvision", "numpy", "networkx", "highspy", "pyomo")


@functools.cache
def versions(*more: str) -> str:
    """Python's and the main packages' versions, for example ``python 3.12.1; torch 2.13.0``.

    Args:
        more: packages besides, such as the library that a model is from.
    """
    found = [f"python {platform.python_version()}"]
    for name in (*_PACKAGES, *more):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return "; ".join(found)


@functools.cache
def commit() -> str | None:
    """The checkout's commit, with ``-dirty`` where files differ from it; None outside git.

    ``REMATBENCH_COMMIT`` says it of code that was carried to where there is no git (``make
    gpu-offline``).
    """
    if carried := os.environ.get("REMATBENCH_COMMIT"):
        return carried
    try:
        asked = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
        found = subprocess.run(asked, cwd=HOUSE, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None


@functools.cache
def hardware() -> list[str]:
    """Models of the processor and the GPUs that are visible here; found without PyTorch."""
    reports = [
        Path("/proc/cpuinfo"),
        *sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")),
    ]
    found = [os.environ.get("CUDA_VISIBLE_DEVICES", ""), platform.machine()]
    for report in reports:
        with suppress(OSError):
            lines = report.read_text(errors="replace").splitlines()
            models = (line for line in lines if line.lower().startswith("model"))
            found += dict.fromkeys(line.partition(":")[2].strip() for line in models)
    return found


@functools.cache
def machine() -> str:
    """The kind of machine: its processor and how many cores this process may use."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    models = [name for name in hardware()[2:] if not name.isdigit()]
    return f"{models[0] if models else hardware()[1]}, {cores} cores"


def now() -> str:
    """UTC to the second, in ISO 8601."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
