"""Training with a host: eager's bits, both peaks as planned, and a clear word where it fails."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import rematbench
from rematbench.base.errors import ConfigError, ExecutionError, Infeasible, PlanError
from rematbench.costmodel.device import peak_of
from rematbench.graphs.link import Link
from rematbench.training import Step, step as module
from rematbench.validator import copier, link_meter

X = torch.randn(256, 32, generator=torch.Generator().manual_seed(0))
Y = torch.arange(256) % 5


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Links are measured anew, and kept here."""
    monkeypatch.setattr(module, "cache_root", lambda: tmp_path)
    monkeypatch.setattr(link_meter, "LARGE", 2**18)
    link_meter.measured_link.cache_clear()
    yield tmp_path
    link_meter.measured_link.cache_clear()


def net() -> nn.Module:
    torch.manual_seed(0)
    parts = [(nn.Linear(32, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.2)) for _ in range(5)]
    return nn.Sequential(*(layer for each in parts for layer in each), nn.Linear(32, 5))


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def applied(model: nn.Module, plan: Any = "offload_all", **options: Any) -> Step:
    options = {"host": "1MiB", "link": Link(1.0, 1.0), "costmodel": "flops"} | options
    return rematbench.apply(model, loss, (X, Y), plan, **options)


def assert_same(ours: nn.Module, theirs: nn.Module) -> None:
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert p.grad is not None
        assert q.grad is not None
        assert torch.equal(p.grad, q.grad)
    assert all(map(torch.equal, ours.buffers(), theirs.buffers()))


def eager(model: nn.Module, seed: int) -> None:
    torch.manual_seed(seed)
    loss(model, X, Y).backward()


@pytest.mark.parametrize(
    ("plan", "options"),
    [
        (None, {"budget": 0.6, "link": None, "time_limit": 1.0}),
        ("offload_all", {"link": {"out": "1GB/s", "in": 2e9}}),
        ("offload_hidden", {"link": "pcie3"}),
    ],
    ids=["our search, link measured", "a slow link", "recomputed, too"],
)
def test_bits_and_both_peaks(plan: str | None, options: dict[str, Any]) -> None:
    ours = net()
    theirs = copy.deepcopy(ours)
    step = applied(ours, plan, costmodel="profiled", **options)  # it knows workspaces
    copies, held = step.trace.copies, step.graph.resident_bytes
    assert copies is not None
    for seed in range(3):
        ours.zero_grad()
        theirs.zero_grad()
        torch.manual_seed(seed)
        found = peak_of(lambda: step(X, Y), "cpu")
        eager(theirs, seed)
        assert_same(ours, theirs)
        assert found.peak_bytes <= step.trace.peak_bytes - held
        assert step.copied is not None
        assert step.copied.host_peak_bytes == copies.host_peak_bytes <= 2**20
        assert step.copied.bytes == (copies.out_bytes, copies.in_bytes)
    assert f"{copies.out_bytes} bytes to the host" in repr(step)


def test_the_link_is_measured_once_and_kept(
    own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"link": None, "costmodel": "profiled", "check": False}
    first = applied(net(), **options)
    assert first.link.both
    assert first.copied is None  # has not run
    (file,) = (own_cache / "compiled" / "links").iterdir()
    link_meter.measured_link.cache_clear()
    with monkeypatch.context() as patched:
        patched.setattr(link_meter, "_measured", None)  # it would fail
        assert applied(net(), **options).link == first.link
    for text in ('{"out": 1, "in": 0, "latency": 0}', "[]"):
        file.write_text(text)
        link_meter.measured_link.cache_clear()
        assert applied(net(), **options).link.both


def test_a_plan_file_that_copies(tmp_path: Path) -> None:
    ours, path = net(), tmp_path / "net.plan.json"
    step = applied(ours)
    step.save(path)
    with pytest.raises(PlanError, match=r"statement \d+ of the plan \(offload of '.*'\).*host="):
        applied(net(), path, host=None, link=None)
    with pytest.raises(Infeasible, match=r"puts \d+ bytes on the host, host=1024; give a larger"):
        applied(net(), path, host="1KiB")
    theirs = copy.deepcopy(ours)
    torch.manual_seed(3)
    applied(ours, path)(X, Y)
    eager(theirs, 3)
    assert_same(ours, theirs)


def test_what_copies_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    """No gradient has changed; the model trains without a plan, and by the step again."""
    ours = net()
    step, theirs = applied(ours), copy.deepcopy(ours)
    with monkeypatch.context() as patched:
        patched.setattr(copier, "ALIVE", 0.01)
        patched.setattr(copier, "move_bytes", None)
        with pytest.raises(ExecutionError, match="the thread that copies out: TypeError"):
            step(X, Y)
        patched.setattr(copier._Engine, "run", lambda self: None)
        with pytest.raises(ExecutionError, match="the thread that copies out has died"):
            step(X, Y)
    assert all(parameter.grad is None for parameter in ours.parameters())
    eager(ours, 1)
    ours.zero_grad()
    eager(theirs, 1)
    theirs.zero_grad()
    torch.manual_seed(2)
    step(X, Y)
    eager(theirs, 2)
    assert_same(ours, theirs)


def test_the_host_has_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: Any, size: int) -> None:
        raise MemoryError("nothing left")

    ours = net()
    monkeypatch.setattr(copier.ThreadCopier, "_allocate", none_left)
    with pytest.raises(ExecutionError, match=r"the host has no \d+ bytes .*give a smaller host="):
        applied(ours)
    eager(ours, 0)
    assert_same(ours, ours)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"host": "lots"}, "host=lots: give bytes"),
        ({"link": "pcie9"}, "link=pcie9: unknown"),
        ({"link": "given"}, "link=given: give its numbers"),
        ({"link": "0GB/s", "plan": "hybrid"}, "per second, and costs are in flop"),
        ({"link": {"out": 1.0}}, "link.in is missing"),
        ({"link": {"up": 1.0}}, "link.up: unknown; give out, in"),
        ({"link": None}, 'costs are in flop; give costmodel="profiled"'),
    ],
)
def test_mistakes(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        applied(net(), **options)
