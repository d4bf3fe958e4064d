"""Parameters without data: the same graph, and no memory."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import CaptureError
from rematbench.graphs.budget import Budget
from rematbench.jobs.settings import Settings
from rematbench.jobs.sources import load
from rematbench.strategies.anytime_joint.planner import AnytimeJoint
from rematbench.strategies.registry import entry
from rematbench.tracing import Captured, Workload, capture
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.costless import costless_parameters
from rematbench.zoo import make_model

# Batch norms; dropout and a tied weight; a recurrent trunk.
MODELS: dict[str, dict[str, Any]] = {
    "resnet18": {"resolution": 32},
    "unet": {"resolution": 32, "base_channels": 4},
    "transformer_lm": {"layers": 2, "width": 32, "heads": 2, "sequence_length": 16},
    "cross_modal": {"resolution": 32, "trunk": "resnet18", "hidden": 8, "sequence_length": 3},
}


def costless(name: str, **options: Any) -> Workload:
    with costless_parameters():
        return make_model(name, batch_size=2, **options)


def facts(captured: Captured) -> tuple[object, ...]:
    graph = replace(captured.graph, random_state_bytes=0)  # of a device, where one is
    return graph, captured.code, captured.residents, captured.tensors, captured.gradients


@pytest.mark.parametrize("name", MODELS)
def test_the_same_graph(name: str) -> None:
    real = make_model(name, batch_size=2, **MODELS[name])
    assert facts(capture(costless(name, **MODELS[name]))) == facts(capture(real))


def test_the_same_alternatives() -> None:
    """Some rules look at the scales of batch norms."""
    options = MODELS["resnet18"]
    real = make_model("resnet18", batch_size=2, **options)
    graphs = [
        with_alternatives(capture(model), AnytimeJoint().kinds).graph
        for model in (costless("resnet18", **options), real)
    ]
    assert graphs[0] == graphs[1]
    assert any(len(op.implementations) > 1 for op in graphs[0].ops)


@pytest.mark.parametrize("front", ["trace", "dynamo"])
def test_a_type_and_a_front_end_of_choice(front: str) -> None:
    options = MODELS["transformer_lm"]
    real = make_model("transformer_lm", batch_size=2, **options)
    models = costless("transformer_lm", **options), real
    found, wanted = (capture(m.cast(torch.bfloat16), front=front) for m in models)
    assert found.graph == wanted.graph


def test_a_large_model_takes_nothing() -> None:
    workload = costless("transformer_lm", layers=1, width=8192, heads=64, sequence_length=512)
    captured = capture(workload)  # 1.2e9 parameters
    assert captured.graph.resident_bytes > 4e9
    assert all(isinstance(p, FakeTensor) for p in workload.module.parameters() if p.dim() > 1)
    assert sum(p.numel() for p in workload.module.parameters() if p.dim() == 1) < 1e6


def test_one_parameter_of_two_names_stays_one() -> None:
    with costless_parameters():
        shared = nn.Parameter(torch.ones(4, 4))
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        first.weight = second.weight = shared
    assert first.weight is second.weight
    module = nn.Sequential(first, second).to(torch.float64)
    captured = capture(
        Workload("tied", module, lambda: (torch.ones(2, 4).double(),), lambda m, x: m(x).sum())
    )
    assert first.weight is second.weight
    assert list(captured.gradients) == ["0.weight", "0.bias", "1.bias"]


def test_a_module_on_the_meta_device() -> None:
    def workload(device: str) -> Workload:
        with torch.device(device):
            module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        return Workload("mine", module, lambda: (torch.ones(2, 4),), lambda m, x: m(x).sum())

    assert facts(capture(workload("meta"))) == facts(capture(workload("cpu")))


class Reads(nn.Module):
    """Its constructor looks at a parameter's data."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.bound = 2 * self.layer.weight.abs().max().item()

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x).clamp(max=self.bound).sum()


def reads() -> tuple[nn.Module, tuple[Tensor]]:
    return Reads(), (torch.ones(2, 4),)


def plain() -> tuple[nn.Module, tuple[Tensor]]:
    return nn.Sequential(nn.Linear(4, 1), nn.Flatten(0), Mean()), (torch.ones(2, 4),)


class Mean(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.mean()


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == FOR_THE_USER]


def normed() -> tuple[nn.Module, tuple[Tensor]]:
    module = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), Mean())
    return module, (torch.ones(2, 1, 8, 8),)


def job(function: str, device: str, strategy: str = "checkpoint_all") -> Captured:
    model = {"kind": "python", "name": "python", "target": f"{__name__}:{function}"}
    settings = Settings(
        **{"model": model, "strategy": strategy, "target": entry(strategy).path, "options": {}},
        **{"budget": Budget(), "time_limit": 1, "costmodel": "flops", "preset": "v100"},
        **{"device": device, "repeats": 1, "seed": 0, "accounting": "full", "threads": None},
        cache=None,
    )
    captured = load(settings).captured
    assert captured is not None
    return captured


def test_jobs_that_run_nothing_take_none(caplog: pytest.LogCaptureFixture) -> None:
    without, real = (job("plain", device) for device in ("none", "cpu"))
    assert facts(without) == facts(real)
    kinds = [type(c.workload.module[0].weight) for c in (without, real)]  # type: ignore[index]
    assert kinds == [FakeTensor, nn.Parameter]
    assert not logged(caplog)


@pytest.mark.parametrize("strategy", ["monet", "gist", "checkmate_d"])
def test_who_chooses_implementations_sees_parameters(strategy: str) -> None:
    """Batch norm's gradient from its output divides by the weights: they have to have data."""
    alike, chosen = (job("normed", device, strategy) for device in ("cpu", "none"))
    assert facts(chosen) == facts(alike)


def test_a_model_that_reads_its_parameters_gets_real_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, FOR_THE_USER):
        without = job("reads", "none")
    (line,) = logged(caplog)
    assert "its parameters take memory" in line
    assert "test_costless.py" in line
    assert facts(without)[0] == facts(job("reads", "cpu"))[0]


def broken() -> tuple[nn.Module, tuple[Tensor]]:
    return Reads(), (torch.ones(2, 5),)


def test_what_is_wrong_is_told_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(CaptureError, match=r"cannot be traced"):
        job("broken", "none")
    assert not logged(caplog)
