"""What a call will take, known before it runs: bytes of its outputs and workspace, seconds.

Calls of the same operator, geometries and options share one profile. The first such call runs
under the memory meter; before it, its output is foretold on PyTorch's ``meta`` device, and its
workspace is guessed to be as large.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rematbench.costmodel.device import device_name, peak_of, synchronize
from rematbench.tracing.devices import device_of
from rematbench.tracing.nested import tensors_in
from rematbench.tracing.storages import Geometry, geometry_of, storage_key


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """A geometry that is one object wherever it occurs, so that its hash costs nothing."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int
    dtype: torch.dtype


_forms: dict[Geometry, Form] = {}


def form_of(tensor: Tensor) -> Form:
    """The geometry of a tensor."""
    # The shape as it is: as a key, it is the tuple that it becomes in a form.
    found = _forms.get((tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype))
    if found is None:
        geometry = geometry_of(tensor)
        found = _forms[geometry] = Form(*geometry)
    return found


@dataclass(slots=True)
class Profile:
    """What one kind of call takes.

    Attributes:
        output_bytes: of its new storages.
        workspace_bytes: needed only while it runs.
        seconds: the fastest run so far.
        measured: False while the figures are foretold.
        geometry, size: of the only thing that it returns, a new tensor, and the bytes of that
            one's storage as they are counted; None and 0 of all other calls, of those whose
            results depend on their inputs' entries, and while they are not known.
    """

    output_bytes: int
    workspace_bytes: int
    seconds: float = 0.0
    measured: bool = False
    geometry: Form | None = None
    size: int = 0


class Profiles:
    """What the runtimes that share this object have learnt of each kind of call."""

    def __init__(self) -> None:
        self._tables: dict[tuple[str, int], dict[Hashable, Profile]] = {}

    def of(self, device: str) -> dict[Hashable, Profile]:
        """Those on ``device``; valid for one number of threads."""
        return self._tables.setdefault((device_name(device), torch.get_num_threads()), {})


SHARED = Profiles()
"""Of this process: what one step has learnt, the next one knows."""


def rounded(size: int, device: str) -> int:
    """Bytes that the allocator takes for a storage of ``size`` bytes."""
    unit = device_of(device).rounds_to
    return -(-size // unit) * unit


def new_bytes(result: Any, old: set[int]) -> int:
    """Bytes of the storages of ``result`` that are not among ``old`` (keys)."""
    sizes = {storage_key(t): t.untyped_storage().nbytes() for t in tensors_in(result)}
    return sum(size for key, size in sizes.items() if key not in old)


def stand_in(geometry: Form, storage_bytes: int) -> Tensor:
    """A tensor without memory, in a storage of this size."""
    dtype = geometry.dtype
    flat = torch.empty(storage_bytes // dtype.itemsize, dtype=dtype, device="meta")
    return flat.as_strided(geometry.size, geometry.stride, geometry.offset)


def foretell(call: Callable[[], Any], inputs: list[Tensor], fallback: int) -> Profile:
    """What ``call``, on stand-ins, tells of a call that was never run.

    Args:
        inputs: the stand-ins among its arguments.
        fallback: bytes of output where the operator cannot tell without data (``nonzero``).
    """
    try:
        old = {storage_key(t) for t in inputs}
        made = new_bytes(call(), old)
    except Exception:
        made = fallback
    return Profile(made, made)


def run(function: Any, args: Any, kwargs: Any, profile: Profile, device: str) -> tuple[Any, float]:
    """Call ``function`` and learn from it. Returns its result and its seconds.

    Without a measurement so far, it runs under the memory meter, unless a profiler is at work
    already (they do not nest).
    """
    if profile.measured or (device == "cpu" and torch.autograd._profiler_enabled()):
        began = time.perf_counter()
        result = function(*args, **kwargs)
        seconds = time.perf_counter() - began
        if device == "cpu":
            # Elsewhere this is the time to launch, and the first, synchronous run's counts.
            profile.seconds = min(profile.seconds or seconds, seconds)
        return result, seconds
    results: list[Any] = []
    began = time.perf_counter()
    took: list[float] = []

    def timed() -> None:
        start = time.perf_counter()
        results.append(function(*args, **kwargs))
        synchronize(device)
        took.append(time.perf_counter() - start)

    reading = peak_of(timed, device)
    profile.output_bytes = max(reading.kept_bytes, 0)
    profile.workspace_bytes = reading.peak_bytes - profile.output_bytes
    profile.seconds = took[0]
    profile.measured = True
    return results.pop(), time.perf_counter() - began
