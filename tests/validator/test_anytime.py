"""Plans of anytime, executed: eager training's bits within the simulated peak."""

from __future__ import annotations

import pytest

from rematbench import costmodel, validator
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem
from rematbench.tracing.captured import Captured
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model


def executed(captured: Captured, graph: Graph, share: float) -> tuple[int, validator.Measurement]:
    """Peak as simulated, and what was measured."""
    budget = int(share * simulate(graph, program_order(graph)).peak_bytes)
    strategy = Anytime(gap=0.1)
    strategy.warm_up()  # compiling would be of its time
    solution = strategy.plan(Problem(graph, budget, time_limit=5))
    peak = simulate(graph, solution.plan).peak_bytes
    assert peak <= budget
    return peak, validator.measure(captured, solution.plan, device="cpu", repeats=1)


@pytest.mark.parametrize(
    ("name", "options", "share"),
    [
        ("resnet32", {"batch_size": 32}, 0.5),
        ("unet", {"batch_size": 4, "resolution": "96x128", "base_channels": 8}, 0.55),
    ],
)
def test_the_simulated_peak_is_measured(name: str, options: dict, share: float) -> None:
    captured = capture(make_model(name, **options))
    graph = costmodel.apply("profiled", captured.graph, captured, device="cpu")
    peak, found = executed(captured, graph, share)
    assert found.gradient_bitwise
    assert found.measured_peak_bytes == pytest.approx(peak, rel=0.01)
