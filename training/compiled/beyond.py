"""What Inductor allocates beyond a plan: learnt from a step that ran by it, kept for later runs."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import suppress
from functools import cache
from pathlib import Path

import torch

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import UnwritableError
from rematbench.base.kernels import digest
from rematbench.graphs.files import write_bytes
from rematbench.tracing.halves import Halves
from rematbench.training.compiled.options import INDUCTOR, Options

NEWS = 1024
"""Bytes above a plan that a measurement may find: scalars, which are in no plan."""
_log_user = logging.getLogger(FOR_THE_USER)
_known: dict[str, int] = {}


def beyond_of(halves: Halves, options: Options) -> int:
    """Bytes that the halves of a graph took at most above the plans they ran by.

    0 while no step has told, and where our own statements run.
    """
    if options.lower != INDUCTOR:
        return 0
    key = _key(halves)
    if key not in _known:
        _known[key] = 0 if options.cache is None else _read(_place(options.cache, key))
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
        try:
            write_bytes(_place(options.cache, key), json.dumps({"bytes": found}).encode())
        except UnwritableError as error:
            _log_user.warning("what Inductor allocates is not kept: %s", error)
    return True


def forget() -> None:
    """Nothing is known but what is kept on disk."""
    _known.clear()


def _place(cache: Path, key: str) -> Path:
    return cache / "beyond" / f"{key}.json"


def _read(place: Path) -> int:
    with suppress(OSError, ValueError, KeyError, TypeError):
        found = json.loads(place.read_bytes())["bytes"]
        if type(found) is int and found >= 0:
            return found
    return 0


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
