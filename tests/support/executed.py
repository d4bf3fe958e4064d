"""A strategy's plan, run on a real model."""

from __future__ import annotations

from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Problem, Strategy
from rematbench.graphs.simulate import simulate
from rematbench.tracing.trace import capture
from rematbench.validator import measure
from rematbench.zoo import make_model


def check_executed(strategy: Strategy) -> None:
    """On a small network at three quarters of its peak, a plan recomputes, fits, and is exact."""
    captured = capture(make_model("resnet32", batch_size=16, resolution=32, blocks=1))
    graph = captured.graph
    budget = int(0.75 * simulate(graph, program_order(graph)).peak_bytes)
    plan = strategy.plan(Problem(graph, budget, captured=captured)).plan
    assert plan is not None
    trace = simulate(graph, plan)
    assert trace.recomputations > 0
    assert trace.peak_bytes <= budget
    found = measure(captured, plan, device="cpu", repeats=1)
    assert found.reason is None
    assert found.gradient_bitwise
