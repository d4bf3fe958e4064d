"""What the code for CUDA does, by stand-ins for ``torch.cuda``: no device is needed."""

from __future__ import annotations

import warnings
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import recompute_everything
from torch import nn

import rematbench.costmodel.device
import rematbench.costmodel.profiled
import rematbench.validator.check
import rematbench.validator.replay
from rematbench.base.errors import ConfigError, is_out_of_memory
from rematbench.costmodel.device import PeakReading, peak_of, require, use_numerics
from rematbench.graphs.plan import program_order
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.validator import Validator, generate
from rematbench.validator.execute import own_batch_norm
from rematbench.validator.timing import Timing


def workload() -> Workload:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.5))
    return Workload("small", module, lambda: (torch.rand(4, 3, 8, 8),), lambda m, x: m(x).sum())


@pytest.fixture(scope="module")
def small() -> Captured:
    return capture(workload())


def test_the_reference_asks_no_cudnn_for_batch_norms(
    small: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, bool]] = []

    def spy(name: str) -> None:
        plain = getattr(torch, name)

        def spied(*arguments: Any) -> Any:
            seen.append((name, torch.backends.cudnn.enabled))
            return plain(*arguments)

        monkeypatch.setattr(torch, name, spied)

    spy("batch_norm")
    spy("relu")
    bench = Validator(small, "cpu", 0).bench
    bench.reference()
    assert seen == [("batch_norm", False), ("relu", True)]
    seen.clear()
    bench.eager()
    assert seen == [("batch_norm", True), ("relu", True)]
    with pytest.raises(TypeError), own_batch_norm():
        torch.batch_norm("no tensor")
    assert torch.backends.cudnn.enabled


