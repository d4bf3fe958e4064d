"""Plans of checkmate_ilp at half the memory, executed: eager training's bits, the simulated peak."""

from __future__ import annotations

import pytest

import costmodel
import validator
from graphs.capture import capture
from graphs.plan import program_order
from graphs.simulate import simulate
from graphs.zoo import make_model
from strategies.base import Problem
from strategies.checkmate.ilp import CheckmateIlp


@pytest.mark.parametrize(
    ("name", "batch_size", "resolution"), [("resnet50", 16, 64), ("unet", 12, 96)]
)
def test_half_the_memory(name: str, batch_size: int, resolution: int) -> None:
    captured = capture(make_model(name, batch_size=batch_size, resolution=resolution))
    graph = costmodel.apply("flops", captured.graph, captured)
    budget = simulate(graph, program_order(graph)).peak_bytes // 2
    assert budget > 1.2 * graph.floor_bytes()
    solution = CheckmateIlp(gap=0.03).plan(Problem(graph, budget, time_limit=20))
    peak = simulate(graph, solution.plan).peak_bytes
    assert peak <= budget
    found = validator.measure(captured, solution.plan, device="cpu", repeats=1)
    assert found.gradient_bitwise
    assert found.measured_peak_bytes == pytest.approx(peak, rel=0.01)
