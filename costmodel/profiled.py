"""Measured time and workspace of each op, one at a time, kept on disk.

Two ops with the same target, shapes, strides, dtypes and options share one profile. A profile is
valid for one device, PyTorch version and thread count, which are part of its key. On a CPU other
data is used between two runs of an op: else its inputs are in the caches, as they seldom are in a
step, and the sum over a network's ops falls short of a step's time by 8 to 30 %.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rematbench.base.cache_dirs import code_hashes
from rematbench.base.kept_files import keep, read_kept
from rematbench.base.kernels import digest
from rematbench.base.limits import MOST_BYTES
from rematbench.costmodel import device as meter
from rematbench.costmodel.costs import with_costs
from rematbench.costmodel.device import (
    device_name,
    peak_of,
    release,
    require,
    seconds_of,
    spread,
    steady_allocator,
    use_other_data,
)
from rematbench.graphs.ir import Graph
from rematbench.graphs.ops import is_collective
from rematbench.tracing.captured import (
    Captured,
    Ref,
    TensorSpec,
    TorchCall,
    call_reads,
    filled,
    target_name,
)

aten = torch.ops.aten
_log = logging.getLogger(__name__)
# Namespaces of ops that come with PyTorch.
_OF_TORCH = frozenset(("aten", "prims"))
# What the key of a profile begins with that is not kept on disk.
_FLEETING = "?"

# Timing stops at the first of: this many runs, or this many seconds (but three runs at least).
MOST_RUNS, MOST_SECONDS, FEWEST_RUNS = 15, {"cpu": 0.15}, 3
MOST_ELSEWHERE = 0.03
# On an accelerator a shorter call runs so many times in a row, so that one is launched while
# another runs, as in a step: a launch takes as long as a small kernel.
SHORT, IN_A_ROW = 1e-3, 10


def profiled(captured: Captured, device: str, cache: Path | None = None) -> Graph:
    """The captured graph with measured seconds and workspace bytes on ``device``.

    An alternative that fails here (too large for a library, or for what is free of the device's
    memory) is left out of the graph, with the optional ops that only it needs.

    Args:
        cache: directory that holds ``profiles/<device and versions>.json``.

    Raises:
        ConfigError: there is no such device.
        Exception: what an op raised that every plan must run.
    """
    require(device)
    if device == "cpu":
        steady_allocator()
    path = None if cache is None else cache / "profiles" / f"{_place(device)}.json"
    known: dict[str, list[float]] = {}
    if path is not None:
        known = read_kept(path, _profiles_of, "its ops are measured again") or {}
    had = set(known)
    state = torch.get_rng_state()
    costs, lost = _measured(captured, device, known)
    torch.set_rng_state(state)
    if path is not None and set(known) > had:
        lasting = {key: found for key, found in known.items() if key[:1] != _FLEETING}
        keep(path, lasting, "op profiles are")
    graph = _without(captured.graph, lost) if lost else captured.graph
    return with_costs(graph, costs, "second")


def _profiles_of(document: Any) -> dict[str, list[float]]:
    for seconds, workspace in document.values():
        if not (0 <= float(seconds) < math.inf and 0 <= int(workspace) <= MOST_BYTES):
            raise ValueError("it holds a profile that is none")
    found: dict[str, list[float]] = document
    return found


def _measured(
    captured: Captured, device: str, known: dict[str, list[float]]
) -> tuple[dict[tuple[str, str], tuple[float, int]], set[tuple[str, str]]]:
    """(costs of the implementations that run here, names of the others); adds to ``known``."""
    costs: dict[tuple[str, str], tuple[float, int]] = {}
    lost: set[tuple[str, str]] = set()
    failed: set[str] = set()
    for op, needed in zip(captured.graph.ops, captured.graph.needed_ops(), strict=True):
        for implementation in op.implementations:
            root = captured.code[op.name][implementation.name][0]
            key = call_key(captured, root)
            if key not in known and key not in failed:
                try:
                    known[key] = list(_profile(captured, root, device))
                except Exception as error:
                    if needed and implementation is op.implementations[0]:
                        raise
                    failed.add(key)
                    why = " ".join(str(error).split())[:200]
                    _log.warning("%s of %s is left out: %s", implementation.name, op.name, why)
                if key in failed:  # now that the error, and what it holds, is gone
                    release(device)
            if key in failed:
                lost.add((op.name, implementation.name))
            else:
                seconds, workspace = known[key]
                costs[op.name, implementation.name] = (seconds, int(workspace))
    return costs, lost


def _without(graph: Graph, lost: set[tuple[str, str]]) -> Graph:
    """``graph`` less some implementations (by names), less all that can then not run."""
    ops = []
    made = {value.name for value in graph.values if value.resident}
    for op in graph.ops:
        readable = made.union(op.writes)
        left = [
            implementation
            for implementation in op.implementations
            if (op.name, implementation.name) not in lost
            and readable.issuperset(implementation.reads)
        ]
        if left:
            ops.append(replace(op, implementations=tuple(left)))
            made.update(op.writes)
    values = tuple(value for value in graph.values if value.name in made)
    return replace(graph, values=values, ops=tuple(ops))


def _place(device: str) -> str:
    settings = {
        "device": device_name(device),
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cudnn": [torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic],
        "tf32": torch.backends.cuda.matmul.allow_tf32,
        "meter": [code_hashes().of(file).hash for file in (__file__, meter.__file__)],
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def call_key(captured: Captured, call: TorchCall) -> str:
    def describe(argument: Any) -> str:
        if isinstance(argument, Ref):
            spec = captured.tensors[argument.name]
            return f"{spec.dtype}{list(spec.shape)}{list(spec.stride)}"
        if isinstance(argument, (list, tuple)):
            return f"[{', '.join(map(describe, argument))}]"
        return target_name(argument) if callable(argument) else repr(argument)

    options = "".join(f", {key}={describe(a)}" for key, a in call.kwargs.items())
    name = f"{_code_of(call.target)}{target_name(call.target)}"
    return f"{name}({', '.join(map(describe, call.args))}{options})"


@functools.cache
def _code_of(target: Callable[..., Any]) -> str:
    """What stands before a target's name, so that another's profile is not taken for its own.

    PyTorch's own ops have nothing: their version is that of the file. A function of ours has a
    hash of its code. What anyone else's runs is not known: its profile does not outlive us.
    """
    namespace = getattr(target, "namespace", None)  # of an op that is registered with PyTorch
    if namespace is not None:
        return "" if namespace in _OF_TORCH else _FLEETING
    module = getattr(target, "__module__", None) or ""
    file = getattr(sys.modules.get(module), "__file__", None)
    if module.partition(".")[0] != "rematbench" or file is None:
        return _FLEETING
    return f"{digest(module, file)} "


def _profile(captured: Captured, call: TorchCall, device: str) -> tuple[float, int]:
    """Median seconds and workspace bytes of one call on stand-in tensors."""
    run, given = stand_in(captured, call, device)
    run()  # warms caches, and lets cuDNN and oneDNN choose their algorithms
    reading = peak_of(run, device)
    # The outputs are counted in full; what the allocator adds to them is no workspace.
    peak = reading.peak_bytes if reading.requested_bytes is None else reading.requested_bytes
    workspace = max(0, peak - _new_bytes(run(), given))
    count = IN_A_ROW if device != "cpu" and seconds_of(run, device) < SHORT else 1

    def row() -> None:
        for _ in range(count):
            run()

    seconds: list[float] = []
    most, began = MOST_SECONDS.get(device, MOST_ELSEWHERE), time.perf_counter()
    while len(seconds) < MOST_RUNS and (
        len(seconds) < FEWEST_RUNS or time.perf_counter() - began < most
    ):
        use_other_data(device)
        seconds.append(seconds_of(row, device) / count)
    return spread(seconds)[0], workspace


def _new_bytes(result: Any, given: Iterable[Tensor]) -> int:
    """Bytes of the storages in ``result``, but for those that were ``given`` (in place)."""
    tensors = result if isinstance(result, (tuple, list)) else [result]
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes()
        for tensor in tensors
        if isinstance(tensor, Tensor)
        for t in _dense(tensor)
    }
    old = {t.untyped_storage().data_ptr() for t in given}
    return sum(size for place, size in storages.items() if place not in old)


def _dense(tensor: Tensor) -> tuple[Tensor, ...]:
    """What holds a tensor's bytes: of a sparse one its indices and values."""
    return (tensor,) if tensor.layout is torch.strided else (tensor._indices(), tensor._values())


