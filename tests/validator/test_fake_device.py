"""Jobs, the suite and training on an accelerator by PyTorch's interface: a stand-in on the CPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import suites
import torch
from fake_device import NAME, Fake, fake_device
from helpers import recompute_everything
from torch import nn

from rematbench import validator
from rematbench.cli.suite import run
from rematbench.costmodel.profiled import profiled
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.tracing.recorder import record_workload
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload

NETWORK = """
from torch import nn
import torch

def deep(batch_size=256):
    layers = [layer for _ in range(12) for layer in (nn.Linear(16, 16), nn.Tanh())]
    batch = (torch.randn(batch_size, 16),)
    return nn.Sequential(*layers), batch, lambda module, x: module(x).sum()
"""


@pytest.fixture
def fake() -> Iterator[Fake]:
    with fake_device() as found:
        yield found


def small() -> Workload:
    torch.manual_seed(0)
    layers = [nn.Linear(32, 128), nn.Tanh(), nn.Dropout(0.5), nn.Linear(128, 128), nn.Sigmoid()]
    return Workload("small", nn.Sequential(*layers), lambda: (torch.rand(64, 32),), _loss)


def _loss(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return module(x).square().sum()


@pytest.mark.parametrize("make", [program_order, recompute_everything])
def test_a_plan_on_it(fake: Fake, make: object) -> None:
    """Gradients, random draws that are replayed, peak and times."""
    captured = capture(small(), NAME)
    plan = make(captured.graph)  # type: ignore[operator]
    measured = validator.measure(captured, plan, device=NAME, repeats=3)
    assert measured.reason is None
    assert measured.gradient_max_error == 0
    assert measured.measured_seconds > 0
    assert measured.measured_reserved_bytes >= measured.measured_peak_bytes
    # Nothing but tensors takes memory here; an allocator of 512 bytes rounds some of them up.
    peak = simulate(captured.graph, plan).peak_bytes
    assert (
        measured.requested_bytes <= measured.measured_peak_bytes <= measured.requested_bytes * 1.1
    )
    assert measured.requested_bytes == pytest.approx(peak, rel=0.02)
    assert {"memory_stats", "get_rng_state", "synchronize", "empty_cache"} <= fake.calls


def test_within_a_memory(fake: Fake) -> None:
    captured = capture(small(), NAME)
    plan = program_order(captured.graph)
    measured = validator.measure(captured, plan, device=NAME, repeats=1, memory=1 << 30)
    assert measured.reason is None
    assert "set_per_process_memory_fraction" in fake.calls
    assert fake.share == 1.0


def test_profiles_and_logs(fake: Fake) -> None:
    graph = profiled(capture(small(), NAME), NAME)
    assert graph.cost_unit == "second"
    assert all(op.implementations[0].cost > 0 for op in graph.ops)
    assert len(record_workload(small(), NAME).events) > 20


def test_the_suite(fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step of a run on a GPU: planners in their processes, turns, rows and tables."""
    (tmp_path / "fake_networks.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=":")
    cases = {
        "models": [["model=python", "model.target=fake_networks:deep"]],
        "budgets": [0.7],
        "strategies": ["chen_greedy", "ap_greedy"],
        "alone": ["torch_checkpoint"],
    }
    out = tmp_path / "out"
    device = {"name": NAME, "repeats": 2}
    rows = run(suites.made(out, device=device, cases=cases, cuda_graphs=True))
    names = ["ap_greedy", "checkpoint_all", "chen_greedy", "torch_checkpoint"]
    assert [(row["strategy"], row["status"]) for row in rows] == [(name, "ok") for name in names]
    for row in rows:
        assert row["device"] == "Fake Device 9"
        assert row["gradient_max_error"] == 0
        assert row["measured_seconds"] > 0
        assert row["measured_reserved_bytes"] >= row["measured_peak_bytes"]
        assert row["extra"]["numerics"] == dict.fromkeys(row["extra"]["numerics"], False)
    report = json.loads((out / "environment.json").read_text())
    assert report["memory_bytes"] > report["free_memory_bytes"] > 0
    assert all(row["extra"]["cuda_graph"] == "only CUDA has graphs" for row in rows[:3])
