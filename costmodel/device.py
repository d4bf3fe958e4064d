"""The device meter: a clock and a count of live bytes, on CPU and on CUDA."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

# The profiler reads its log level when it is loaded; its notices are not ours to print.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch._C._profiler import _ExtraFields_Allocation
from torch.autograd.profiler import profile

from rematbench.base.errors import ConfigError

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


def random_state_bytes(device: str) -> int:
    """Bytes of the device's memory that a saved state of its random generator takes.

    CUDA's is 16 bytes in the host's memory.
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
    """Raises ConfigError, which says why, unless ``device`` is ``cpu`` or a usable ``cuda``."""
    if device == "cuda":
        _require_cuda()
    elif device != "cpu":
        raise ConfigError(f"device={device}: unknown; use cpu, cuda or none")


def _require_cuda() -> None:
    with warnings.catch_warnings(record=True) as said:  # of an old driver, say
        warnings.simplefilter("always")
        available = torch.cuda.is_available()
    if not available:
        why = "".join(f" ({_first_line(word.message)})" for word in said[:1])
        raise ConfigError(f"device=cuda: PyTorch sees no CUDA device here{why}; use device=cpu")
    try:
        torch.cuda.init()
        torch.cuda.mem_get_info()
    except (RuntimeError, AssertionError) as error:  # in another's exclusive use, say
        raise ConfigError(
            f"device=cuda: the device cannot be used: {_first_line(error)}; free it, or use "
            "device=cpu"
        ) from None


def _first_line(said: object) -> str:
    return next(iter(str(said).strip().splitlines()), "")


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
    """Let this process take at most ``most`` bytes of the CUDA device; None lifts the limit.

    An allocation past it raises ``torch.OutOfMemoryError``, as on a device of that size. The CPU
    has no such limit.
    """
    if device != "cuda":
        return
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(1.0 if most is None else min(1.0, most / total))


def device_name(device: str) -> str:
    """The hardware's name, for example ``NVIDIA H100 80GB HBM3, TF32`` or a CPU's model."""
    if device == "cuda":
        suffix = ", TF32" if torch.backends.cuda.matmul.allow_tf32 else ""
        return f"{torch.cuda.get_device_name()}{suffix}"
    return _cpu_name()


@functools.cache
def _cpu_name() -> str:
    with_model = Path("/proc/cpuinfo")
    if with_model.exists():
        for line in with_model.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


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
    if device == "cuda":
        unused = int(torch.cuda.memory_reserved() - torch.cuda.memory_allocated())
        return int(torch.cuda.mem_get_info()[0]) + unused
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):  # what caches of files would give back, too
                return int(line.split()[1]) * 1024
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError, AttributeError):
        return None


def synchronize(device: str) -> None:
    """Wait until the device has done what it was asked."""
    if device == "cuda":
        torch.cuda.synchronize()


def empty_cache(device: str) -> None:
    """Give back what the caching allocator holds unused."""
    if device == "cuda":
        torch.cuda.empty_cache()


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
    read from the profiler's memory events; on CUDA the caching allocator's own statistics are
    used.

    Args:
        known: bytes of storages by address that are there before and may go. On the CPU a release
            counts only of these, where they came during an earlier reading (the profiler does not
            tell of others), and of what comes during this one.
    """
    if device == "cuda":
        return _cuda_peak_of(run)
    # torch.profiler.profile is in a cycle with its events, a kilobyte each, many per grouped
    # convolution in float64: what it holds would grow faster than Python collects cycles.
    with profile(use_kineto=True, profile_memory=True) as profiler:
        result = run()
    del result
    sizes = dict(known or {})
    live = peak = 0
    for event in memory_events(profiler):
        assert event is not None
        place, change = event
        if change < 0:
            # PyTorch may know a place by what was there before: its size would be another's.
            live -= sizes.pop(place, 0)
            continue
        sizes[place] = change
        live += change
        peak = max(peak, live)
    return PeakReading(peak, live)


_under_way: list[dict[str, int]] = []
"""Peaks so far of readings that have not ended: one inside another starts the device's anew."""


def _cuda_peak_of(run: Callable[[], object]) -> PeakReading:
    torch.cuda.synchronize()
    note_peaks()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    peaks: dict[str, int] = {}
    _under_way.append(peaks)
    try:
        result = run()
        torch.cuda.synchronize()
        after = note_peaks()
    finally:
        _under_way.pop()
    del result
    start = before["allocated_bytes.all.current"]
    return PeakReading(
        peaks["allocated"] - start,
        after["allocated_bytes.all.current"] - start,
        peaks["reserved"] - start,
        peaks["reserved"] - peaks["allocated"],
        peaks["requested"] - before["requested_bytes.all.current"],
    )


def note_peaks() -> dict[str, int]:
    """CUDA's memory statistics, noted for readings under way."""
    stats: dict[str, int] = torch.cuda.memory_stats()
    for peaks in _under_way:
        for kind in ("allocated", "reserved", "requested"):
            peaks[kind] = max(peaks.get(kind, 0), stats[f"{kind}_bytes.all.peak"])
    return stats


def memory_events(profiler: profile, mark: str = "") -> list[tuple[int, int] | None]:
    """(address, bytes) of each allocation and release on the CPU, in time order.

    Args:
        mark: name of events that stand as None among them.
    """
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
    """Wall-clock seconds of one call (CUDA: between events, the device idle before)."""
    if device == "cuda":
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / 1e3
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def spread(seconds: list[float]) -> tuple[float, float]:
    """Median and interquartile range."""
    if len(seconds) < 2:
        return statistics.median(seconds), 0.0
    low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
    return statistics.median(seconds), high - low
