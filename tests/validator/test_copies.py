"""Plans that copy to the host, executed: eager training's bits, both peaks, and no hang."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from rematbench import costmodel, validator
from rematbench.base.errors import ExecutionError, InvalidPlan
from rematbench.costmodel.device import random_state_bytes
from rematbench.graphs.budget import Budget
from rematbench.graphs.link import Link
from rematbench.graphs.link_choice import LinkChoice
from rematbench.graphs.plan import Plan, has_copies, program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.job import run
from rematbench.jobs.settings import Settings
from rematbench.strategies import registry
from rematbench.strategies.base import Problem
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.validator import Measurement, Validator, copier, cuda_copier, generate
from rematbench.validator.copiers import make_copier
from rematbench.validator.copies import CopyPlan, copy_plan, issue_order

NETWORK = """
import torch
from torch import nn

def net():
    layers = [layer for _ in range(9) for layer in (nn.Linear(64, 64), nn.Tanh())]
    return nn.Sequential(*layers), (torch.randn(99, 64),), lambda m, x: m(x).square().sum()
"""
LINKS = (Link(1e9, 1e9), Link(5e9, 4e9, 1e-5, shared=True))


def mlp() -> Workload:
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.2)]
    module = nn.Sequential(*layers, nn.Linear(32, 5))
    batch = lambda: (torch.randn(256, 32), torch.randint(5, (256,)))  # noqa: E731
    return Workload("mlp", module, batch, lambda m, x, y: F.cross_entropy(m(x), y))


def convolutions() -> Workload:
    def layer(width: int) -> list[nn.Module]:
        return [nn.Conv2d(width, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]

    module = nn.Sequential(*layer(3), *layer(8), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 5))
    batch = lambda: (torch.randn(16, 3, 16, 16), torch.randint(5, (16,)))  # noqa: E731
    return Workload("convolutions", module, batch, lambda m, x, y: F.cross_entropy(m(x), y))


def attention() -> Workload:
    layer = nn.TransformerEncoderLayer(32, 2, 64, dropout=0.1, batch_first=True)
    module = nn.TransformerEncoder(layer, 2)
    return Workload("attention", module, lambda: (torch.randn(8, 24, 32),), lambda m, x: m(x).sum())


@pytest.fixture(scope="module", params=[mlp, convolutions, attention])
def net(request: pytest.FixtureRequest) -> Captured:
    torch.manual_seed(0)
    found = capture(request.param())
    graph = costmodel.apply("profiled", found.graph, found, device="cpu")
    return replace(found, graph=replace(graph, random_state_bytes=random_state_bytes("cpu")))


def planned(net: Captured, name: str, link: Link) -> Plan:
    peak, floor = simulate(net.graph, program_order(net.graph)).peak_bytes, net.graph.floor_bytes()
    budget = max(int(0.7 * peak), (floor + peak) // 2) if name == "hybrid" else None
    problem = Problem(net.graph, budget, 3.0, captured=net, link=link)
    found = registry.make(name).plan(problem).plan
    assert found is not None
    return found


def ran(net: Captured, plan: Plan, link: Link) -> Measurement:
    return Validator(net, "cpu", 0).measure(plan, validator.check.Timing(1), link)


@pytest.mark.parametrize(
    ("name", "link"),
    [("hybrid", LINKS[0]), ("offload_dots", LINKS[0]), *(("offload_all", link) for link in LINKS)],
)
def test_bits_and_both_peaks(net: Captured, name: str, link: Link) -> None:
    plan = planned(net, name, link)
    trace, found = simulate(net.graph, plan, link), ran(net, plan, link)
    assert (found.reason, found.gradient_bitwise) == (None, True)
    assert found.measured_peak_bytes == pytest.approx(trace.peak_bytes, rel=0.01)
    if trace.copies is not None:
        assert found.copies is not None
        assert found.copies.measured_host_peak_bytes == trace.host_peak_bytes
        assert set(found.copies.measured_waiting) == {"compute", "out", "in"}


@pytest.fixture(scope="module")
def moved() -> tuple[Captured, Plan]:
    """A plan that copies, in FLOPs: at full speed."""
    torch.manual_seed(0)
    found = capture(mlp())
    found = replace(found, graph=costmodel.apply("flops", found.graph, found))
    return found, planned(found, "offload_all", LINKS[0])


def test_delays_change_no_bit(
    moved: tuple[Captured, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt = ran(*moved, LINKS[0])
    assert prompt.copies is not None
    plain, chosen = copier.move_bytes, random.Random(0)

    def late(*copy: int) -> None:
        time.sleep(chosen.random() * 0.003)
        plain(*copy)

    monkeypatch.setattr(copier, "move_bytes", late)
    found = ran(*moved, LINKS[0])
    assert (found.reason, found.gradient_bitwise) == (None, True)
    assert found.copies is not None
    peaks = found.measured_peak_bytes, found.copies.measured_host_peak_bytes
    assert peaks == (prompt.measured_peak_bytes, prompt.copies.measured_host_peak_bytes)


def test_a_job_whose_copies_fail_is_a_failed_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "copied_net.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = {"kind": "python", "name": "python", "target": "copied_net:net", "options": {}}
    settings = Settings(
        model=model | {"batch_size": None, "resolution": None},
        strategy="offload_all",
        target="rematbench.strategies.offload.planner.OffloadAll",
        options={},
        budget=Budget(),
        time_limit=9.0,
        costmodel="flops",
        preset="h100",
        threads=1,
        cache=None,
        seed=0,
        accounting="full",
        device="cpu",
        repeats=1,
        link=LinkChoice("given", 1.0, 1.0),
    )
    row = run(settings, tmp_path)
    assert (row["status"], row["gradient_bitwise"]) == ("ok", True), row["reason"]
    extra = row["extra"]
    assert extra["measured_host_peak_bytes"] == extra["host_peak_bytes"]
    assert {*extra["measured_link"]} == {"out", "in"}

    # Not a function of this file: what raises in one is taken for the model's own code.
    monkeypatch.setattr(copier, "move_bytes", None)
    row = run(replace(settings, repeats=2), tmp_path)  # else the measurement is reused
    assert row["status"] == "failed"
    assert str(row["reason"]).startswith("the thread that copies out: TypeError: 'NoneType'")


@pytest.mark.parametrize("after", [0, 3, 7])
def test_a_thread_that_fails_is_told(
    moved: tuple[Captured, Plan], monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    plain, done = copier.move_bytes, list[int]()

    def broken(*copy: int) -> None:
        if len(done) == after:
            raise OSError("the bus is gone")
        done.append(1)
        plain(*copy)

    monkeypatch.setattr(copier, "move_bytes", broken)
    with pytest.raises(ExecutionError, match=r"thread that copies .*the bus is gone"):
        ran(*moved, LINKS[0])


def test_a_thread_that_is_gone_hangs_nobody(
    moved: tuple[Captured, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copier, "ALIVE", 0.01)
    monkeypatch.setattr(copier._Engine, "run", lambda self: None)
    with pytest.raises(ExecutionError, match="has died"):
        ran(*moved, LINKS[0])


def test_a_host_without_memory(
    moved: tuple[Captured, Plan], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: object, size: int) -> None:
        raise MemoryError(f"Unable to allocate {size} bytes")

    monkeypatch.setattr(copier.ThreadCopier, "_allocate", full)
    with pytest.raises(ExecutionError, match=r"the host has no .*Unable to allocate"):
        ran(*moved, LINKS[0])


def test_a_model_that_fails_leaves_no_thread(moved: tuple[Captured, Plan]) -> None:
    program = generate(*moved, LINKS[0])
    with pytest.raises(ValueError, match="mine"), program.copier:  # type: ignore[union-attr]
        raise ValueError("mine")
    assert not any(engine.is_alive() for engine in program.copier._engines)  # type: ignore


def test_no_link(moved: tuple[Captured, Plan]) -> None:
    with pytest.raises(InvalidPlan, match="no link to the host"):
        generate(*moved)


def test_the_order_of_issue_costs_what_the_plan_costs(moved: tuple[Captured, Plan]) -> None:
    """Offloads as late as they may be, and issued as early: the same times, bytes and pool."""
    net, plan = moved
    graph = net.graph
    for link in LINKS:
        codes = plan.codes(graph).tolist()
        order = issue_order(graph, codes, link.shared)
        late, early = (
            simulate(graph, Plan.from_codes(graph, each), link) for each in (codes, order)
        )
        assert has_copies(graph, np.array(order))
        assert early.cost == pytest.approx(late.cost, rel=1e-12)
        assert (early.peak_bytes, early.host_peak_bytes) == (
            late.peak_bytes,
            late.host_peak_bytes,
        )
        made = copy_plan(graph, order, link)
        assert made.host_bytes == late.host_peak_bytes
        assert all(0 <= a < b <= made.host_bytes for each in made.places for a, b in each)


class LateStream:
    """Stands in for a CUDA stream that does its tasks as late as events allow, or sooner.

    Args:
        chosen: draws whether it catches up when it is given something.
    """

    current: LateStream

    def __init__(self, chosen: random.Random) -> None:
        self.tasks, self.done, self.chosen = list[Any](), 0, chosen

    @property
    def given(self) -> int:
        return self.done + len(self.tasks)

    def give(self, task: Any) -> None:
        self.tasks.append(task)
        if self.chosen.random() < 0.3:
            self.run(self.given)

    def run(self, to: int) -> None:
        while self.done < to:
            self.done += 1
            self.tasks.pop(0)()

    def record_event(self, event: Any) -> LateEvent:
        return LateEvent(self, self.given)

    def wait_event(self, event: LateEvent) -> None:
        self.give(partial(event.stream.run, event.place))


class LateEvent:
    """Stands in for an event: a place in a stream."""

    def __init__(self, stream: LateStream, place: int) -> None:
        self.stream, self.place = stream, place

    def elapsed_time(self, other: LateEvent) -> float:
        return 1.0 + other.place - self.place if other.stream is self.stream else 1.0


class Compute(LateStream):
    """Python computes at once: what the stream is given, it does."""

    def give(self, task: Any) -> None:
        task()


@pytest.mark.parametrize("link", LINKS)
@pytest.mark.parametrize("seed", range(3))
def test_events_on_cuda_are_enough(
    moved: tuple[Captured, Plan], monkeypatch: pytest.MonkeyPatch, link: Link, seed: int
) -> None:
    """Copies by streams, as late as the events allow: the bits and bytes are the same."""
    chosen = random.Random(seed)
    compute = Compute(chosen)

    @contextmanager
    def on(stream: LateStream) -> Iterator[None]:
        LateStream.current = stream
        yield

    def late(target: torch.Tensor, source: torch.Tensor) -> None:
        LateStream.current.give(partial(target.copy_, source))

    monkeypatch.setattr(cuda_copier, "issue_copy", late)
    monkeypatch.setattr(cuda_copier, "_event", lambda: None)
    monkeypatch.setattr(torch.cuda, "Stream", lambda: LateStream(chosen))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda: compute)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    register = SimpleNamespace(cudaHostRegister=lambda *_: 0, cudaHostUnregister=lambda *_: 0)
    monkeypatch.setattr(torch.cuda, "cudart", lambda: register)
    monkeypatch.setattr(torch.cuda, "check_error", lambda code: None)
    monkeypatch.setattr(cuda_copier.StreamCopier, "_device", "cpu")
    program = generate(*moved, link)
    assert program.copies is not None
    vars(program)["copier"] = host = cuda_copier.StreamCopier(program.copies)
    judged, reading = Validator(moved[0], "cpu", 0).judge(program)
    assert (judged.reason, judged.verdict) == (None, "exact")
    plain = Validator(moved[0], "cpu", 0).judge(generate(*moved, link))[1]
    assert reading.peak_bytes == plain.peak_bytes
    found, trace = host.reading(), simulate(moved[0].graph, moved[1], link)
    assert trace.copies is not None
    assert found.host_peak_bytes == trace.host_peak_bytes
    assert found.bytes == (trace.copies.out_bytes, trace.copies.in_bytes)
    assert all(seconds > 0 for seconds in (found.waiting[0], *found.seconds))


def test_a_device_without_a_copier_says_so() -> None:
    with pytest.raises(ExecutionError, match=r"device=xpu: .* cpu and cuda only"):
        make_copier(CopyPlan(0, ()), "xpu")
