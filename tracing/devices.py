"""Devices by their names: the CPU, and what PyTorch calls an accelerator.

Clock, memory, streams and random state of a device, in one place: the rest of the house asks
:func:`device_of`, and never ``torch.cuda``. Memory goes by ``torch.accelerator``; events, streams
and random states by the device's own module (``torch.cuda``, ``torch.xpu``, ``torch.mps``), since
that of PyTorch 2.11 has none. ROCm calls itself ``cuda``.
"""

from __future__ import annotations

import functools
import platform
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rematbench.base.errors import ConfigError


class MemoryStatistics(NamedTuple):
    """Bytes as a caching allocator counts them: now, and the most since the peaks were reset.

    Attributes:
        allocated: in tensors, as rounded up by the allocator.
        reserved: taken from the device.
        requested: in tensors, as asked for; 0 where the allocator does not count them.
    """

    allocated: int
    reserved: int
    requested: int
    allocated_peak: int
    reserved_peak: int
    requested_peak: int


@dataclass(frozen=True, slots=True)
class Cpu:
    """The processor, which is never behind; no allocator of its counts bytes."""

    name: str = "cpu"
    rounds_to: int = 1

    def require(self) -> None:
        """It is there."""

    def hardware(self) -> str:
        """The processor's model."""
        return _cpu_name()

    def synchronize(self) -> None:
        """It is never behind."""

    def seconds_of(self, run: Callable[[], object]) -> float:
        """Wall-clock seconds of one call."""
        began = time.perf_counter()
        run()
        return time.perf_counter() - began

    def empty_cache(self) -> None:
        """It has none."""

    def get_state(self) -> Tensor:
        """Of its random generator."""
        return torch.get_rng_state()

    def set_state(self, state: Tensor) -> None:
        """Let its random generator go on from ``state``."""
        torch.set_rng_state(state)

    def forked_random(self) -> AbstractContextManager[None]:
        """Afterwards the random generator goes on as if nothing had drawn from it."""
        return _forked(range(0), self.name)


