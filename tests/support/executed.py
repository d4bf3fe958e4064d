"""A strategy's plan, run on a real model."""

from __future__ import annotations

from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Problem, Strategy
from rematbench.graphs.simulate import simulate
from rematbench.tracing import Captured
from rematbench.tracing.trace import capture
from rematbench.validator import measure
from rematbench.zoo import make_model


def check_executed(
    strategy: Strategy, captured: Captured | None = None, fraction: float | None = 0.75
) -> None:
    """A plan recomputes, fits, and gives the bits of eager training.

    Args:
        captured: the model; None: a small network.
        fraction: of its peak, as the budget; None: no budget.
    """
    if captured is None:
        captured = capture(make_model("resnet32", batch_size=16, resolution=32, blocks=1))
    graph = captured.graph
    peak = simulate(graph, program_order(graph)).peak_bytes
    budget = None if fraction is None else int(fraction * peak)
    plan = strategy.plan(Problem(graph, budget, captured=captured)).plan
    assert plan is not None
    trace = simulate(graph, plan)
    assert trace.recomputations > 0
    assert trace.peak_bytes <= (budget or trace.peak_bytes)
    found = measure(captured, plan, device="cpu", repeats=1)
    assert found.reason is None
    assert found.gradient_bitwise
