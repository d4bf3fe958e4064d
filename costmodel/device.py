"""The device meter: a clock and a count of live bytes, on CPU and on CUDA."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

# The profiler reads its log level when it is loaded; its notices are not ours to print.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

import torch
from torch.profiler import ProfilerActivity, profile

from graphs.errors import ConfigError

_M_TRIM_THRESHOLD, _M_MMAP_MAX = -1, -4


@dataclass(frozen=True, slots=True)
class PeakReading:
    """Bytes of memory around one call.

    Attributes:
        peak_bytes: most bytes live above those at the start.
        kept_bytes: bytes live at the end above those at the start.
        reserved_bytes: most bytes that the caching allocator held (CUDA), or None.
        fragmentation_bytes: what it held at most and could not use at the peak (CUDA), or None.
    """

    peak_bytes: int
    kept_bytes: int
    reserved_bytes: int | None = None
    fragmentation_bytes: int | None = None


def require(device: str) -> None:
    """Raises ConfigError when ``device`` is not ``cpu`` or an available ``cuda``."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device=cuda: PyTorch sees no CUDA device here; use device=cpu")
    if device not in ("cpu", "cuda"):
        raise ConfigError(f"device={device}: unknown; use cpu, cuda or none")


def use_numerics(*, tf32: bool, cudnn_benchmark: bool, deterministic: bool) -> None:
    """Fix what CUDA kernels may do; the CPU has none of these.

    Args:
        tf32: may products of float32 be rounded to TF32's 10 bits?
        cudnn_benchmark: may cuDNN try its algorithms, and so choose other ones in another run?
        deterministic: only kernels that repeat their own bits, with a warning where there is none.
    """
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cudnn.benchmark = cudnn_benchmark
    torch.backends.cudnn.deterministic = deterministic
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read with the first product
    torch.use_deterministic_algorithms(deterministic, warn_only=True)


def limit_memory(most: int | None) -> None:
    """Let this process take at most ``most`` bytes of the CUDA device; None lifts the limit.

    An allocation past it raises ``torch.OutOfMemoryError``, as on a device of that size.
    """
    total = torch.cuda.mem_get_info()[1]
    torch.cuda.set_per_process_memory_fraction(1.0 if most is None else min(1.0, most / total))


def device_name(device: str) -> str:
    """The hardware's name, for example ``NVIDIA H100 80GB HBM3, TF32`` or a CPU's model."""
    if device == "cuda":
        suffix = ", TF32" if torch.backends.cuda.matmul.allow_tf32 else ""
        return torch.cuda.get_device_name() + suffix
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


def synchronize(device: str) -> None:
    """Wait until the device has done what it was asked."""
    if device == "cuda":
        torch.cuda.synchronize()


def release(device: str) -> None:
    """Give back what the caching allocator holds unused, after an out-of-memory error, say."""
    gc.collect()
    if device == "cuda":
        torch.cuda.empty_cache()


def peak_of(run: Callable[[], object], device: str) -> PeakReading:
    """Run once and measure memory. What ``run`` returns counts as kept.

    On the CPU every allocation of PyTorch's allocator (oneDNN's scratch memory included) is
    read from the profiler's memory events; on CUDA the caching allocator's own statistics are
    used, where sizes are rounded up to 512 bytes.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        start = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        result = run()
        torch.cuda.synchronize()
        reading = PeakReading(
            torch.cuda.max_memory_allocated() - start,
            torch.cuda.memory_allocated() - start,
            torch.cuda.max_memory_reserved(),
            torch.cuda.max_memory_reserved() - torch.cuda.max_memory_allocated(),
        )
        del result
        return reading
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        result = run()
    del result
    live = peak = 0
    for _, change in _memory_events(profiler):
        live += change
        peak = max(peak, live)
    return PeakReading(peak, live)


def _memory_events(profiler: profile) -> list[tuple[int, int]]:
    """(nanoseconds, bytes) of each allocation and release on the CPU, in time order."""
    results = profiler.profiler.kineto_results  # type: ignore[union-attr]
    events = [(e.start_ns(), e.nbytes()) for e in results.events() if e.name() == "[memory]"]
    return sorted(events, key=lambda event: event[0])


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
