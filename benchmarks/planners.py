"""Planning times; ``python -m benchmarks.planners`` writes runs/benchmarks/planners.json."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np

from benchmarks.figures import Figure, publish
from rematbench.engines.chain.chain import chain_of
from rematbench.graphs.builders.synthetic import random_graph
from rematbench.strategies.base import Problem
from rematbench.strategies.chain_dp import build
from rematbench.strategies.chen import ApGreedy, ChenGreedy, LinearizedGreedy
from rematbench.strategies.joins.dp import JoinTable
from rematbench.strategies.revolve import schedule

# The networks of Feng & Huang's Table 2.
SEARCHED = (
    *("alexnet", "vgg11", "vgg13", "vgg16", "vgg19"),
    *("resnet18", "resnet34", "resnet50", "resnet101", "resnet152"),
    *("densenet121", "densenet161", "densenet169", "densenet201", "inception_v3"),
    *("nasnet", "amoebanet", "darts"),
)


def cpu_seconds(run: Callable[[], object]) -> float:
    """Processor time of one call."""
    began = time.process_time()
    run()
    return time.process_time() - began


def theory() -> list[Figure]:
    """Join tables and Revolve schedules."""
    JoinTable((2, 2), 9)  # compiles
    snn = cpu_seconds(lambda: JoinTable((30, 30, 30), 93))
    binomial = cpu_seconds(lambda: list(schedule(10_000, 10)))
    return [
        Figure("join_dp, three branches of 30, all slots", snn, 5, "CPU s"),
        Figure("revolve, 10,000 steps, 10 slots", binomial, 1, "CPU s"),
    ]


def chains() -> list[Figure]:
    """The chain program in 500 slots, persistent schedules."""
    random, figures = np.random.default_rng(0), []
    for length, most in ((3, 5), (50, 5), (200, 60)):  # the first compiles
        a = random.integers(10**6, 10**7, length + 1)
        kept = a[1:] + random.integers(10**6, 3 * 10**7, length)
        times = random.integers(100, 1000, (2, length)).tolist()
        extra = random.integers(0, 10**6, (2, length)).tolist()
        case = {"u_f": times[0], "u_b": times[1], "o_f": extra[0], "o_b": extra[1]}
        case |= {"a": a.tolist(), "abar": kept.tolist(), "limit": int(0.4 * kept.sum())}
        chain, limit = chain_of(case)
        rounded, slots = chain.in_units(limit // 500), limit // (limit // 500)
        seconds = cpu_seconds(partial(build, rounded, slots))
        figures.append(Figure(f"chain_dp, {length} stages, 500 slots", seconds, most, "CPU s"))
    return figures[1:]


def sweeps() -> list[Figure]:
    """Greedy sweeps on graphs of a thousand ops."""
    from rematbench.graphs.builders.synthetic import unit_chain

    figures = []
    for strategy, graph in (
        (ChenGreedy(), unit_chain(500)),
        (ApGreedy(), random_graph(500, seed=1)),
        (LinearizedGreedy(), random_graph(500, seed=1)),
    ):
        seconds = cpu_seconds(lambda s=strategy, g=graph: s.plan(Problem(g)))
        name = f"{type(strategy).__name__}, {len(graph.ops)} ops, whole sweep"
        figures.append(Figure(name, seconds, 10, "CPU s"))
    return figures


def feng_huang() -> list[Figure]:
    """The whole strategy, from a captured model to a simulated plan."""
    from rematbench.strategies.feng_huang import FengHuang
    from rematbench.tracing.trace import capture
    from rematbench.zoo import make_model

    figures = []
    for name in SEARCHED:
        graph = capture(make_model(name, batch_size=64)).graph
        seconds = cpu_seconds(lambda g=graph: FengHuang().plan(Problem(g)))
        figures.append(Figure(f"feng_huang, {name}, {len(graph.ops)} ops", seconds, 6, "CPU s"))
    return figures


if __name__ == "__main__":
    publish("planners", theory() + chains() + sweeps() + feng_huang())
