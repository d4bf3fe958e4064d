"""MONeT: gaps, overheads and ablations at the issue's budgets.

``python -m benchmarks.monet [MODELS]`` writes runs/benchmarks/monet.json. Costs are modelled (a
V100's roofline), so that the figures do not depend on the machine; seconds do.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from typing import Any

import torch

import costmodel
from benchmarks.figures import Figure, publish
from graphs.alternatives import with_alternatives
from graphs.capture import Captured, capture
from graphs.errors import Infeasible
from graphs.ir import Graph
from graphs.plan import program_order
from graphs.simulate import simulate
from graphs.zoo import make_model
from strategies.base import Problem, Solution
from strategies.checkmate.ilp import CheckmateIlp
from strategies.monet.planner import Monet
from strategies.monet.ways import VARIANTS

SECONDS = 60
# Model, options (the paper's batches), budgets as fractions. VGG-16's floor is 0.38.
UNET = {"resolution": "416x608", "channels": 3, "dropout": 0.0, "batch_norm": True}
THIRDS = (0.33, 0.5, 0.7)
MODELS: list[tuple[str, dict[str, Any], tuple[float, ...]]] = [
    ("resnet50", {"batch_size": 184}, THIRDS),
    ("googlenet", {"batch_size": 320}, THIRDS),
    ("mobilenet_v2", {"batch_size": 256}, THIRDS),
    ("unet", {"batch_size": 11, "upsampling": True, **UNET}, THIRDS),
    ("vgg16", {"batch_size": 176}, (0.5, 0.6, 0.7)),
]
ABLATION = 0.5
TABLE_1 = 0.1
"""Overhead at which Table 1 compares memory."""


def costed(plain: Captured, variant: str) -> Graph:
    """The model with the implementations of a variant."""
    captured = with_alternatives(plain, VARIANTS[variant])
    return costmodel.apply("roofline", captured.graph, captured)


def cost_of(graph: Graph, solution: Solution) -> float:
    """Of its plan, as simulated."""
    assert solution.plan is not None
    return simulate(graph, solution.plan).cost


def gaps(name: str, graph: Graph, fractions: tuple[float, ...]) -> Iterator[Figure]:
    """Certified gap, overhead and time at each budget; is the cost monotone?"""
    base = simulate(graph, program_order(graph))
    costs = []
    for fraction in fractions:
        title = f"{name} at {fraction:g}"
        budget = int(fraction * base.peak_bytes)
        try:
            found = Monet().plan(Problem(graph, budget, time_limit=SECONDS))
        except Infeasible:
            yield Figure(f"{title}: plans found", 0, 1, "plans", at_least=True)
            continue
        cost = cost_of(graph, found)
        costs.append(cost)
        assert found.bound is not None
        yield Figure(f"{title}: gap", 100 * (1 - found.bound / cost), 5, "%")
        yield Figure(f"{title}: overhead", 100 * (cost / base.cost - 1), 100, "%")
        yield Figure(f"{title}: planning", found.seconds, SECONDS + 2, "s")
    rises = sum(later > earlier for earlier, later in itertools.pairwise(costs))
    yield Figure(f"{name}: budgets where the cost rises", rises, 0, "budgets")


def ablation(name: str, plain: Captured) -> Iterator[Figure]:
    """Absolute cost of each variant, relative to ``noop`` (Figure 4)."""
    cost = {}
    for variant in VARIANTS:
        graph = costed(plain, variant)
        budget = int(ABLATION * simulate(graph, program_order(graph)).peak_bytes)
        try:
            found = Monet(variant).plan(Problem(graph, budget, time_limit=SECONDS / 2))
        except Infeasible:
            continue
        cost[variant] = cost_of(graph, found)
    for variant, found_cost in cost.items():
        if "noop" in cost:
            title = f"{name} at {ABLATION:g}: {variant} / noop"
            yield Figure(title, found_cost / cost["noop"], 1, "ratio")


def memory_at_overhead(name: str, plain: Captured) -> Iterator[Figure]:
    """Smallest tried fraction of memory at 10 % overhead, beside checkmate_ilp's (Table 1)."""
    least = {}
    full, bare = costed(plain, "full"), costmodel.apply("roofline", plain.graph, plain)
    for title, strategy, graph in (
        ("monet", Monet(gap=0.02), full),
        ("checkmate_ilp", CheckmateIlp(gap=0.02), bare),
    ):
        base = simulate(graph, program_order(graph))
        for percent in range(80, 15, -10):
            problem = Problem(graph, base.peak_bytes * percent // 100, time_limit=SECONDS / 3)
            try:
                cost = cost_of(graph, strategy.plan(problem))
            except Infeasible:
                break
            if cost > (1 + TABLE_1) * base.cost:
                break
            least[title] = percent / 100
    for title, fraction in least.items():
        yield Figure(f"{name}, 10 % overhead: memory of {title}", fraction, 1, "of checkpoint-all")


def main(chosen: list[str]) -> None:
    """Plan every model, or those chosen."""
    Monet().warm_up()
    figures: list[Figure] = []
    for name, options, fractions in MODELS:
        if chosen and name not in chosen:
            continue
        torch.manual_seed(0)
        plain = capture(make_model(name, **options))
        figures += gaps(name, costed(plain, "full"), fractions)
        figures += ablation(name, plain)
        figures += memory_at_overhead(name, plain)
    publish("monet", figures)


if __name__ == "__main__":
    main(sys.argv[1:])
