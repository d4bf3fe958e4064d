"""What a measurement ran on: the device as found, its driver, clocks and other users."""

from __future__ import annotations

import csv
import io
import os
import platform
import subprocess
from typing import Any

import torch

from rematbench.costmodel.device import device_name
from rematbench.rows.provenance import commit, now, versions
from rematbench.tracing.devices import accelerator_of

_FACTS = (
    "name",
    "driver_version",
    "pstate",
    "clocks.sm",
    "clocks.mem",
    "clocks.max.sm",
    "power.limit",
    "temperature.gpu",
    "memory.total",
    "memory.used",
    "compute_mode",
    "mig.mode.current",
)

_ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")


def environment(device: str) -> dict[str, Any]:
    """The report that accompanies a suite's rows; JSON data.

    Args:
        device: ``cpu`` or an accelerator's name.

    Returns:
        Device, versions, commit and time; of an accelerator also bytes of memory (all and free);
        on CUDA compute capability, what ``nvidia-smi`` says of the device (None where it is not
        installed) and ``other_processes`` on it, which make timings doubtful.
    """
    found: dict[str, Any] = {
        "device": device_name(device),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": versions(),
        "commit": commit(),
        "utc": now(),
    }
    if accelerator := accelerator_of(device):
        found["free_memory_bytes"], found["memory_bytes"] = accelerator.memory()
    return found | _cuda() if device == "cuda" else found


def _cuda() -> dict[str, Any]:
    place = torch.cuda.current_device()
    facts = torch.cuda.get_device_properties(place)
    # Its number among those that PyTorch may see is not nvidia-smi's; a device's UUID is.
    uuid = getattr(facts, "uuid", None)
    name = str(place) if uuid is None else f"GPU-{uuid}"
    smi = _ask(f"--query-gpu={','.join(_FACTS)}", name)
    users = _ask("--query-compute-apps=pid,used_memory", name)
    return {
        "capability": f"{facts.major}.{facts.minor}",
        "multiprocessors": facts.multi_processor_count,
        "cuda": torch.version.cuda,
        "architectures": torch.cuda.get_arch_list(),
        "cudnn": torch.backends.cudnn.version(),
        "nvidia_smi": dict(zip(_FACTS, smi[0], strict=True)) if smi else None,
        # One is this process, under whatever number it has outside a container.
        "other_processes": None if users is None else max(0, len(users) - 1),
        "allocator": {"backend": torch.cuda.get_allocator_backend()}
        | {key: os.environ[key] for key in _ALLOCATOR if key in os.environ},
    }


def _ask(query: str, device: str) -> list[list[str]] | None:
    """Rows of ``nvidia-smi``'s answer, or None where it gives none."""
    asked = ["nvidia-smi", f"--id={device}", query, "--format=csv,noheader"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    return [[cell.strip() for cell in row] for row in csv.reader(io.StringIO(done.stdout))]


def warnings(found: dict[str, Any]) -> list[str]:
    """What a reader of the timings must know, a line each."""
    said = []
    if found.get("other_processes"):
        said.append(
            f"{found['other_processes']} other processes use the device: timings may be off"
        )
    total, free = found.get("memory_bytes", 0), found.get("free_memory_bytes", 0)
    if free < 0.9 * total:
        said.append(f"{total - free} of the device's {total} bytes are taken: plans may not fit")
    if "capability" in found and found["nvidia_smi"] is None:
        said.append("nvidia-smi gave no answer: driver, clocks and other processes are unknown")
    return said
