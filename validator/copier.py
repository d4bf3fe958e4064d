"""What copies values to the host and back while a program runs: an interface, and the CPU's.

On a CPU each engine of the link is a thread, and the host is a second arena. Threads copy as soon
as they can, and say when the link would have done so; who waits for a copy waits until then.
:mod:`rematbench.validator.cuda_copier` does the same by streams.
"""

from __future__ import annotations

import ctypes
from abc import ABC, abstractmethod
from dataclasses import dataclass
from queue import SimpleQueue
from statistics import median
from threading import Event, Thread
from time import perf_counter, sleep
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematbench.base.errors import ExecutionError
from rematbench.graphs.copies import COMPUTE, ENGINES, IN, OUT
from rematbench.validator.copies import CopyPlan, Extents

SPIN = 2e-4
"""Seconds before the end of a wait from which the clock is watched: sleep may take longer."""
ALIVE = 1.0
"""Seconds after which someone who waits asks whether the thread that copies still lives."""


@dataclass(frozen=True, slots=True)
class CopyReading:
    """What was measured of one step's copies.

    Attributes:
        host_peak_bytes: most bytes on the host.
        waiting: seconds that compute, the link out and the link in stood still before what came
            next on them.
        bytes: copied out and in; ``seconds``: that these copies took.
    """

    host_peak_bytes: int
    waiting: tuple[float, float, float]
    bytes: tuple[int, int]
    seconds: tuple[float, float]


@dataclass(frozen=True, slots=True)
class CopiesMeasured:
    """What was measured of the copies of some steps, as a row's ``extra`` has it.

    Attributes:
        measured_host_peak_bytes: most bytes on the host.
        measured_waiting: seconds that compute, out and in stood still, medians.
        measured_link: bytes per second that out and in had while they copied; None: they did not.
    """

    measured_host_peak_bytes: int
    measured_waiting: dict[str, float]
    measured_link: dict[str, float | None]


def copies_measured(readings: list[CopyReading]) -> CopiesMeasured:
    """The readings of some steps as one."""
    columns = zip(*(each.waiting for each in readings), strict=True)
    rates = [
        sum(each.bytes[way] for each in readings) / seconds
        if (seconds := sum(each.seconds[way] for each in readings))
        else None
        for way in range(2)
    ]
    return CopiesMeasured(
        max(each.host_peak_bytes for each in readings),
        dict(zip(ENGINES, map(median, columns), strict=True)),
        dict(zip(ENGINES[1:], rates, strict=True)),
    )


@dataclass(frozen=True, slots=True)
class _Look:
    """A tensor's dtype and place in its storage."""

    dtype: torch.dtype
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


def flat(tensor: Tensor) -> Tensor:
    """The bytes of a tensor's storage."""
    storage = tensor.untyped_storage()
    found = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return found.set_(storage, 0, (storage.nbytes(),), (1,))


