"""An accelerator that is none: ``xpu``, by PyTorch's own interface, with its tensors on the CPU.

Every function that stands in checks its arguments against the signature of the one it replaces, so
that a call which a real device would refuse is refused here.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.overrides import TorchFunctionMode
from torch.utils._device import _device_constructors
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

NAME = "xpu"
TOTAL = 8 << 30
SEGMENT = 2 << 20


class Here(TorchFunctionMode):
    """What is asked for on the device lies on the CPU."""

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func is not torch.device:
            args, kwargs = tree_map(_here, (args, kwargs))
        if func in _device_constructors() and kwargs.get("device") is None:
            kwargs["device"] = torch.device("cpu")  # before torch.device(NAME)'s context does
        return func(*args, **kwargs)


def _here(item: Any) -> Any:
    asked = isinstance(item, str | torch.device) and str(item).partition(":")[0] == NAME
    return torch.device("cpu") if asked else item


class Allocator(TorchDispatchMode):
    """Counts the storages that live, as a caching allocator does: 512 bytes at least."""

    def __init__(self) -> None:
        super().__init__()
        self.live: dict[int, tuple[StorageWeakRef, int]] = {}
        self.peaks = dict.fromkeys(("allocated", "reserved", "requested"), 0)
        self.reserved = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.now()  # what was let go before does not count beside what is new
        for tensor in tree_leaves(out):
            if type(tensor) is torch.Tensor and tensor.device.type == "cpu":
                storage = tensor.untyped_storage()
                self.live[storage._cdata] = StorageWeakRef(storage), storage.nbytes()
        self.now()
        return out

    def now(self) -> dict[str, int]:
        self.live = {key: each for key, each in self.live.items() if not each[0].expired()}
        sizes = [size for _, size in self.live.values()]
        found = {"allocated": sum(-(-size // 512) * 512 for size in sizes), "requested": sum(sizes)}
        self.reserved = max(self.reserved, -(-found["allocated"] // SEGMENT) * SEGMENT)
        found["reserved"] = self.reserved
        self.peaks = {kind: max(peak, found[kind]) for kind, peak in self.peaks.items()}
        return found

    def statistics(self) -> dict[str, int]:
        found = {f"{kind}_bytes.all.current": size for kind, size in self.now().items()}
        return found | {f"{kind}_bytes.all.peak": size for kind, size in self.peaks.items()}

    def reset_peaks(self) -> None:
        self.peaks = self.now()

    def empty_cache(self) -> None:
        self.reserved = 0


class Event:
    """An event of a device that is never behind."""

    def __init__(self, device: Any = None, enable_timing: bool = False, **options: Any) -> None:
        assert enable_timing
        self.at: float | None = None

    def record(self) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: Event) -> float:
        assert self.at is not None
        assert end.at is not None
        return 1e3 * (end.at - self.at)


class Fake:
    """What was done to the device.

    Attributes:
        calls: names of the functions that were called.
        share: of the memory, as this process was limited to.
        patch: undone when the device goes.
    """

    def __init__(self, patch: pytest.MonkeyPatch, name: str = NAME) -> None:
        self.allocator, self.calls, self.share = Allocator(), set[str](), 1.0
        self.patch = patch
        self.stream: Any = SimpleNamespace(wait_stream=lambda other: None)
        real = getattr(torch, name)

        class Module(ModuleType):
            def __getattr__(self, attribute: str) -> Any:
                return getattr(real, attribute)

        module: Any = Module(real.__name__)
        own: dict[str, Callable[..., Any]] = {
            "get_device_name": lambda device=None: "Fake Device 9",
            "set_per_process_memory_fraction": self._limit,
            "get_rng_state": lambda device=None: torch.get_rng_state(),
            "set_rng_state": lambda state, device=None: torch.set_rng_state(state),
            "device_count": lambda: 1,
            "is_available": lambda: True,
            "current_stream": lambda device=None: self.stream,
            "set_stream": self._set_stream,
            "stream": self._on,
        }
        for attribute, fake in own.items():
            setattr(module, attribute, self._checked(getattr(real, attribute), fake))
        module.Event, module.Stream = Event, lambda: SimpleNamespace(**vars(self.stream))
        patch.setattr(torch, name, module)
        shared: dict[str, Callable[..., Any]] = {
            "current_accelerator": lambda check_available=False: torch.device(name),
            "synchronize": lambda: None,
            "memory_stats": self.allocator.statistics,
            "reset_peak_memory_stats": self.allocator.reset_peaks,
            "get_memory_info": lambda: (TOTAL // 2, TOTAL),
            "empty_cache": self.allocator.empty_cache,
        }
        for attribute, fake in shared.items():
            checked = self._checked(getattr(torch.accelerator, attribute), fake)
            patch.setattr(torch.accelerator, attribute, checked)

    def _checked(self, real: Callable[..., Any], fake: Callable[..., Any]) -> Callable[..., Any]:
        signature = inspect.signature(real)

        def called(*args: Any, **kwargs: Any) -> Any:
            signature.bind(*args, **kwargs)
            self.calls.add(real.__name__)
            return fake(*args, **kwargs)

        return called

    def _limit(self, fraction: float) -> None:
        self.share = fraction

    def _set_stream(self, stream: Any) -> None:
        self.stream = stream

    def _on(self, stream: Any) -> AbstractContextManager[None]:
        return nullcontext()


@contextmanager
def fake_device(name: str = NAME) -> Iterator[Fake]:
    """Inside, ``device=xpu`` is there."""
    torch.get_device_module.cache_clear()
    try:
        with pytest.MonkeyPatch.context() as patch:
            fake = Fake(patch, name)
            with Here(), fake.allocator:
                yield fake
    finally:
        torch.get_device_module.cache_clear()
