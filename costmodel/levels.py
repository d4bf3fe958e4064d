"""Live bytes at marks, and the most between two of them, while other code runs on."""

from __future__ import annotations

import atexit
from contextlib import suppress
from typing import NamedTuple

import torch
from torch.autograd import profiler
from torch.autograd.profiler import profile, record_function

from rematbench.base.errors import ConfigError
from rematbench.costmodel.device import live_bytes, note_peaks
from rematbench.tracing.devices import accelerator_of

_MARK = "rematbench: mark"
_OURS = 2
"""What PyTorch's sign that a profiler runs is set to while it is ours; another one sets it anew."""


class Levels(NamedTuple):
    """Bytes of memory at the start and at each mark.

    Attributes:
        at: live bytes.
        until: the most until the next mark; one fewer.
        absolute: of the whole device (an accelerator); else above those at the start, and a release
            of what was there before is not seen (CPU).
    """

    at: tuple[int, ...]
    until: tuple[int, ...]
    absolute: bool


class LevelMeter:
    """Counts from when it is made; on the CPU by PyTorch's profiler, on an accelerator by its
    allocator.

    Args:
        device: its name: ``cpu``, ``cuda``.
    """

    def __init__(self, device: str) -> None:
        self._device = accelerator_of(device)
        self._at: list[int] = []
        self._until: list[int] = []
        self._profile: profile | None = None
        if self._device is None:
            self._profile = profile(use_kineto=True, profile_memory=True)
            self._profile.__enter__()
            profiler._is_profiler_enabled = _OURS
            atexit.register(self._end)  # PyTorch crashes where Python ends while it runs
        self.mark()

    @staticmethod
    def can_start(device: str) -> bool:
        """Does it count, and would the count disturb nobody's profiler?"""
        with suppress(ConfigError, KeyError, RuntimeError):
            accelerator = accelerator_of(device)
            if accelerator is None:
                return not torch.autograd._profiler_enabled()
            accelerator.statistics()
            return True
        return False

    def mark(self) -> None:
        """Set a mark."""
        if self._device is None:
            with record_function(_MARK):
                return
        now = note_peaks(self._device)
        if self._at:
            self._until.append(now.allocated_peak)
        self._at.append(now.allocated)
        self._device.reset_peaks()

    def stop(self) -> Levels | None:
        """What was counted up to the last mark; None: another profiler was started."""
        if self._profile is None:
            return Levels(tuple(self._at), tuple(self._until), True)
        found = self._end()
        return None if found is None else _levels(found)

    def _end(self) -> profile | None:
        """The profile, which has ended; None: there is none, or another profiler was started."""
        atexit.unregister(self._end)
        ours, self._profile = self._profile, None
        if ours is None or profiler._is_profiler_enabled != _OURS:
            return None
        ours.__exit__(None, None, None)
        return ours


def _levels(found: profile) -> Levels:
    most, at, until = 0, list[int](), list[int]()
    for live, is_mark in live_bytes(found, mark=_MARK):
        if is_mark:
            if at:
                until.append(most)
            at.append(live)
            most = live
        most = max(most, live)
    return Levels(tuple(at), tuple(until), False)
