"""What the halves of a compiled graph take, measured in its first steps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from rematbench.costmodel.device import peak_of
from rematbench.costmodel.levels import LevelMeter
from rematbench.tracing.storages import geometry_of, storage_key

Half = Callable[[Any], Any]


class Meter:
    """Measures the first forward and the first backward half that run.

    Attributes:
        wants_forward, wants_backward: is the next one still to be measured?
        peak_bytes: residents and all that this graph holds included; None before both have run.
        peaks: the same of each half.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Measure the next step."""
        self.wants_forward, self.wants_backward = True, False
        self.peak_bytes: int | None = None
        self.peaks = (0, 0)
        self._residents = self._forward = self._kept = 0

    def forward(self, half: Half, args: list[Any], passing: Sequence[int] = ()) -> Any:
        """Run a forward half, and measure it.

        Args:
            passing: positions of results that go at once: the caller copies them into its inputs.
        """
        self._residents = _bytes(args)
        device = _device(args)
        if device is None:
            return half(args)
        self.wants_forward, self.wants_backward = False, True
        result, peak, live = _measured(half, args, device, {})
        others = [each for place, each in enumerate(result) if place not in passing]
        left = _sizes(others).keys()
        gone = _sizes([result[place] for place in passing])
        self._forward = peak
        self._kept = live - sum(size for place, size in gone.items() if place not in left)
        return result

    def backward(
        self, half: Half, args: list[Any], tangents: int, copied: Mapping[int, int]
    ) -> Any:
        """Run a backward half, and measure it.

        Args:
            tangents: how many of the arguments, the last ones, are tangents.
            copied: bytes of storages, by address, that are being copied to the host.
        """
        self.wants_backward = False
        device = _device(args)
        if device is None:
            self.wants_forward = True
            return half(args)
        given = range(len(args) - tangents, len(args))
        others = 0 if device == "cpu" else _bytes([args[position] for position in given])

        def run(args: list[Any]) -> Any:
            nonlocal others
            if device == "cpu":
                others = _seen_to_come(args, given)
            return half(args)

        saved = {**copied, **_sizes(args[: given.start])}
        result, peak, _ = _measured(run, args, device, saved)
        both = self._forward, self._kept + others + peak
        self.peaks = self._residents + both[0], self._residents + both[1]
        self.peak_bytes = max(self.peaks)
        return result


def _seen_to_come(args: list[Any], positions: Iterable[int]) -> int:
    """Put copies in place of tensors: PyTorch's profiler sees only those go that it saw come.

    Returns:
        The bytes of those that somebody else holds, too: they stay as they are.
    """
    sharing: dict[int, list[int]] = {}
    for position in positions:
        if type(args[position]) is Tensor:
            sharing.setdefault(storage_key(args[position]), []).append(position)
    others = 0
    for each in sharing.values():
        places = [(position, geometry_of(args[position])) for position in each]
        storage = args[each[0]].untyped_storage()
        weak, storage = StorageWeakRef(storage), storage.clone()
        for position in each:
            args[position] = None
        held = torch.UntypedStorage._new_with_weak_ptr(weak.cdata)
        if held is not None:
            others += held.nbytes()
            storage = held
        for position, (size, stride, offset, dtype) in places:
            empty = torch.empty(0, dtype=dtype)
            args[position] = empty.set_(storage, offset, size, stride)
    return others


def _measured(half: Half, args: Any, device: str, known: dict[int, int]) -> tuple[Any, int, int]:
    """(result, most bytes above those before, bytes left above those before)."""
    kept: list[Any] = []
    reading = peak_of(lambda: kept.append(half(args)), device, known)
    return kept.pop(), reading.peak_bytes, reading.kept_bytes


def _device(args: Any) -> str | None:
    """The device to measure on; None where nothing counts, or another profiler runs."""
    found = next((a.device.type for a in args if isinstance(a, Tensor) and a.dim()), "cpu")
    return found if LevelMeter.can_start(found) else None


def _bytes(args: Any) -> int:
    return sum(_sizes(args).values())


def _sizes(args: Any) -> dict[int, int]:
    """Bytes of storages by address."""
    return {
        storage.data_ptr(): storage.nbytes()
        for a in args
        if isinstance(a, Tensor) and (storage := a.untyped_storage()) is not None
    }
