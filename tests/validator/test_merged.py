"""Both gradients of a convolution by one call where a plan has them side by side."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from helpers import recompute_everything
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from rematbench import costmodel, validator
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.tracing.workload import Workload
from rematbench.validator import merged

CALL = "convolution_backward_default("


@pytest.fixture(scope="module")
def network() -> Captured:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=2, bias=False),
        nn.ConvTranspose2d(8, 4, 2, stride=2),
        nn.ReLU(),
        nn.Conv2d(4, 8, 1, stride=2),
        nn.Flatten(),
        nn.LazyLinear(10),
    )
    module(torch.randn(1, 3, 14, 14))
    return capture(
        Workload(
            "convolutions",
            module,
            lambda: (torch.randn(2, 3, 14, 14), torch.randint(10, (2,))),
            lambda model, x, y: F.cross_entropy(model(x), y),
        )
    )


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    merged._known.clear()
    yield
    merged._known.clear()


def calls(captured: Captured, plan: Plan) -> int:
    return validator.generate(captured, plan).source.count(CALL)


@pytest.mark.parametrize("make", [program_order, recompute_everything])
def test_one_call_leaves_bits_and_peak(network: Captured, make) -> None:
    graph = costmodel.apply("profiled", network.graph, network, device="cpu")
    plan = make(graph)
    assert calls(network, plan) == 4  # the first of them has no gradient of its input
    measured = validator.measure(network, plan, device="cpu", repeats=1)
    assert measured.gradient_bitwise
    assert measured.measured_peak_bytes == simulate(graph, plan).peak_bytes


def test_other_bits_stay_two_calls(network: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merged, "same", lambda one, other: False)
    assert calls(network, program_order(network.graph)) == 7


def test_more_memory_stays_two_calls(network: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = []

    def rising(run, device):
        run()
        readings.append(replace(real(lambda: None, device), peak_bytes=9 - len(readings)))
        return readings[-1]

    real = merged.peak_of
    monkeypatch.setattr(merged, "peak_of", rising)
    assert calls(network, program_order(network.graph)) == 7
    assert len(readings) == 6


def test_the_answer_is_remembered(network: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls(network, program_order(network.graph)) == 4
    monkeypatch.setattr(merged, "_tried", None)
    assert calls(network, program_order(network.graph)) == 4


def test_without_room_to_try_it_stays_two_calls(
    network: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object) -> bool:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(merged, "_tried", full)
    assert calls(network, program_order(network.graph)) == 7
    monkeypatch.undo()
    assert calls(network, program_order(network.graph)) == 4


def test_apart_they_stay_two_calls(network: Captured) -> None:
    graph = network.graph
    order = program_order(graph).codes(graph)
    computes = order[order >= 0].tolist()
    names = [graph.ops[graph.tables.op_of[code]].name for code in computes]
    at = next(i for i, n in enumerate(names) if n.endswith("_input"))
    assert names[at + 1].endswith("_weight")
    parted = [*computes[: at + 1], *computes[at + 2 :], computes[at + 1]]
    assert calls(network, Plan.of_computes(graph, parted)) == 5


def test_one_between_two_others_belongs_to_one_of_them(network: Captured) -> None:
    graph = network.graph
    codes = program_order(graph).codes(graph).tolist()
    at = min(merged.merged_calls(network, codes))
    thrice = [*codes[: at + 2], codes[at], *codes[at + 2 :]]
    plan = Plan.from_codes(graph, thrice)
    assert min(merged.merged_calls(network, thrice)) == at
    assert calls(network, plan) == 5
    assert validator.measure(network, plan, device="cpu", repeats=1).gradient_bitwise


def test_the_generator_and_modes_of_the_caller_are_left_alone(network: Captured) -> None:
    state = torch.get_rng_state()
    with FakeTensorMode():
        assert calls(network, program_order(network.graph)) == 4
    assert torch.equal(state, torch.get_rng_state())
