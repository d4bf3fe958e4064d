"""Checkmate's Table 2 on PyTorch's graphs at all budgets: heuristics over ``anytime`` (ours).

``python -m benchmarks.zoo62 [NETWORKS]`` writes runs/benchmarks/zoo62.json. Graphs of the zoo's
networks, op by op, in FLOPs, under Checkmate's accounting, at the budgets of checkmate_table2's
full profile. Per heuristic: at how many budgets it has a plan, and its cost over that of
``anytime``, the geometric mean over these, the least and the most.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.baselines62 import (
    CAPTURED,
    STRATEGIES,
    Point,
    SweptNetwork,
    checkpoint_sets,
    networks,
    optimum,
    ratios,
)
from benchmarks.figures import Figure, publish
from rematbench.base.errors import Infeasible
from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.report.tables import geometric_mean
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem
from rematbench.strategies.revolve.planner import Revolve

SECONDS, GAP = 4.0, 0.002
"""Of ``anytime``, a budget."""
SHARES = {
    "vgg16": (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65),
    "vgg19": (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.65),
    "mobilenet_v1": (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2),
    "unet": (0.9, 0.8, 0.7, 0.6, 0.5, 0.45, 0.4),
    "resnet50": (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2),
}
"""Budgets, as parts of checkpoint-all's peak: those of checkmate_table2's full profile."""


def swept(name: str) -> SweptNetwork:
    """A network at all budgets."""
    network = dict(networks())[name]()
    base = simulate(network.graph, program_order(network.graph)).peak_bytes
    return replace(network, budgets=tuple(int(share * base) for share in SHARES[name]))


def points(network: SweptNetwork, strategy: str) -> list[Point]:
    """Cost and peak of the plans that a heuristic tries."""
    graph = network.graph
    plans = [plan_with_checkpoints(graph, each) for each in checkpoint_sets(graph, strategy)]
    traces = [simulate(graph, plan) for plan in plans]
    return [Point(trace.cost, trace.peak_bytes) for trace in traces]


def griewank(network: SweptNetwork, best: list[float | None]) -> list[float | None]:
    """Per budget: Griewank's schedule with the most slots that fit, over the optimum."""
    found: list[float | None] = []
    for budget, cost in zip(network.budgets, best, strict=True):
        try:
            plan = Revolve().plan(Problem(network.graph, budget, SECONDS)).plan
        except Infeasible:
            plan = None
        fits = cost and plan is not None
        found.append(simulate(network.graph, plan).cost / cost if fits else None)
    return found


def compared(name: str) -> Iterator[Figure]:
    """A network's line of the table."""
    network = swept(name)
    best = optimum(network, Anytime(gap=GAP, threads=1), SECONDS)
    planned = sum(cost is not None for cost in best)
    yield Figure(f"{name}, anytime: budgets met", planned, None, f"of {len(best)}")
    found = {each: ratios(network, points(network, each), best) for each in STRATEGIES}
    if name.startswith(("vgg", "mobilenet")):
        found["revolve"] = griewank(network, best)
    for strategy, mine in found.items():
        met = [ratio for ratio in mine if ratio]
        yield Figure(f"{name}, {strategy}: budgets met", len(met), None, f"of {planned}")
        mean = geometric_mean(met)
        if mean is not None:
            yield Figure(f"{name}, {strategy} / anytime: mean", mean, None, "x")
            yield Figure(f"{name}, {strategy} / anytime: least", min(met), None, "x")
            yield Figure(f"{name}, {strategy} / anytime: most", max(met), None, "x")


def main(chosen: list[str]) -> None:
    """Plan, print, write."""
    figures: list[Figure] = []
    for name in chosen or CAPTURED:
        figures += compared(name)
        print(name, flush=True)
    publish("zoo62", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
