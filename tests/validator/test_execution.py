"""Plans executed on real data give the bits of eager training, and the peak that was simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from helpers import recompute_everything
from torch import Tensor, nn

from rematbench import costmodel, validator
from rematbench.base.errors import CaptureError, InvalidPlan
from rematbench.costmodel.device import random_state_bytes
from rematbench.graphs.files import read_graph, write_graph
from rematbench.graphs.kinds import Kind
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.rows.memory_parts import memory_parts
from rematbench.tracing.alternatives import with_alternatives
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload


def small_workload() -> Workload:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.MaxPool2d(2),
        nn.Dropout(0.5),
        nn.Flatten(),
        nn.Linear(8 * 64, 10),
    )
    return Workload(
        "small",
        module,
        lambda: (torch.randn(4, 3, 16, 16), torch.randint(10, (4,))),
        lambda model, x, y: F.cross_entropy(model(x), y),
    )


@pytest.fixture(scope="module")
def small() -> Captured:
    return capture(small_workload())


@pytest.mark.parametrize("make", [program_order, recompute_everything])
def test_bits_of_eager_training(small: Captured, make) -> None:
    measured = validator.measure(small, make(small.graph), device="cpu", repeats=1)
    assert measured.reason is None
    assert measured.gradient_bitwise
    assert measured.gradient_max_error == 0.0


def test_a_dropout_that_is_not_replayed_is_caught(small: Captured) -> None:
    ops = tuple(replace(op, random=False) for op in small.graph.ops)
    forgetful = replace(small, graph=replace(small.graph, ops=ops))
    checker = validator.Validator(small, "cpu", seed=0)
    program = validator.generate(forgetful, recompute_everything(small.graph))
    judgement = checker.check(program)
    assert judgement.verdict is validator.GradientVerdict.WRONG
    assert "differs from eager training" in judgement.reason


def test_random_ops_out_of_program_order_are_refused() -> None:
    class TwoDropouts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))

        def forward(self, x: Tensor) -> Tensor:
            return (F.dropout(x * self.weight) + F.dropout(x + self.weight)).sum()

    module = TwoDropouts()
    captured = capture(
        Workload("two", module, lambda: (torch.randn(4),), lambda model, x: model(x))
    )
    graph = captured.graph
    order = list(graph.tables.op_first[:-1])
    first, second = (graph.op_index[name] for name in sorted(captured.random_ops))
    needed_by_second = order.index(second)
    order.insert(order.index(first), order.pop(needed_by_second))
    source = next(i for i in order if graph.ops[i].name.startswith("add"))
    order.insert(0, order.pop(order.index(source)))
    plan = Plan.of_computes(graph, order)
    with pytest.raises(InvalidPlan, match="out of program order"):
        validator.generate(captured, plan)


def test_a_model_without_a_scalar_loss_is_refused() -> None:
    module = nn.Linear(2, 2)
    workload = Workload("vector", module, lambda: (torch.randn(3, 2),), lambda model, x: model(x))
    with pytest.raises(CaptureError, match="not a scalar"):
        capture(workload)


def test_a_model_without_parameters_is_refused() -> None:
    workload = Workload("empty", nn.ReLU(), lambda: (torch.randn(3),), lambda m, x: m(x).sum())
    with pytest.raises(CaptureError, match="no parameter to train"):
        capture(workload)


def test_capture_and_execution_leave_the_model_as_it_was(small: Captured) -> None:
    module = small.workload.module
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    validator.measure(small, program_order(small.graph), device="cpu", repeats=1)
    assert all(torch.equal(before[name], t) for name, t in module.state_dict().items())
    assert all(p.grad is None for p in module.parameters())


@pytest.mark.gpu
def test_gradients_on_cuda() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    captured = capture(small_workload(), "cuda")
    for make in (program_order, recompute_everything):
        measured = validator.measure(captured, make(captured.graph), device="cuda", repeats=2)
        assert measured.reason is None


class TwoDropouts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Linear(64, 64), nn.Dropout(0.1), nn.Linear(64, 64), nn.Dropout(0.1))
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x).square().sum()


def two_dropouts() -> Workload:
    return Workload("two", TwoDropouts(), lambda: (torch.randn(8, 64),), lambda model, x: model(x))


def test_saved_random_states_are_in_the_simulated_peak() -> None:
    captured = capture(two_dropouts())
    profiled = costmodel.apply("profiled", captured.graph, captured, device="cpu")
    plan = recompute_everything(captured.graph)
    measured = validator.measure(captured, plan, device="cpu", repeats=1)
    assert measured.reason is None
    state = random_state_bytes("cpu")
    assert state > 0
    counted = simulate(replace(profiled, random_state_bytes=state), plan)
    assert counted.peak_bytes == measured.measured_peak_bytes
    assert simulate(profiled, plan).peak_bytes == counted.peak_bytes - 2 * state
    parts = memory_parts(replace(profiled, random_state_bytes=state), counted, captured.kinds)
    assert parts["random_states"] == 2 * state
    assert sum(parts.values()) == counted.peak_bytes
    assert random_state_bytes("cuda") == 0


def test_states_of_draws_that_another_op_repeats_are_counted(tmp_path: Path) -> None:
    """A dropout's gradient that draws the mask again; in the graph's file, too."""
    captured = with_alternatives(capture(two_dropouts()), {Kind.REPLAY})
    state = random_state_bytes("cpu")
    profiled = costmodel.apply("profiled", captured.graph, captured, device="cpu")
    counting = replace(profiled, random_state_bytes=state)
    last = captured.graph.tables.op_first[1:] - 1  # of each op's implementations
    plan = Plan.of_computes(captured.graph, last)
    measured = validator.measure(captured, plan, device="cpu", repeats=1)
    assert (measured.verdict, measured.reason) == (validator.GradientVerdict.EXACT, None)
    counted = simulate(counting, plan)
    assert counted.peak_bytes - simulate(profiled, plan).peak_bytes == 2 * state
    assert counted.peak_bytes == measured.measured_peak_bytes
    write_graph(tmp_path / "two.graph.json", counting)
    assert simulate(read_graph(tmp_path / "two.graph.json"), plan).peak_bytes == counted.peak_bytes