class Copier(ABC):
    """Copies as a program asks, statement by statement; copies on the host go by number.

    Used as a context, once per step; at its end no copy is under way.

    Raises:
        ExecutionError: the host has no memory for the pool.
    """

    def __init__(self, plan: CopyPlan) -> None:
        self.plan = plan
        self.readings: list[CopyReading] = []
        try:
            self.pool = self._allocate(plan.host_bytes)
        except (MemoryError, RuntimeError, ValueError) as error:
            why = " ".join(str(error).split())[:200]
            raise ExecutionError(
                f"the host has no {plan.host_bytes} bytes for what the plan copies there ({why}); "
                "give a smaller host= (option offload)"
            ) from error
        self._looks: dict[int, tuple[_Look, ...]] = {}
        self._held: dict[int, tuple[Tensor, ...]] = {}
        self._sizes: dict[int, int] = {}
        self._used = self._most = 0

    def offload(self, number: int, tensors: tuple[Tensor, ...], after: int | None) -> None:
        """Copy the storage of ``tensors`` to the host.

        Args:
            after: the copy from which they are still being fetched.

        Raises:
            ExecutionError: it has another size than was planned.
        """
        root, places = tensors[0], self.plan.places[number]
        planned = sum(end - begin for begin, end in places)
        found = root.untyped_storage().nbytes() if root.layout is torch.strided else -1
        if found != planned:
            what = "is sparse" if found < 0 else f"has {found} bytes"
            raise ExecutionError(
                f"a value to offload {what}, planned were {planned}; plan for the model as it runs"
            )
        self._looks[number] = tuple(
            _Look(t.dtype, t.size(), t.stride(), t.storage_offset()) for t in tensors
        )
        self._held[number] = tensors
        self._sizes[number] = planned
        self._used += planned
        self._most = max(self._most, self._used)
        self._out(number, flat(root), places, after)

    def fetch(self, number: int) -> tuple[Tensor, ...]:
        """The tensors of a copy, whose bytes are on their way."""
        whole = torch.empty(self._sizes[number], dtype=torch.uint8, device=self._device)
        self._held[number] = (whole,)  # what replaces it may come before its bytes
        self._in(number, whole, self.plan.places[number])
        storage = whole.untyped_storage()
        return tuple(
            torch.empty(0, dtype=look.dtype, device=self._device).set_(
                storage, look.offset, look.size, look.stride
            )
            for look in self._looks[number]
        )

    def drop(self, number: int) -> None:
        """Give up a copy on the host."""
        self._used -= self._sizes[number]
        self._drop(number)

    def wait(self, number: int) -> None:
        """Compute goes on when the last transfer of a copy is done."""
        self._wait(number)
        self._held.pop(number, None)

    def held_bytes(self) -> dict[int, int]:
        """Bytes of storages, by address, that are being copied, or were and are still held."""
        held = (each[0].untyped_storage() for each in self._held.values())
        return {storage.data_ptr(): storage.nbytes() for storage in held}

    def __enter__(self) -> Copier:
        self._used = self._most = 0
        self._begin()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            self._end(failed=kind is not None)
        finally:
            self._held.clear()

    _device = "cpu"

    @abstractmethod
    def _allocate(self, size: int) -> Any: ...
    @abstractmethod
    def _begin(self) -> None: ...
    @abstractmethod
    def _out(self, number: int, source: Tensor, places: Extents, after: int | None) -> None: ...
    @abstractmethod
    def _in(self, number: int, target: Tensor, places: Extents) -> None: ...
    @abstractmethod
    def _drop(self, number: int) -> None: ...
    @abstractmethod
    def _wait(self, number: int) -> None: ...
    @abstractmethod
    def _end(self, failed: bool) -> None: ...
    @abstractmethod
    def reading(self) -> CopyReading:
        """What was measured of the last step."""


class CopyTask:
    """A copy under way: from where to where, after what, how long, and when it was done."""

    def __init__(
        self, engine: _Engine, pairs: list[tuple[int, int, int]], keep: Any, after: list[CopyTask]
    ) -> None:
        self.engine, self.pairs, self.keep, self.after = engine, pairs, keep, after
        self.issued = perf_counter()
        self.bytes = sum(size for *_, size in pairs)
        self.least = 0.0
        self.end = 0.0
        self.done = Event()

    def join(self) -> None:
        """Wait until its bytes are there; ``end`` says when the link would have them there.

        Raises:
            ExecutionError: the thread that copies has died.
        """
        while not self.done.wait(ALIVE):
            if not self.engine.is_alive():
                raise ExecutionError(f"the thread that copies {self.engine.name} has died")
        self.engine.check()


def sleep_until(end: float) -> None:
    """Return at a time by ``perf_counter``, or at once where that is over."""
    left = end - perf_counter() - SPIN
    if left > 0:
        sleep(left)
    while perf_counter() < end:
        pass


def move_bytes(target: int, source: int, size: int) -> None:
    """Copy bytes from one address to another; Python's lock is free meanwhile."""
    ctypes.memmove(target, source, size)