def stand_in(
    captured: Captured, call: TorchCall, device: str
) -> tuple[Callable[[], Any], Iterable[Tensor]]:
    """(the call on stand-in tensors, these tensors)."""
    tensors = _encoded(captured, call, device) | _group_ends(captured, call, device)
    bound = _index_bound(captured, call)

    def real(name: str) -> Tensor:
        if name not in tensors:
            tensors[name] = _random(captured.tensors[name], bound, device)
        return tensors[name]

    arguments, options = filled(call, real)

    def run() -> Any:
        with torch.no_grad():
            return call.target(*arguments, **options)

    def alone() -> Any:
        """No plan computes a collective again: what it costs, with other ranks, decides nothing."""
        return [_random(captured.tensors[out], 1, device) for out in call.outs if out is not None]

    return (alone if is_collective(call.operator) else run), tensors.values()


def _encoded(captured: Captured, call: TorchCall, device: str) -> dict[str, Tensor]:
    """Stand-ins for sparse encodings: random bytes would be no encoding, and empty ones free."""
    made: dict[str, Tensor] = {}
    for name in sorted({*call_reads(call), *filter(None, call.outs)}):
        op = next((op.name for op in captured.graph.ops if name in op.writes), "")
        traits = captured.traits.get((op, "default"))
        if name in made or traits is None or traits.density == 1.0:
            continue
        encode = captured.code[op]["default"][0]
        (source,) = call_reads(encode)
        dense = _sparse(captured.tensors[source], traits.density, device)
        if encode is call:
            return {source: dense}
        results = encode.target(dense, *encode.args[1:])
        made |= {out: result for out, result in zip(encode.outs, results, strict=True) if out}
    return made


