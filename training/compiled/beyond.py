"""What Inductor allocates beyond a plan: learnt from a step that ran by it, kept for later runs."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

import torch

from rematbench.base.kept_files import keep, read_kept
from rematbench.base.kernels import digest
from rematbench.tracing.halves import Halves
from rematbench.training.compiled.options import INDUCTOR, Options

NEWS = 1024
"""Bytes above a plan that a measurement may find: scalars, which are in no plan."""
_known: dict[str, int] = {}


def beyond_of(halves: Halves, options: Options) -> int:
    """Bytes that the halves of a graph took at most above the plans they ran by.

    0 while no step has told, and where our own statements run.
    """
    if options.lower != INDUCTOR:
        return 0
    key = _key(halves)
    if key not in _known:
        place = None if options.cache is None else _place(options.cache, key)
        _known[key] = (place and read_kept(place, _bytes_of, "a step tells again")) or 0
    return _known[key]


def learn(halves: Halves, options: Options, found: int) -> bool:
    """A step took so many bytes above the plan; the most of all steps is kept.

    Returns:
        Is it more than was known?
    """
    if options.lower != INDUCTOR or found <= max(NEWS, beyond_of(halves, options)):
        return False
    key = _key(halves)
    _known[key] = found
    if options.cache is not None:
        keep(_place(options.cache, key), {"bytes": found}, "what Inductor allocates is")
    return True


def forget() -> None:
    """Nothing is known but what is kept on disk."""
    _known.clear()


def _place(cache: Path, key: str) -> Path:
    return cache / "beyond" / f"{key}.json"


def _bytes_of(document: Any) -> int:
    found = document["bytes"]
    if type(found) is not int or found < 0:
        raise ValueError("it holds no number of bytes")
    return found


def _key(halves: Halves) -> str:
    """Of the graph, whatever its ops cost, and of versions."""
    graph, device = halves.captured.graph, halves.captured.device
    values = [[value.name, value.bytes, value.resident] for value in graph.values]
    ops = [
        [op.operator, op.phase.value, op.writes, op.implementations[0].reads] for op in graph.ops
    ]
    text = json.dumps([values, ops, graph.outputs, device, torch.__version__, _rules()])
    return hashlib.sha256(text.encode()).hexdigest()[:24]


@cache
def _rules() -> list[str]:
    """Hashes of the code that hands a plan to Inductor."""
    from rematbench.training.compiled import fxhalves, inductor

    files = ((each.__name__, each.__file__) for each in (fxhalves, inductor))
    return [digest(name, file) for name, file in files if file is not None]
