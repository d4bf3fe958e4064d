"""Time and memory of planners against ops, with fitted exponents.

``python -m benchmarks.scale [STRATEGY ...]`` plans chains of blocks with a skip, of 500 to 10,000
ops, and writes runs/benchmarks/scale.json; an exponent of 1 is linear.
"""

from __future__ import annotations

import sys
import tracemalloc
from time import process_time

import numpy as np

from benchmarks.figures import Figure, publish
from rematbench.graphs.errors import RematbenchError
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.graphs.synthetic import with_backward
from rematbench.strategies.base import Problem, SupportsWarmUp
from rematbench.strategies.registry import make

SIZES = (500, 1000, 2500, 5000, 10_000)
STRATEGIES = ("hierarchical", "ap_greedy", "linearized_greedy", "xla_remat")
OPTIONS = {"hierarchical": {"polish": False}}
"""Anytime search would take all the time there is."""
SHARE, SECONDS, MOST_EXPONENT = 0.4, 60.0, 1.5


def blocks(ops: int) -> Graph:
    """A training step of about so many ops: blocks of three forward ops."""
    values, forward, before = [Value("x", 5, resident=True)], [], "x"
    for i in range(ops // 6):
        a, b, c = (f"{letter}{i}" for letter in "abc")
        values += [Value(a, 10), Value(b, 20), Value(c, 10)]
        forward.append(simple_op(a, Phase.FORWARD, [before], [a], 3))
        forward.append(simple_op(b, Phase.FORWARD, [a], [b], 1))
        forward.append(simple_op(c, Phase.FORWARD, [b, before], [c], 2))
        before = c
    return with_backward(Graph(f"blocks{ops}", tuple(values), tuple(forward), (before,)))


def measured(name: str) -> list[Figure]:
    """CPU seconds and peak memory of one planner at each size, and their exponents."""
    strategy = make(name, **OPTIONS.get(name, {}))
    if isinstance(strategy, SupportsWarmUp):
        strategy.warm_up()
    seconds, memory, ops = [], [], []
    for size in SIZES:
        graph = blocks(size)
        budget = int(SHARE * simulate(graph, program_order(graph)).peak_bytes)
        tracemalloc.start()
        began = process_time()
        try:
            strategy.plan(Problem(graph, budget, time_limit=SECONDS))
        except RematbenchError as error:
            print(f"{name} at {size}: {error}")
        seconds.append(max(1e-3, process_time() - began))
        memory.append(max(1, tracemalloc.get_traced_memory()[1]))
        tracemalloc.stop()
        ops.append(len(graph.ops))
    titles = (("time", seconds), ("memory", memory))
    exponents = [
        Figure(f"{name}: exponent of {title}", _slope(ops, found), MOST_EXPONENT, "")
        for title, found in titles
    ]
    return [Figure(f"{name}: {ops[-1]} ops", seconds[-1], SECONDS + 2, "s"), *exponents]


def _slope(ops: list[int], found: list[float] | list[int]) -> float:
    """Of a straight line through the logarithms."""
    return float(np.polyfit(np.log(ops), np.log(found), 1)[0])


def main() -> None:
    """Run it all; print a table."""
    publish("scale", [each for name in sys.argv[1:] or STRATEGIES for each in measured(name)])


if __name__ == "__main__":
    main()
