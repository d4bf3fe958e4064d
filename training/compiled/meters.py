"""What the halves of a compiled graph take, measured in its first steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from rematbench.costmodel.device import peak_of

Half = Callable[[Any], Any]


class Meter:
    """Measures the first forward and the first backward half that run.

    Attributes:
        wants_forward, wants_backward: is the next one still to be measured?
        peak_bytes: residents and all that this graph holds included; None before both have run.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Measure the next step."""
        self.wants_forward, self.wants_backward = True, False
        self.peak_bytes: int | None = None
        self._residents = self._forward = self._kept = 0

    def forward(self, half: Half, args: list[Any]) -> Any:
        """Run a forward half, and measure it."""
        self._residents = _bytes(args)
        device = _device(args)
        if device is None:
            return half(args)
        self.wants_forward, self.wants_backward = False, True
        result, peak, live = _measured(half, args, device)
        self._forward, self._kept = peak, live
        return result

    def backward(self, half: Half, args: list[Any], tangents: int) -> Any:
        """Run a backward half, and measure it.

        Args:
            tangents: how many of the arguments, the last ones, are tangents.
        """
        self.wants_backward = False
        device = _device(args)
        if device is None:
            self.wants_forward = True
            return half(args)
        given = _bytes(args[len(args) - tangents :])
        result, peak, _ = _measured(half, args, device)
        self.peak_bytes = self._residents + max(self._forward, self._kept + given + peak)
        return result


def _measured(half: Half, args: Any, device: str) -> tuple[Any, int, int]:
    """(result, most bytes above those before, bytes left above those before)."""
    kept: list[Any] = []
    reading = peak_of(lambda: kept.append(half(args)), device)
    return kept.pop(), reading.peak_bytes, reading.kept_bytes


def _device(args: Any) -> str | None:
    """The device to measure on; None where a profiler runs that ours would disturb."""
    found = next((a.device.type for a in args if isinstance(a, Tensor) and a.dim()), "cpu")
    return None if found == "cpu" and torch.autograd._profiler_enabled() else found


def _bytes(args: Any) -> int:
    storages = {
        storage.data_ptr(): storage.nbytes()
        for a in args
        if isinstance(a, Tensor) and (storage := a.untyped_storage()) is not None
    }
    return sum(storages.values())
