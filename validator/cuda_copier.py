"""What copies values to the host and back on CUDA: streams, events and pinned memory.

The program issues its statements without waiting; who must wait for whom is said by events. Device
memory belongs to the compute stream, which waits for copies before a block of theirs is freed; the
host's belongs to the stream that copies out.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rematbench.graphs.copies import IN, OUT
from rematbench.validator.copier import Copier, CopyReading
from rematbench.validator.copies import CopyPlan, Extents


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


def _seconds(spans: Iterable[tuple[Any, Any]]) -> float:
    return sum((begin.elapsed_time(end) for begin, end in spans), 0.0) / 1e3


def issue_copy(target: Tensor, source: Tensor) -> None:
    """Give a copy to the current stream."""
    target.copy_(source, non_blocking=True)


class CopyEvents(NamedTuple):
    """A copy that was issued: :data:`OUT` or :data:`IN`, and what happens before and after it."""

    way: int
    begin: Any
    end: Any
    bytes: int


class StreamCopier(Copier):
    """A stream for each engine of the link, and one pinned block of the planned size."""

    _device = "cuda"

    def __init__(self, plan: CopyPlan) -> None:
        super().__init__(plan)
        out = torch.cuda.Stream()
        self._streams = out, out if plan.shared else torch.cuda.Stream()

    def _allocate(self, size: int) -> Any:
        # PyTorch's own pinned blocks are rounded up to a power of two.
        pool = torch.empty(size, dtype=torch.uint8)
        if size:
            self._runtime = torch.cuda.cudart()
            torch.cuda.check_error(self._runtime.cudaHostRegister(pool.data_ptr(), size, 0))
        return pool

    def __del__(self) -> None:
        pool = vars(self).get("pool")
        if pool is not None and pool.numel():
            self._runtime.cudaHostUnregister(pool.data_ptr())

    def _begin(self) -> None:
        self._compute = torch.cuda.current_stream()
        self._latest: dict[int, Any] = {}
        self._copies: list[CopyEvents] = []
        self._stood: list[tuple[Any, Any]] = []  # begin and end of what compute waited
        self._first = self._compute.record_event(_event())

    def _copy(self, way: int, number: int, size: int, pairs: Any, after: list[Any]) -> None:
        stream = self._streams[way - OUT]
        for event in after:
            stream.wait_event(event)
        begin = stream.record_event(_event())
        with torch.cuda.stream(stream):
            for target, source in pairs:
                issue_copy(target, source)
        end = self._latest[number] = stream.record_event(_event())
        self._copies.append(CopyEvents(way, begin, end, size))

    def _pairs(self, whole: Tensor, places: Extents) -> list[tuple[Tensor, Tensor]]:
        """Each piece on the device and on the host."""
        sizes = [end - begin for begin, end in places]
        hosts = (self.pool[begin:end] for begin, end in places)
        return list(zip(whole.split(sizes), hosts, strict=True)) if sizes else []

    def _out(self, number: int, source: Tensor, places: Extents, after: int | None) -> None:
        ready = self._compute.record_event(_event()) if after is None else self._latest[after]
        pairs = [(host, here) for here, host in self._pairs(source, places)]
        self._copy(OUT, number, source.numel(), pairs, [ready])

    def _in(self, number: int, target: Tensor, places: Extents) -> None:
        # The block's last user on the compute stream, and the copy on the host.
        after = [self._compute.record_event(_event()), self._latest[number]]
        self._copy(IN, number, target.numel(), self._pairs(target, places), after)

    def _drop(self, number: int) -> None:
        self._streams[0].wait_event(self._latest[number])

    def _wait(self, number: int) -> None:
        self._stand(self._latest[number])

    def _stand(self, event: Any) -> None:
        begin = self._compute.record_event(_event())
        self._compute.wait_event(event)
        self._stood.append((begin, self._compute.record_event(_event())))

    def _end(self, failed: bool) -> None:
        for stream in self._streams:  # what was not freed is freed after this
            self._stand(stream.record_event(_event()))
        if failed:
            torch.cuda.synchronize()

    def reading(self) -> CopyReading:
        """What was measured of the last step; waits until it is done."""
        torch.cuda.synchronize()
        out, into = ([each for each in self._copies if each.way == way] for way in (OUT, IN))
        engines = (self._copies, []) if self.plan.shared else (out, into)
        idle_out, idle_in = map(self._idle, engines)
        took_out, took_in = (_seconds((e.begin, e.end) for e in copies) for copies in (out, into))
        return CopyReading(
            self._most,
            (_seconds(self._stood), idle_out, idle_in),
            (sum(each.bytes for each in out), sum(each.bytes for each in into)),
            (took_out, took_in),
        )

    def _idle(self, copies: list[CopyEvents]) -> float:
        """Seconds that a stream stood still before each of its copies."""
        ends = [self._first, *(each.end for each in copies)]
        return _seconds(zip(ends, (each.begin for each in copies), strict=False))
