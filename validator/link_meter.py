"""How fast this machine copies to its host and back: measured once, and kept.

Measured by what copies in training, too: pinned memory and streams on CUDA, threads on a CPU.
"""

from __future__ import annotations

import functools
import hashlib
import json
from pathlib import Path
from statistics import median
from typing import Any

import torch

from rematbench.base.cache_dirs import code_hashes
from rematbench.base.kept_files import keep, read_kept
from rematbench.costmodel.device import device_name, steady_allocator
from rematbench.graphs.link import Link
from rematbench.validator import copier
from rematbench.validator.copiers import make_copier
from rematbench.validator.copies import CopyPlan

LARGE, SMALL = 2**25, 2**10
"""Bytes of the copies that give bandwidth, and of those that give latency."""
ROUNDS, COPIES = 3, 4
"""Rounds that are counted, after one that is not, and copies of each."""


@functools.cache
def measured_link(device: str, cache: Path | None) -> Link:
    """The link between a device and its host, per second.

    Args:
        device: ``cpu`` or ``cuda``.
        cache: folder that holds ``links/<device and versions>.json``; None: it is not kept.

    Raises:
        ExecutionError: the device has nothing that copies, or the host no memory.
    """
    path = None if cache is None else cache / "links" / f"{_place(device)}.json"
    found = None if path is None else read_kept(path, _link_of, "the link is measured again")
    if found is None:
        found = _measured(device)
        if path is not None:
            document = {"out": found.out, "in": found.into, "latency": found.latency}
            keep(path, document, "the link's bandwidth is")
    return found


def _measured(device: str) -> Link:
    if device == "cpu":
        steady_allocator()  # as in training: no page fault for each fetch
    latency = min(_seconds(device, SMALL))
    out, into = _seconds(device, LARGE)
    return Link(LARGE / max(out - latency, 1e-9), LARGE / max(into - latency, 1e-9), latency)


def _seconds(device: str, size: int) -> tuple[float, float]:
    """Seconds of one copy of so many bytes to the host, and back."""
    here = torch.zeros(size, dtype=torch.uint8, device=device)
    host = make_copier(CopyPlan(size, (((0, size),),) * COPIES), device)
    found: list[tuple[float, float]] = []
    for _ in range(1 + ROUNDS):
        with host:
            for number in range(COPIES):
                host.offload(number, (here,), None)
                host.wait(number)
                host.fetch(number)
                host.wait(number)
                host.drop(number)
        out, into = host.reading().seconds
        found.append((out / COPIES, into / COPIES))
    outs, intos = zip(*found[1:], strict=True)
    return median(outs), median(intos)


def _place(device: str) -> str:
    settings = {
        "devices": [device_name(device), device_name("cpu")],
        "torch": torch.__version__,
        "meter": [code_hashes().of(file).hash for file in (__file__, copier.__file__)],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _link_of(document: Any) -> Link:
    found = Link(float(document["out"]), float(document["in"]), float(document["latency"]))
    if not found.both:
        raise ValueError("it holds no bandwidth")
    return found
