"""What an optimizer holds, and what a peak consists of."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import recompute_everything
from job_settings import settings_of
from torch import nn

from rematbench.base.errors import ConfigError
from rematbench.graphs.budget import Budget
from rematbench.graphs.builders.synthetic import join, random_graph, with_backward
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.first_row import first_row
from rematbench.jobs.job import run
from rematbench.jobs.optimizer import (
    check_optimizer,
    optimizer_bytes,
    parameter_bytes,
    with_optimizer,
)
from rematbench.jobs.settings import Settings
from rematbench.rows import provenance
from rematbench.rows.memory_parts import STATE, memory_parts
from rematbench.rows.row import Row
from rematbench.strategies.base import Problem
from rematbench.strategies.joins import JoinDp
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload

NETWORK = """
import torch
from torch import nn

def frozen(batch_size=8):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 4), nn.BatchNorm1d(4))
    module[0].weight.requires_grad_(False)
    return module, (torch.randn(batch_size, 64),), lambda m, x: m(x).square().sum()
"""
ELEMENTS = (128 + 4 * 128 + 4) + 8  # what has gradients: not 128 * 64 weights


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    name = f"held_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))
    model = {"kind": "python", "name": "python", "target": f"{name}:frozen", "options": {}}
    model |= {"batch_size": 8, "resolution": None}
    target = "rematbench.strategies.chen.LinearizedSqrt"
    return settings_of(model, "linearized_sqrt", target, device="cpu")


def state(optimizer: torch.optim.Optimizer) -> int:
    """Bytes that an optimizer holds after a step, counters aside."""
    kept = [value for each in optimizer.state.values() for key, value in each.items()]
    return sum(t.nbytes for t in kept if isinstance(t, torch.Tensor) and t.dim())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", ["sgd", "momentum", "adamw"])
def test_state_is_what_torch_optim_holds(name: str, dtype: torch.dtype) -> None:
    parameter = nn.Parameter(torch.ones(7, 11, dtype=dtype))
    parameter.grad = torch.ones_like(parameter)
    made = {
        "sgd": lambda: torch.optim.SGD([parameter]),
        "momentum": lambda: torch.optim.SGD([parameter], momentum=0.9),
        "adamw": lambda: torch.optim.AdamW([parameter]),
    }[name]()
    made.step()
    assert parameter_bytes(name, 77, dtype, master_weights=False) == state(made)


def test_master_weights_and_states_of_a_byte() -> None:
    low, full = torch.bfloat16, torch.float32
    # The usual 16 bytes of mixed precision, without the parameter and its gradient of 2 each.
    assert parameter_bytes("adamw", 100, low) == 12 * 100
    assert parameter_bytes("adamw", 100, full, master_weights=True) == 8 * 100
    assert parameter_bytes("momentum", 100, low) == 2 * 100
    assert parameter_bytes("momentum", 100, low, master_weights=True) == 8 * 100
    assert parameter_bytes("sgd", 100, low, master_weights=True) == 4 * 100
    assert parameter_bytes("none", 100, low, master_weights=True) == 0
    # One byte per element and state, four per block of 256; small parameters in float32.
    assert parameter_bytes("adamw8bit", 4096, low) == 2 * (4096 + 4 * 16)
    assert parameter_bytes("adamw8bit", 4097, full) == 2 * (4097 + 4 * 17)
    assert parameter_bytes("adamw8bit", 4095, low) == 8 * 4095
    assert parameter_bytes("adamw8bit", 4096, low, master_weights=True) == 6 * 4096 + 2 * 4 * 16


def test_a_job_counts_it_in_budget_peak_and_measurement(settings: Settings, tmp_path: Path) -> None:
    def made(name: str, **changes: object) -> Row:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return run(replace(settings, optimizer=name, **changes), folder)

    plain, held = made("none"), made("adamw")
    more = 2 * 4 * ELEMENTS
    for column in ("peak_bytes", "checkpoint_all_peak_bytes", "measured_peak_bytes"):
        assert held[column] == plain[column] + more
    for key in ("resident_bytes", "floor_bytes", "eager_peak_bytes"):
        assert held["extra"][key] == plain["extra"][key] + more
    assert held["peak_error"] == pytest.approx(0, abs=1e-3)
    assert (plain["status"], held["status"]) == ("ok", "ok")
    assert held["gradient_bitwise"]
    assert held["graph_hash"] != plain["graph_hash"]
    parts = held["extra"]["memory"]
    assert sum(parts.values()) == held["peak_bytes"]
    assert parts["optimizer"] == more
    assert parts["parameters"] == 4 * (ELEMENTS + 128 * 64)
    assert parts["batch"] == 4 * 8 * 64
    assert 0 < parts["gradients"] <= 4 * ELEMENTS
    assert plain["extra"]["memory"] == parts | {"optimizer": 0}
    assert held["extra"]["optimizer"] == "adamw"
    assert "optimizer" not in plain["extra"]
    # The plan that fits without does not fit with it.
    tight = {"budget": Budget(plain["peak_bytes"]), "device": "none"}
    assert made("none", **tight)["status"] == "ok"
    assert made("adamw", **tight)["status"] == "infeasible"
    # Each is another job to the cache.
    asked = [settings, replace(settings, optimizer="adamw")]
    asked.append(replace(asked[1], master_weights=True))
    assert len({each.key() for each in asked}) == 3


def test_master_weights_are_counted_of_low_precision_parameters() -> None:
    module = nn.Linear(8, 8).to(torch.bfloat16)
    captured = capture(
        Workload("low", module, lambda: (torch.ones(2, 8, dtype=torch.bfloat16),), _sum)
    )
    assert optimizer_bytes(captured, "adamw") == 12 * 72
    assert optimizer_bytes(captured, "adamw", master_weights=False) == 4 * 72
    counted = with_optimizer(captured.graph, 12 * 72)
    assert counted.values[-1].name == STATE
    assert counted.resident_bytes == captured.graph.resident_bytes + 12 * 72
    assert with_optimizer(captured.graph, 0) is captured.graph
    # A plan for one is a plan for the other, with so much more at its peak.
    plan = program_order(counted)
    assert simulate(captured.graph, Plan(plan.statements)).peak_bytes == (
        simulate(counted, plan).peak_bytes - 12 * 72
    )


def _sum(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = module(x).sum()
    return found


@pytest.mark.parametrize("seed", range(5))
def test_parts_add_up_to_the_peak(seed: int) -> None:
    graph = with_backward(random_graph(20, seed))
    for plan in (program_order(graph), recompute_everything(graph)):
        trace = simulate(graph, plan)
        parts = memory_parts(graph, trace, None)
        assert sum(parts.values()) == trace.peak_bytes
        assert parts["residents"] == graph.resident_bytes
        known = dict.fromkeys((v.name for v in graph.values if v.resident), "buffer")
        text = memory_parts(graph, trace, known, graph.outputs)
        assert text["gradients"] + text["activations"] == parts["activations"]
        assert (text["buffers"], text["parameters"]) == (graph.resident_bytes, 0)
        assert sum(text.values()) == trace.peak_bytes


def test_parts_know_outputs_that_take_over_storages_and_frees() -> None:
    graph = join([4, 6])
    plan = JoinDp(slots=5).plan(Problem(graph)).plan
    assert plan is not None
    trace = simulate(graph, plan)
    assert any((graph.tables.overwritten_by[c] >= 0).any() for c in trace.codes if c >= 0)
    # At whichever statement the peak is said to be, the parts are what is live there.
    for at in range(len(trace.codes)):
        during = np.where(np.arange(len(trace.codes)) == at, trace.bytes_during + 1, 0)
        there = memory_parts(graph, replace(trace, bytes_during=during), None)
        assert sum(there.values()) == trace.bytes_during[at]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("adamw", None, False, "full"), "optimizer=adamw: the graph of no PyTorch model"),
        (("sgd", None, True, "activations"), "accounting=activations counts nothing"),
        (("none", True, True, "full"), "master_weights=true: no optimizer steps on them"),
    ],
)
def test_what_cannot_be_counted(given: tuple, says: str) -> None:
    name, master, captured, accounting = given
    with pytest.raises(ConfigError, match=says):
        check_optimizer(name, master, captured=captured, accounting=accounting)


def test_a_row_names_the_machine_that_was_modelled(settings: Settings) -> None:
    modelled = replace(settings, costmodel="roofline", preset="a100")
    assert first_row(modelled)["extra"]["preset"] == "a100"
    assert "preset" not in first_row(settings)["extra"]  # flops are no machine's


def test_a_row_names_the_version_of_its_models_library(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = provenance.versions()
    installed = provenance.version
    known = {"diffusers": "9.8.7"}
    monkeypatch.setattr(provenance, "version", lambda name: known.get(name) or installed(name))
    assert first_row(settings)["versions"] == plain
    of_a_library = replace(settings, model=settings.model | {"kind": "diffusers"})
    try:
        assert first_row(of_a_library)["versions"] == f"{plain}; diffusers 9.8.7"
    finally:
        provenance.versions.cache_clear()
