"""What copies values to the host and back on CUDA: streams, events and pinned memory.

The program issues its statements without waiting; who must wait for whom is said by events. Device
memory belongs to the compute stream, which waits for copies before a block of theirs is freed; the
host's belongs to the stream that copies out.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from rematbench.graphs.copies import IN, OUT
from rematbench.validator.copier import Copier, CopyReading
from rematbench.validator.copies import CopyPlan, Extents


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)


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
            torch.cuda.check_error(torch.cuda.cudart().cudaHostRegister(pool.data_ptr(), size, 0))
        return pool

    def __del__(self) -> None:
        pool = vars(self).get("pool")
        if pool is not None and pool.numel():
            torch.cuda.cudart().cudaHostUnregister(pool.data_ptr())

    def _begin(self) -> None:
        self._compute = torch.cuda.current_stream()
        self._latest: dict[int, Any] = {}
        # (begin, end) of each copy by direction, and of what compute waited.
        self._spans: tuple[list[Any], list[Any]] = ([], [])
        self._moved = [0, 0]
        self._stood: list[Any] = []
        self._first = self._compute.record_event(_event())

    def _copy(self, way: int, number: int, size: int, pairs: Any, after: list[Any]) -> None:
        stream = self._streams[way - OUT]
        for event in after:
            stream.wait_event(event)
        begin = stream.record_event(_event())
        with torch.cuda.stream(stream):
            for target, source in pairs:
                target.copy_(source, non_blocking=True)
        end = self._latest[number] = stream.record_event(_event())
        self._spans[way - OUT].append((begin, end))
        self._moved[way - OUT] += size

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

        def seconds(spans: list[Any]) -> float:
            return sum((b.elapsed_time(e) for b, e in spans), 0.0) / 1e3

        def idle(spans: list[Any]) -> float:
            ends = [self._first, *(end for _, end in spans[:-1])]
            return seconds([(end, begin) for end, (begin, _) in zip(ends, spans, strict=False)])

        out, into = self._spans
        return CopyReading(
            self._most,
            (seconds(self._stood), idle(out), idle(into)),
            (self._moved[0], self._moved[1]),
            (seconds(out), seconds(into)),
        )
