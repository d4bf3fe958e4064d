"""The device meter: a clock and a count of live bytes, on the CPU and on accelerators."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

# The profiler reads its log level when it is loaded; its notices are not ours to print.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch._C._profiler import _ExtraFields_Allocation
from torch.autograd.profiler import profile

from rematbench.tracing.devices import Accelerator, MemoryStatistics, accelerator_of, device_of

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def random_state_bytes(device: str) -> int:
    """Bytes of the device's memory that a saved state of its random generator takes.

    An accelerator's is a few bytes in the host's memory.
    """
    return torch.get_rng_state().nbytes if device == "cpu" else 0


@dataclass(frozen=True, slots=True)
class PeakReading:
    """Bytes of memory around one call.

    Attributes:
        peak_bytes: most bytes live above those at the start.
        kept_bytes: bytes live at the end above those at the start.
        reserved_bytes: most bytes that the caching allocator held, above those live at the start
            (CUDA), or None.
        fragmentation_bytes: what it held at most and could not use at the peak (CUDA), or None.
        requested_bytes: ``peak_bytes`` as asked for, before the caching allocator rounds up, to
            512 bytes and, where it does not split a block, by up to 1 MiB (CUDA), or None.
    """

    peak_bytes: int
    kept_bytes: int
    reserved_bytes: int | None = None
    fragmentation_bytes: int | None = None
    requested_bytes: int | None = None

    def above(self, resident: int) -> PeakReading:
        """The peaks with bytes that were live before the call."""
        reserved, requested = (
            None if found is None else found + resident
            for found in (self.reserved_bytes, self.requested_bytes)
        )
        peak = self.peak_bytes + resident
        return replace(self, peak_bytes=peak, reserved_bytes=reserved, requested_bytes=requested)


def require(device: str) -> None:
    """Raises ConfigError, which says why, unless ``device`` is ``cpu`` or a usable accelerator."""
    device_of(device).require()


def use_numerics(*, tf32: bool, cudnn_benchmark: bool, deterministic: bool) -> None:
    """Fix what CUDA kernels may do; the CPU has none of these.

    Args:
        tf32: may products of float32 be rounded to TF32's 10 bits?
        cudnn_benchmark: may cuDNN try its algorithms, and so choose other ones in another run?
        deterministic: only kernels that repeat their own bits, with a warning where there is none.
    """
    # cuBLAS repeats its bits with this workspace; PyTorch looks once, at the first product.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    # The old switches set the new ones (fp32_precision), too, but not the other way round, and
    # torch.compile reads the old ones and refuses a mixture.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = cudnn_benchmark
    torch.backends.cudnn.deterministic = deterministic
    torch.use_deterministic_algorithms(deterministic, warn_only=True)


def limit_memory(most: int | None, device: str = "cuda") -> None:
    """Let this process take at most ``most`` bytes of the device; None lifts the limit.

    An allocation past it raises ``torch.OutOfMemoryError``, as on a device of that size. The CPU
    has no such limit.
    """
    if accelerator := accelerator_of(device):
        accelerator.limit_memory(most)


def device_name(device: str) -> str:
    """The hardware's name, for example ``NVIDIA H100 80GB HBM3, TF32`` or a CPU's model."""
    rounded = device == "cuda" and torch.backends.cuda.matmul.allow_tf32
    return f"{device_of(device).hardware()}{', TF32' * rounded}"


@functools.cache
def steady_allocator() -> bool:
    """Keep freed memory in the process, so that timings are not those of page faults.

    Turns off glibc's mmap and trim thresholds (``mallopt``). Returns False where the C library
    has no ``mallopt``.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_MAX, 0) and mallopt(_M_TRIM_THRESHOLD, 2**31 - 1))


def free_memory(device: str) -> int | None:
    """Bytes that this process could still take of a device's memory; None: nobody knows."""
    if accelerator := accelerator_of(device):
        now = accelerator.statistics()
        return accelerator.memory()[0] + now.reserved - now.allocated
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):  # what caches of files would give back, too
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def synchronize(device: str) -> None:
    """Wait until the device has done what it was asked."""
    device_of(device).synchronize()


def empty_cache(device: str) -> None:
    """Give back what the caching allocator holds unused."""
    device_of(device).empty_cache()


def release(device: str) -> None:
    """The same after an error: its traceback held tensors, perhaps in cycles.

    Call it when the ``except`` clause is left: inside, the error is alive. Takes up to a second.
    """
    gc.collect()
    empty_cache(device)


def peak_of(
    run: Callable[[], object], device: str, known: Mapping[int, int] | None = None
) -> PeakReading:
    """Run once and measure memory. What ``run`` returns counts as kept.

    On the CPU every allocation of PyTorch's allocator (oneDNN's scratch memory included) is
    read from the profiler's memory events; on an accelerator the caching allocator's own
    statistics are used.

    Args:
        known: bytes of storages by address that are there before and may go. On the CPU a release
            counts only of these, where they came during an earlier reading (the profiler does not
            tell of others), and of what comes during this one.
    """
    if accelerator := accelerator_of(device):
        return _counted_peak_of(run, accelerator)
    # torch.profiler.profile is in a cycle with its events, a kilobyte each, many per grouped
    # convolution in float64: what it holds would grow faster than Python collects cycles.
    with profile(use_kineto=True, profile_memory=True) as profiler:
        result = run()
    del result
    levels = [0, *(live for live, _ in live_bytes(profiler, known))]
    return PeakReading(max(levels), levels[-1])


_under_way: list[dict[str, int]] = []
"""Peaks so far of readings that have not ended: one inside another starts the device's anew."""


