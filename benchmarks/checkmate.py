"""The fast variant of checkmate_ilp: optima, gaps and seconds, beside problem (9) as printed.

``python -m benchmarks.checkmate [GRAPHS]`` writes runs/benchmarks/checkmate.json. GRAPHS is a
folder with ``vgg16.graph.json``, ``unet.graph.json`` and ``mobilenet.graph.json`` as Checkmate
has them; without it only captured models are planned.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, publish
from rematbench.graphs.errors import Infeasible
from rematbench.graphs.files import read_graph
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.graphs.synthetic import unit_chain
from rematbench.strategies.base import Problem
from rematbench.strategies.checkmate.ilp import CheckmateIlp
from rematbench.strategies.checkmate.paper_model import PaperModel, integrality_gap
from rematbench.strategies.checkmate.relaxation import Relaxation, single_stages
from rematbench.strategies.scheduling.space import Space

# Graph, budget as a fraction, seconds, and the gap to reach in them.
FILES = [
    ("vgg16", 0.84, 5, 1e-4),
    ("unet", 0.42, 60, 1e-4),
    ("unet", 0.5, 60, 1e-4),
    ("unet", 0.6, 60, 1e-4),
    ("mobilenet", 0.3, 60, 0.002),
    ("mobilenet", 0.22, 120, 0.015),
]
# Model, batch size, seconds, gap; at half the memory.
CAPTURED = [
    ("resnet50", 64, 300, 0.03),
    ("mobilenet_v2", 64, 300, 0.03),
    ("googlenet", 64, 300, 0.03),
    ("unet", 4, 300, 0.03),
    ("vit_b_16", 32, 300, 0.03),
    ("resnet152", 32, 120, 0.05),
    ("densenet161", 32, 120, 0.05),
]


def solved(name: str, graph: Graph, fraction: float, seconds: float, gap: float) -> list[Figure]:
    """Plan one graph until the gap is reached or time is up."""
    everything = simulate(graph, program_order(graph))
    budget = int(fraction * everything.peak_bytes)
    began = perf_counter()
    title = f"{name} at {fraction:g}"
    try:
        solution = CheckmateIlp(gap=gap).plan(Problem(graph, budget, time_limit=seconds))
    except Infeasible:
        return [Figure(f"{title}: plans found", 0, 1, "plans", at_least=True)]
    spent = perf_counter() - began
    cost = simulate(graph, solution.plan).cost
    assert solution.bound is not None
    found = [
        Figure(f"{title}: overhead", 100 * (cost / everything.cost - 1), 100, "%"),
        Figure(
            f"{title}: gap ({solution.bound_of})", 100 * (1 - solution.bound / cost), 100 * gap, "%"
        ),
        Figure(f"{title}: planning", spent, seconds + 2, "s"),
    ]
    first = next(s for s, c, _ in solution.details["incumbents"] if c is not None)
    return [*found, Figure(f"{title}: first plan", first, 30, "s")]


def verbatim() -> Iterator[Figure]:
    """Problem (9) as printed, on the paper's chain and on 353 ops."""
    chain = unit_chain(8)
    began = perf_counter()
    best = CheckmateIlp(gap=0.0).plan(Problem(chain, 4))
    optimum = simulate(chain, best.plan).cost
    yield Figure("chain of 8: optimum", optimum, 26, "ops")
    yield Figure(
        "chain of 8: gap of (9)", integrality_gap(chain, 4, optimum=optimum), 1.1819, "ratio"
    )
    unpartitioned = integrality_gap(chain, 4, partitioned=False, optimum=optimum)
    yield Figure("chain of 8: gap of (1)", unpartitioned, 21.56, "ratio")
    yield Figure("chain of 8: all three", perf_counter() - began, 2, "s")
    long = unit_chain(176)
    began = perf_counter()
    PaperModel(long, 40, most=400)
    built = perf_counter() - began
    yield Figure("353 ops: building (9) in Pyomo", built, 30, "s")
    space = Space.reduced(long)
    began = perf_counter()
    Relaxation(space, 40, single_stages(space))
    yield Figure("353 ops: building F with rows on demand", perf_counter() - began, 4, "s")


def main() -> None:
    """Run it all; print a table."""
    CheckmateIlp().warm_up()
    figures = list(verbatim())
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for name, *target in FILES if folder else ():
        graph = read_graph(folder / f"{name}.graph.json")
        figures += solved(name, graph, *target)
    for name, batch, seconds, gap in CAPTURED:
        figures += solved(name, captured(name, batch), 0.5, seconds, gap)
    publish("checkmate", figures)


def captured(name: str, batch_size: int) -> Graph:
    """A zoo model, op by op, with costs in FLOPs."""
    from rematbench import costmodel
    from rematbench.tracing.trace import capture
    from rematbench.zoo import make_model

    found = capture(make_model(name, batch_size=batch_size))
    return costmodel.apply("flops", found.graph, found)


if __name__ == "__main__":
    main()