def test_a_reference_that_breaks_leaves_the_model_as_it_was(
    small: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Validator(small, "cpu", 0).bench
    before = {name: t.clone() for name, t in bench.module.state_dict().items()}
    eager = bench.eager

    def short() -> None:
        eager()
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(bench, "eager", short)
    with pytest.raises(torch.OutOfMemoryError):
        bench.reference()
    assert all(torch.equal(before[name], t) for name, t in bench.module.state_dict().items())
    assert all(p.grad is None for p in bench.module.parameters())


def test_measured_within_a_memory(small: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager training, which needs more than the plan, runs without the limit or not at all."""
    limits: list[int | None] = []
    eager: list[int | None] = []
    bench = Validator(small, "cpu", 0).bench.__class__
    plain = bench.eager
    monkeypatch.setattr(
        rematbench.validator.check, "limit_memory", lambda most, device: limits.append(most)
    )
    monkeypatch.setattr(bench, "eager", lambda self: eager.append(limits[-1]) or plain(self))
    plan = recompute_everything(small.graph)
    checker = Validator(small, "cpu", 0)
    found = checker.measure_within(plan, 1000, repeats=2)
    assert limits == [1000, None]
    assert set(eager) == {None}
    assert (found.verdict, found.gradient_bitwise, found.eager_seconds) == ("exact", True, None)
    _, reading = checker.judge(generate(small, plan))
    assert found.measured_peak_bytes == reading.peak_bytes + checker.bench.resident_bytes

    def short(self: object) -> None:
        raise RuntimeError("GET was unable to find an engine to execute this computation")

    monkeypatch.setattr(bench, "eager", short)
    found = checker.measure_within(plan, 1000, repeats=1)
    assert (found.verdict, found.gradient_bitwise, found.gradient_max_error) == (
        "unjudged",
        None,
        None,
    )


def test_short_time_means_fewer_turns(small: Captured) -> None:
    checker = Validator(small, "cpu", 0)
    program = generate(small, program_order(small.graph))
    assert [len(s) for s in checker.times([program], Timing(9), deadline=0.0)[0]] == [3]
    assert [len(s) for s in checker.times([program], Timing(2), deadline=0.0)[0]] == [2]


def test_peak_by_the_allocators_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    def stats(allocated: tuple[int, int], requested: tuple[int, int], reserved: int) -> Any:
        text = dict.fromkeys(("reserved_bytes.all.peak", "reserved_bytes.all.current"), reserved)
        for name, (current, peak) in {"allocated": allocated, "requested": requested}.items():
            text[f"{name}_bytes.all.current"], text[f"{name}_bytes.all.peak"] = current, peak
        return text

    before, after = stats((1000, 1000), (900, 900), 4000), stats((1100, 3000), (950, 2500), 5000)
    readings = [before, before, after]
    monkeypatch.setattr(torch.accelerator, "memory_stats", lambda: readings.pop(0))
    for name in ("synchronize", "reset_peak_memory_stats"):
        monkeypatch.setattr(torch.accelerator, name, lambda: None)
    assert peak_of(lambda: None, "cuda") == PeakReading(2000, 100, 4000, 2000, 1600)
    # A reading inside another: the outer one keeps what came before.
    high, low = stats((1000, 9000), (900, 8000), 9500), stats((1000, 1200), (900, 1100), 4000)
    readings[:] = [before, before, high, low, low, low]
    inner = []
    outer = peak_of(lambda: inner.append(peak_of(lambda: None, "cuda")), "cuda")
    assert inner == [PeakReading(200, 0, 3000, 2800, 200)]
    assert outer == PeakReading(8000, 0, 8500, 500, 7100)
    assert readings == []


def test_alternatives_that_fail_are_left_out(
    small: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = with_alternatives(small)
    profile = rematbench.costmodel.profiled._profile

    def short(captured: Captured, call: Any, device: str) -> tuple[float, int]:
        if "chunked" in str(call.target) or "pack" in str(call.target):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return profile(captured, call, device)

    monkeypatch.setattr(rematbench.costmodel.profiled, "MOST_SECONDS", {"cpu": 0.0})
    monkeypatch.setattr(rematbench.costmodel.profiled, "_profile", short)
    graph = rematbench.costmodel.profiled.profiled(captured, "cpu")
    left = {implementation.name for op in graph.ops for implementation in op.implementations}
    before = {
        implementation.name for op in captured.graph.ops for implementation in op.implementations
    }
    assert "conv:chunk2" in before - left
    assert "intermediate:bits" in before - left  # nothing makes its bits any more
    assert "conv:channels_last" in left
    assert not [op.name for op in graph.ops if op.name.endswith("_bits")]
    plan = program_order(graph)
    assert Validator(captured, "cpu", 0).check(generate(captured, plan)).reason is None

    def dead(captured: Captured, call: Any, device: str) -> tuple[float, int]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(rematbench.costmodel.profiled, "_profile", dead)
    with pytest.raises(torch.OutOfMemoryError):
        rematbench.costmodel.profiled.profiled(captured, "cpu")


def test_short_calls_are_timed_in_a_row(small: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[int] = []

    def seconds(run: Any, device: str) -> float:
        ran.append(0)
        run()
        return 1e-4 * ran[-1]

    monkeypatch.setattr(rematbench.costmodel.profiled, "seconds_of", seconds)
    reading = PeakReading(5 << 20, 0, requested_bytes=4096)
    monkeypatch.setattr(rematbench.costmodel.profiled, "peak_of", lambda run, device: reading)
    call = small.code["relu"]["default"][0]

    def stand_in(*arguments: Any) -> Any:
        def run() -> torch.Tensor:
            if ran:
                ran[-1] += 1
            return torch.empty(512)  # 2048 bytes

        return run, ()

    monkeypatch.setattr(rematbench.costmodel.profiled, "stand_in", stand_in)
    assert rematbench.costmodel.profiled._profile(small, call, "cuda") == (
        pytest.approx(1e-4),
        2048,
    )
    assert set(ran[1:]) == {rematbench.costmodel.profiled.IN_A_ROW}


def test_a_device_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def old_driver() -> bool:
        warnings.warn("CUDA initialization: The driver is too old", stacklevel=1)
        return False

    built = torch.device("cuda")
    monkeypatch.setattr(torch._C, "_accelerator_getAccelerator", lambda: built)
    monkeypatch.setattr(torch.cuda, "is_available", old_driver)
    with (
        pytest.raises(ConfigError, match=r"no CUDA device here \(CUDA init.* is too old\); use"),
    ):
        require("cuda")

    def busy(size: int, device: str) -> None:
        raise RuntimeError("CUDA error: all CUDA-capable devices are busy or unavailable\nmore")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "empty", busy)
    with pytest.raises(ConfigError, match=r"cannot be used: .* busy or unavailable; free it"):
        require("cuda")


@pytest.mark.parametrize(
    ("error", "memory"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`"), True),
        (RuntimeError("FIND was unable to find an engine to execute this computation"), True),
        (MemoryError(), True),
        (RuntimeError("CUDA error: an illegal memory access was encountered"), False),
        (ConfigError("out of memory"), False),
    ],
)  # fmt: skip
def test_what_running_out_of_memory_looks_like(error: Exception, memory: bool) -> None:
    assert is_out_of_memory(error) == memory


def test_numerics_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    off = {"tf32": False, "cudnn_benchmark": False, "deterministic": False}
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H100")
    try:
        for on in (True, False):
            use_numerics(**off | {"tf32": on})
            assert rematbench.costmodel.device.device_name("cuda") == "NVIDIA H100" + ", TF32" * on
            kinds = (torch.backends.cuda.matmul, torch.backends.cudnn.conv)
            assert all((kind.fp32_precision == "tf32") == on for kind in kinds)
            torch.compile(lambda x: x @ x, backend="eager")(torch.rand(2, 2))  # reads the switches
    finally:
        use_numerics(**off)


class Fakes:
    """A ``torch.cuda`` that captures nothing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        stream = SimpleNamespace(wait_stream=lambda other: None)
        graph = SimpleNamespace(
            replay=lambda: self.done.append("replay"), reset=lambda: self.done.append("reset")
        )
        fakes = {
            "CUDAGraph": lambda: graph,
            "Stream": lambda: stream,
            "current_stream": lambda: stream,
            "stream": lambda given: nullcontext(),
            "set_stream": lambda given: self.done.append("restore"),
            "graph": lambda graph, **options: nullcontext(),
        }
        for name, fake in fakes.items():
            monkeypatch.setattr(torch.cuda, name, fake)
        monkeypatch.setattr(rematbench.validator.replay, "empty_cache", lambda device: None)
        monkeypatch.setattr(
            rematbench.validator.replay, "seconds_of", lambda run, device: run() or 0.5
        )
        rematbench.validator.replay._capture_stream.cache_clear()


def test_replaying(small: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    fakes = Fakes(monkeypatch)
    checker = Validator(small, "cpu", 0)
    monkeypatch.setattr(checker, "device", "cuda")
    once = generate(small, program_order(small.graph))
    found = rematbench.validator.replay.replayed_seconds(checker, once, 3)
    assert found == {"cuda_graph_seconds": 0.5}
    assert fakes.done == [*["replay"] * 4, "restore", "reset"]
    fakes.done.clear()
    again = generate(small, recompute_everything(small.graph))
    found = rematbench.validator.replay.replayed_seconds(checker, again, 3)
    assert found == {"cuda_graph": "the plan repeats random draws, which a CUDA graph cannot"}
    assert fakes.done == ["restore", "reset"]
    rematbench.validator.replay._capture_stream.cache_clear()