class _Engine(Thread):
    """Does its tasks one after the other, each as long as the link takes.

    Attributes:
        clock: when the link is done with its last task; ``ended``: when the thread was, too.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.tasks: SimpleQueue[CopyTask | None] = SimpleQueue()
        self.clock = self.ended = perf_counter()
        self.waited = 0.0
        self.error: BaseException | None = None

    def run(self) -> None:
        while (task := self.tasks.get()) is not None:
            try:
                if self.error is None:
                    self._do(task)
            except BaseException as error:  # whoever waits says so
                self.error = error
            task.keep = None  # memory is freed by compute alone
            task.done.set()

    def _do(self, task: CopyTask) -> None:
        for other in task.after:
            other.join()
        begin = max(self.clock, *(each.end for each in task.after), 0.0)
        begin = max(begin, task.issued) if task.pairs else begin
        for pair in task.pairs:
            move_bytes(*pair)
        self.waited += begin - self.clock
        done = begin + task.least
        task.end = max(done, perf_counter()) if task.pairs else done
        # A thread that was late for a moment catches up: the link it stands for was not late.
        self.clock = done if task.least else task.end
        task.issued = max(begin, self.ended)
        self.ended = task.end

    def check(self) -> None:
        """Raises ExecutionError with the cause of its death."""
        if self.error is not None:
            why = f"{type(self.error).__name__}: {self.error}"
            raise ExecutionError(f"the thread that copies {self.name}: {why}") from self.error


class ThreadCopier(Copier):
    """The CPU's: a thread for each engine, and a second arena."""

    def _allocate(self, size: int) -> Any:
        return np.empty(size, dtype=np.uint8)

    def _begin(self) -> None:
        out = _Engine("out")
        self._engines = [out] if self.plan.shared else [out, _Engine("in")]
        for engine in self._engines:
            engine.start()
        self._latest: dict[int, CopyTask] = {}
        self._moved: tuple[list[CopyTask], list[CopyTask]] = ([], [])
        self._waited = 0.0

    def _put(
        self, way: int, pairs: list[tuple[int, int, int]], keep: Any, after: list[CopyTask]
    ) -> CopyTask:
        engine = self._engines[0 if way == OUT else -1]
        task, pace = CopyTask(engine, pairs, keep, after), self.plan.pace
        if keep is not None:
            if pace is not None:
                task.least = (pace.copy_out if way == OUT else pace.copy_in)(task.bytes)
            self._moved[way - OUT].append(task)
        engine.tasks.put(task)
        return task

    def _pairs(self, place: int, places: Extents, out: bool) -> list[tuple[int, int, int]]:
        """(target, source, bytes) of each piece."""
        found, pool = [], self.pool.ctypes.data
        for begin, end in places:
            ends = (pool + begin, place) if out else (place, pool + begin)
            found.append((*ends, end - begin))
            place += end - begin
        return found

    def _out(self, number: int, source: Tensor, places: Extents, after: int | None) -> None:
        before = [] if after is None else [self._latest[after]]
        pairs = self._pairs(source.data_ptr(), places, out=True)
        self._latest[number] = self._put(OUT, pairs, source, before)

    def _in(self, number: int, target: Tensor, places: Extents) -> None:
        pairs = self._pairs(target.data_ptr(), places, out=False)
        self._latest[number] = self._put(IN, pairs, target, [self._latest[number]])

    def _drop(self, number: int) -> None:
        self._put(OUT, [], None, [self._latest[number]])

    def _wait(self, number: int) -> None:
        began = perf_counter()
        task = self._latest[number]
        task.join()
        sleep_until(task.end)
        self._waited += perf_counter() - began

    def _end(self, failed: bool) -> None:
        for engine in self._engines[::-1]:
            engine.tasks.put(None)
            engine.join()
        if not failed:
            tasks = [task for tasks in self._moved for task in tasks]
            for task in tasks:
                task.join()
            sleep_until(max((task.end for task in tasks), default=0.0))

    def reading(self) -> CopyReading:
        """What was measured of the last step."""
        waiting = [self._waited, 0.0, 0.0]
        for engine, way in zip(self._engines, (OUT, IN), strict=False):
            waiting[way] = engine.waited
        out, into = self._moved
        return CopyReading(
            self._most,
            (waiting[COMPUTE], waiting[OUT], waiting[IN]),
            (sum(t.bytes for t in out), sum(t.bytes for t in into)),
            (sum(t.end - t.issued for t in out), sum(t.end - t.issued for t in into)),
        )