def _counted_peak_of(run: Callable[[], object], device: Accelerator) -> PeakReading:
    device.synchronize()
    note_peaks(device)
    device.reset_peaks()
    before = device.statistics()
    peaks: dict[str, int] = {}
    _under_way.append(peaks)
    try:
        result = run()
        device.synchronize()
        after = note_peaks(device)
    finally:
        _under_way.pop()
    del result
    start = before.allocated
    return PeakReading(
        peaks["allocated"] - start,
        after.allocated - start,
        peaks["reserved"] - start,
        peaks["reserved"] - peaks["allocated"],
        peaks["requested"] - before.requested if peaks["requested"] else None,
    )


class NotedPeaks:
    """The most bytes that an accelerator's allocator hands out, from now until :meth:`stop`.

    Readings meanwhile start the device's own peaks anew, and lose none of it.
    """

    def __init__(self, device: Accelerator) -> None:
        self._device = device
        note_peaks(device)
        device.reset_peaks()
        self._peaks: dict[str, int] = {}
        _under_way.insert(0, self._peaks)

    @classmethod
    def of_this_process(cls) -> NotedPeaks | None:
        """Of the accelerator that PyTorch sees; None: it sees none that counts."""
        found = torch.accelerator.current_accelerator(check_available=True)
        device = None if found is None else accelerator_of(found.type)
        if device is None:
            return None
        try:
            return cls(device)
        except (RuntimeError, KeyError):
            return None

    def stop(self) -> int:
        """The most bytes since it began."""
        note_peaks(self._device)
        _under_way[:] = [each for each in _under_way if each is not self._peaks]
        return self._peaks["allocated"]


def note_peaks(device: Accelerator) -> MemoryStatistics:
    """An accelerator's memory statistics, noted for readings under way."""
    now = device.statistics()
    for peaks in _under_way:
        for kind in ("allocated", "reserved", "requested"):
            peaks[kind] = max(peaks.get(kind, 0), getattr(now, f"{kind}_peak"))
    return now


def live_bytes(
    profiler: profile, known: Mapping[int, int] | None = None, mark: str = ""
) -> Iterator[tuple[int, bool]]:
    """(bytes above those at the start, is it a mark?) after each event on the CPU, in time order.

    Args:
        known: see :func:`peak_of`.
        mark: name of events that are marks.
    """
    blocks, live = _Blocks(known or {}), 0
    for event in _memory_events(profiler, mark):
        if event is not None:
            place, change = event
            # PyTorch may know a place by what was there before: its size would be another's.
            live += -blocks.goes(place) if change < 0 else change - blocks.comes(place, change)
        yield live, event is None


class _Blocks:
    """Bytes by address. Another thread (gloo's) lets go unseen: until something else is there."""

    def __init__(self, known: Mapping[int, int]) -> None:
        self._sizes, self._places = dict(known), sorted(known)

    def goes(self, place: int) -> int:
        """A block is released; its bytes, 0 of one that is not known."""
        if place not in self._sizes:
            return 0
        del self._places[bisect_left(self._places, place)]
        return self._sizes.pop(place)

    def comes(self, place: int, size: int) -> int:
        """A block is allocated; the bytes of those that were there before."""
        first = last = bisect_left(self._places, place)
        if first and self._places[first - 1] + self._sizes[self._places[first - 1]] > place:
            first -= 1
        while last < len(self._places) and self._places[last] < place + size:
            last += 1
        gone = sum(self._sizes.pop(each) for each in self._places[first:last])
        self._places[first:last] = [place]
        self._sizes[place] = size
        return gone


def _memory_events(profiler: profile, mark: str) -> list[tuple[int, int] | None]:
    """(address, bytes) of each allocation and release on the CPU, and None of each mark."""
    found = profiler.kineto_results
    assert found is not None
    events: list[tuple[int, tuple[int, int] | None]] = []
    waiting = found.experimental_event_tree()[::-1]
    while waiting:
        event = waiting.pop()
        waiting += event.children[::-1]
        made = event.extra_fields
        if isinstance(made, _ExtraFields_Allocation) and made.ptr is not None:
            events.append((event.start_time_ns, (made.ptr, made.alloc_size)))
        elif mark and event.name == mark:
            events.append((event.start_time_ns, None))
    events.sort(key=lambda event: event[0])
    return [change for _, change in events]


def seconds_of(run: Callable[[], object], device: str) -> float:
    """Wall-clock seconds of one call (accelerators: between events, the device idle before)."""
    return device_of(device).seconds_of(run)


LAST_CACHE_BYTES = 2**25
"""Of a CPU whose caches nobody tells of."""
MOST_OTHER_BYTES = 2**24
"""That are overwritten before a call: the last cache of a large CPU is shared by many cores, and
writing half of its 300 MiB took nine tenths of a profile's time."""


@functools.cache
def _last_cache_bytes() -> int:
    sizes = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")
    try:
        return max(int(each.read_text().strip().removesuffix("K")) * 1024 for each in sizes)
    except (ValueError, OSError):
        return LAST_CACHE_BYTES


@functools.cache
def _other_data() -> torch.Tensor:
    size = min(_last_cache_bytes() // 2, MOST_OTHER_BYTES)
    return torch.zeros(size, dtype=torch.uint8)


def use_other_data(device: str) -> None:
    """Overwrite half of a CPU's last cache, so that the next call does not find all it reads there.

    In a step other ops have run since its inputs were made. At most :data:`MOST_OTHER_BYTES`.
    """
    if device == "cpu":
        _other_data().add_(1)


def spread(seconds: list[float]) -> tuple[float, float]:
    """Median and interquartile range."""
    if len(seconds) < 2:
        return statistics.median(seconds), 0.0
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return statistics.median(seconds), high - low