def _group_ends(captured: Captured, call: TorchCall, device: str) -> dict[str, Tensor]:
    """A stand-in for where the groups of a grouped product end: the first has all of it.

    The sizes of groups are data; so they take the most memory.
    """
    if getattr(call.target, "overloadpacket", None) is not aten._grouped_mm:
        return {}
    ends = call.args[2] if len(call.args) > 2 else call.kwargs.get("offs")
    if not isinstance(ends, Ref):
        return {}
    first, second = (captured.tensors[argument.name].shape for argument in call.args[:2])
    length = second[1] if len(first) == 3 else first[0 if len(second) == 3 else 1]
    spec = captured.tensors[ends.name]
    return {ends.name: torch.full(spec.shape, length, dtype=spec.dtype, device=device)}


def _sparse(spec: TensorSpec, density: float, device: str) -> Tensor:
    """Random entries, of which at most ``density`` are not zero."""
    dense = _random(spec, 1, device)
    kept = torch.rand(dense.shape, device=device) < density * 0.98
    return dense.mul_(kept)


def _random(spec: TensorSpec, bound: int, device: str) -> Tensor:
    # Filled flat, then shaped: an expanded tensor's entries share memory.
    extent = 1 + sum((n - 1) * step for n, step in zip(spec.shape, spec.stride, strict=True))
    flat = torch.empty(max(extent, 0), dtype=spec.dtype, device=device)
    if spec.dtype is torch.bool:
        flat.random_(0, 2)
    elif spec.dtype.is_complex:
        flat.fill_(1)
    elif spec.dtype.is_floating_point:
        # Away from 0 and from denormals: roots, logarithms and quotients stay ordinary.
        flat.uniform_(0.5, 1.5)
    elif bound == 1:
        flat.zero_()
    else:
        flat.random_(0, bound)
    return flat.as_strided(spec.shape, spec.stride)


_INDEXED = {
    aten.embedding: (0, slice(1)),
    aten.nll_loss_forward: (0, slice(1, 2)),
    aten.nll_loss2d_forward: (0, slice(1, 2)),
    aten.nll_loss_backward: (1, slice(1, 2)),
    aten.nll_loss2d_backward: (1, slice(1, 2)),
    aten.max_pool2d_with_indices_backward: (0, slice(-2, None)),
    aten.max_pool3d_with_indices_backward: (0, slice(-3, None)),
}
"""Which argument an op's indices point into, and along which of its axes."""


def _index_bound(captured: Captured, call: TorchCall) -> int:
    """One more than the largest index that is valid in the integer arguments of ``call``."""

    def shape(position: int) -> tuple[int, ...]:
        argument = call.args[position]
        assert isinstance(argument, Ref)
        return captured.tensors[argument.name].shape

    packet = getattr(call.target, "overloadpacket", None)
    if packet in _INDEXED:
        argument, axes = _INDEXED[packet]
        return math.prod(shape(argument)[axes])
    if packet is aten.embedding_dense_backward:
        return int(call.args[2])
    if packet in (aten.gather, aten.scatter, aten.scatter_add, aten.index_select):
        return shape(0)[int(call.args[1])]
    if packet in (aten.index, aten.index_put, aten._unsafe_index, aten._unsafe_index_put):
        indices = [n for n, i in zip(shape(0), call.args[1], strict=False) if i is not None]
        return min(indices, default=1)
    return 1
