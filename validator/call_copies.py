"""What copies for calls in two halves: it, and its memory on the host, wait between them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rematbench.base.errors import ExecutionError
from rematbench.validator.copier import Copier, CopyReading
from rematbench.validator.copiers import make_copier
from rematbench.validator.copies import CopyPlan


class CallCopies:
    """The copies of one plan's calls, each of which has a copier and a pool while it is pending.

    Args:
        plan: of one call.
        device: ``cpu`` or ``cuda``.
        most: bytes on the host for all calls that are pending at once; None: no limit.

    Attributes:
        last: the copier of the latest call that is over; None: there was none.
    """

    def __init__(self, plan: CopyPlan, device: str, most: int | None = None) -> None:
        self.plan, self.device, self.most = plan, device, most
        self.last: Copier | None = None
        self._idle: list[Copier] = []
        self._pending: weakref.WeakSet[CallCopier] = weakref.WeakSet()

    def begin(self) -> CallCopier:
        """The copier of a call that begins.

        Raises:
            ExecutionError: the host has too little memory for it, or for so many calls.
        """
        if self._is_full():
            gc.collect()  # an exception that was caught may hold a call in a circle
        if self._is_full():
            raise ExecutionError(
                f"{len(self._pending) + 1} calls wait for their backward pass at once, each with "
                f"{self.plan.host_bytes} bytes on the host, above the {self.most} that are given; "
                "give more. A loss that never goes backward waits until you let go of it"
            )
        copier = self._idle.pop() if self._idle else make_copier(self.plan, self.device)
        found = CallCopier(self, copier)
        self._pending.add(found)
        return found

    def _is_full(self) -> bool:
        needed = (len(self._pending) + 1) * self.plan.host_bytes
        return self.most is not None and needed > self.most

    def takes_back(self, copier: Copier, failed: bool) -> None:
        """A call is over; a copier that failed is not used again.

        Raises:
            ExecutionError: a copy has failed.
        """
        copier.__exit__(RuntimeError if failed else None, None, None)
        if not failed:
            self.last = copier
            self._idle.append(copier)

    def forget(self) -> None:
        """Give up memory on the host that no call uses."""
        self._idle.clear()
        self.last = None

    @property
    def reading(self) -> CopyReading | None:
        """What was measured of the latest call that is over; None: there was none."""
        return None if self.last is None else self.last.reading()


class CallCopier:
    """The copier of one call, from its forward half to the end of its backward half.

    A call that never goes backward is over when this is gone.
    """

    def __init__(self, calls: CallCopies, copier: Copier) -> None:
        self.copier = copier.__enter__()
        self._calls = calls
        self._abandoned = weakref.finalize(self, calls.takes_back, copier, failed=True)
        self._abandoned.atexit = False

    def held_bytes(self) -> Mapping[int, int]:
        """Bytes of storages, by address, that are being copied still."""
        return self.copier.held_bytes()

    def forward(self, half: Callable[..., Any], primals: Sequence[Any]) -> Any:
        """Run the forward half."""
        try:
            return half(primals, self.copier)
        except BaseException:
            self._end(failed=True)
            raise

    def backward(self, half: Callable[..., Any], given: list[Any]) -> Any:
        """Run the backward half, after which no copy is under way.

        Raises:
            ExecutionError: a copy has failed.
        """
        failed = True
        try:
            made = half(given, self.copier)
            failed = False
            return made
        finally:
            self._end(failed)

    def _end(self, failed: bool) -> None:
        if self._abandoned.detach() is not None:
            self._calls._pending.discard(self)
            self._calls.takes_back(self.copier, failed)
