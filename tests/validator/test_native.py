"""PyTorch's own checkpointing, run natively and judged like a plan."""

from __future__ import annotations

import functools

import pytest
import torch

from graphs.capture import Captured, capture
from graphs.errors import ConfigError, NotApplicable
from graphs.plan import program_order
from graphs.simulate import simulate
from graphs.zoo import make_model
from strategies.base import Problem
from strategies.torch_budget import SOLVERS, TorchBudget, halvings
from strategies.torch_checkpoint import TorchCheckpoint
from validator.native import measure_native


@functools.cache
def captured() -> Captured:
    torch.manual_seed(0)
    return capture(make_model("resnet32", batch_size=16, resolution=32, blocks=1))


def test_checkpoint_updates_buffers_twice() -> None:
    found = measure_native(captured(), {"how": "checkpoint"}, "cpu", repeats=1)
    assert found.wrapped
    assert found.measured_peak_bytes != found.eager_peak_bytes
    assert found.status == "failed"  # gradients are right, running statistics are not
    assert "buffer" in found.reason


def test_what_goes_wrong_is_a_result() -> None:
    how = {"how": "torch.compile", "ratio": 7.0, "solver": "dp"}
    found = measure_native(captured(), how, "cpu", repeats=1)
    assert found.status == "failed"
    assert "memory_budget" in found.reason or "valid ranges" in found.reason
    with pytest.raises(ConfigError, match="how=magic"):
        measure_native(captured(), {"how": "magic"}, "cpu")


def test_compiled_by_pytorch() -> None:
    how = {"how": "torch.compile", "ratio": 0.5, "solver": "dp"}
    found = measure_native(captured(), how, "cpu", repeats=1)
    assert found.status == "ok"


def test_the_partitioner_as_a_strategy() -> None:
    graph = captured().graph
    base = simulate(graph, program_order(graph))
    budget = int(0.95 * base.peak_bytes)
    found = TorchBudget(step=0.5).plan(Problem(graph, budget, captured=captured()))
    assert simulate(graph, found.plan).peak_bytes <= budget
    assert found.details["ratio"] in (0.0, 0.5)
    assert found.variant in SOLVERS
    plain = TorchBudget().plan(Problem(graph, captured=captured()))
    assert simulate(graph, plain.plan).cost == base.cost
    with pytest.raises(NotApplicable, match="PyTorch model"):
        TorchBudget().plan(Problem(graph))
    with pytest.raises(ConfigError, match="solver=magic"):
        TorchBudget(solver="magic")


def test_segments() -> None:
    graph = captured().graph
    base = simulate(graph, program_order(graph))
    found = TorchCheckpoint().plan(Problem(graph))
    trace = simulate(graph, found.plan)
    assert trace.peak_bytes < base.peak_bytes
    assert found.details["segments"] > 2
    with pytest.raises(NotApplicable, match="segments"):
        TorchCheckpoint(segments=10_000).plan(Problem(graph))


def test_halvings() -> None:
    assert halvings(0.25) == [1.0, 0.0, 0.5, 0.25, 0.75]
    assert sorted(halvings(1 / 16)) == [k / 16 for k in range(17)]