@dataclass(frozen=True, slots=True)
class Accelerator:
    """An accelerator, the current device of its kind.

    Attributes:
        name: what ``torch.device`` calls it.
        rounds_to: bytes of which its allocator gives each tensor a multiple.
    """

    name: str
    rounds_to: int = 512

    @property
    def module(self) -> Any:
        """PyTorch's module for it, ``torch.cuda`` for example."""
        return torch.get_device_module(self.name)

    def require(self) -> None:
        """Raises ConfigError, which says why, where it cannot be used or tells no memory."""
        with warnings.catch_warnings(record=True) as said:  # of an old driver, say
            warnings.simplefilter("always")
            found = torch.accelerator.current_accelerator(check_available=True)
        if found is None or found.type != self.name:
            why = "".join(f" ({_first_line(word.message)})" for word in said[:1])
            raise ConfigError(
                f"device={self.name}: PyTorch sees no {self.name.upper()} device here{why}; use "
                "device=cpu"
            )
        try:
            torch.empty(1, device=self.name)  # the allocator begins with its first tensor
        except (RuntimeError, AssertionError) as error:  # in another's exclusive use, say
            raise ConfigError(
                f"device={self.name}: the device cannot be used: {_first_line(error)}; free it, or "
                "use device=cpu"
            ) from None
        try:
            self.statistics()
            self.memory()
        except (RuntimeError, KeyError):
            raise ConfigError(
                f"device={self.name}: PyTorch {torch.__version__} keeps no memory statistics of "
                "it, so that no peak can be measured; install a later PyTorch, or use device=none"
            ) from None

    def hardware(self) -> str:
        """The device's model, ``NVIDIA H100 80GB HBM3`` for example."""
        named = getattr(self.module, "get_device_name", None)
        return f"{_cpu_name()}, {self.name.upper()}" if named is None else str(named())

    def synchronize(self) -> None:
        """Wait until it has done what it was asked."""
        torch.accelerator.synchronize()

    def seconds_of(self, run: Callable[[], object]) -> float:
        """Seconds of one call between two of its events; it is idle before."""
        start, end = (self.module.Event(enable_timing=True) for _ in range(2))
        self.synchronize()
        start.record()
        run()
        end.record()
        self.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def empty_cache(self) -> None:
        """Give back what the caching allocator holds unused."""
        torch.accelerator.empty_cache()

    def memory(self) -> tuple[int, int]:
        """Bytes of the device: free for any process, and all."""
        free, total = torch.accelerator.get_memory_info()
        return int(free), int(total)

    def limit_memory(self, most: int | None) -> None:
        """Let this process take at most ``most`` bytes; None lifts the limit.

        An allocation past it raises ``torch.OutOfMemoryError``, as on a device of that size.
        """
        share = 1.0 if most is None else min(1.0, most / self.memory()[1])
        self.module.set_per_process_memory_fraction(share)

    def reset_peaks(self) -> None:
        """The peaks of :meth:`statistics` are of what follows."""
        torch.accelerator.reset_peak_memory_stats()

    def statistics(self) -> MemoryStatistics:
        """What the caching allocator counts.

        Raises:
            KeyError: it has not allocated anything yet.
            RuntimeError: it does not count.
        """
        found = torch.accelerator.memory_stats()
        kinds = ("allocated", "reserved", "requested")
        keys = [f"{kind}_bytes.all.{of}" for of in ("current", "peak") for kind in kinds]
        return MemoryStatistics(
            *(int(found.get(k, 0) if k.startswith("requested") else found[k]) for k in keys)
        )

    def new_stream(self) -> Any:
        """A queue of its own for calls."""
        return self.module.Stream()

    def current_stream(self) -> Any:
        """The queue that calls go to."""
        return self.module.current_stream()

    def set_stream(self, stream: Any) -> None:
        """Let calls go to ``stream``."""
        self.module.set_stream(stream)

    def on(self, stream: Any) -> AbstractContextManager[None]:
        """Calls inside go to ``stream``."""
        inside: AbstractContextManager[None] = self.module.stream(stream)
        return inside

    def get_state(self) -> Tensor:
        """Of its random generator, in the host's memory."""
        state: Tensor = self.module.get_rng_state()
        return state

    def set_state(self, state: Tensor) -> None:
        """Let its random generator go on from ``state``."""
        self.module.set_rng_state(state)

    def forked_random(self) -> AbstractContextManager[None]:
        """Afterwards its random generators and the CPU's go on as if nothing had drawn."""
        return _forked(range(self.module.device_count()), self.name)


Device = Cpu | Accelerator
_DEVICES: dict[str, Device] = {
    device.name: device
    for device in (Cpu(), Accelerator("cuda"), Accelerator("xpu"), Accelerator("mps", 256))
}


def is_known(name: str) -> bool:
    """Is it the name of a device that we run on?"""
    return name in _DEVICES


def device_of(name: str) -> Device:
    """The device that ``torch.device`` calls so.

    Raises:
        ConfigError: we know none of that name.
    """
    if not is_known(name):
        raise ConfigError(f"device={name}: unknown; use {', '.join(_DEVICES)} or none")
    return _DEVICES[name]


def accelerator_of(name: str) -> Accelerator | None:
    """The same; None for the CPU."""
    found = device_of(name)
    return found if isinstance(found, Accelerator) else None


def device_among(tensors: Iterable[Tensor]) -> Device:
    """The accelerator that some of the tensors are on; the CPU where none is."""
    kinds = {tensor.device.type for tensor in tensors} & _DEVICES.keys() - {"cpu"}
    return device_of(min(kinds, default="cpu"))


def _forked(devices: range, kind: str) -> AbstractContextManager[None]:
    forked: AbstractContextManager[None] = torch.random.fork_rng(devices, device_type=kind)
    return forked


@functools.cache
def _cpu_name() -> str:
    with_model = Path("/proc/cpuinfo")
    if with_model.exists():
        for line in with_model.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _first_line(said: object) -> str:
    return next(iter(str(said).strip().splitlines()), "")
