"""What `checkmate_ilp` proved in seconds at an earlier commit, beside what it takes now.

``python -m benchmarks.proven COMMIT`` plans the same graphs by the code of both, in turns, each in
a process of its own whose kernels are compiled, and writes ``runs/benchmarks/proven.json``. What is
not proven by either is not timed: a time limit is no speed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure, publish
from benchmarks.graphs import in_flops, layers
from benchmarks.trees import both, said
from rematbench.graphs.files import write_graph
from rematbench.graphs.ir import Graph

FIRST = "12162e4"
"""Before retention intervals and equal blocks came in."""
MOST = 1.1
TURNS = 3
LIMIT = 60.0
"""Seconds for a proof."""
UNET = {"batch_size": 32, "resolution": "416x608"}
LAYERS: list[tuple[str, dict[str, Any], tuple[float, ...], float]] = [
    ("vgg16", {"merged": True}, (0.84, 0.86, 0.9, 0.95), 1e-4),
    ("unet", {"merged": True, **UNET}, (0.5, 0.6), 1e-4),
    ("mobilenet_v1", {}, (0.3,), 2e-3),
    ("resnet50", {}, (0.5, 0.35), 3e-3),
]
"""Layer by layer: a network, its options, shares of its peak, and the gap to prove."""
OPS: list[tuple[str, dict[str, Any], tuple[float, ...], float]] = [
    ("resnet50", {"batch_size": 64}, (0.5,), 0.03),
    ("mobilenet_v2", {"batch_size": 64}, (0.5,), 0.03),
    ("googlenet", {"batch_size": 64}, (0.5,), 0.03),
    ("unet", {"batch_size": 4}, (0.5,), 0.03),
    ("vit_b_16", {"batch_size": 32}, (0.5,), 0.03),
]
"""Op by op."""

PLAN = """
import sys
from time import perf_counter, process_time
from rematbench.graphs.files import read_graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
from rematbench.strategies.checkmate.ilp import CheckmateIlp

graph, (share, gap, limit) = read_graph(sys.argv[1]), map(float, sys.argv[2:])
peak = simulate(graph, program_order(graph)).peak_bytes
planner = CheckmateIlp(gap=gap)
planner.warm_up()
wall, cpu = perf_counter(), process_time()
found = planner.plan(Problem(graph, int(share * peak), time_limit=limit))
wall, cpu = perf_counter() - wall, process_time() - cpu
cost = simulate(graph, found.plan).cost
print(wall, cpu, cost, 1 - found.bound / cost)
"""


def graphs() -> Iterator[tuple[str, Graph, tuple[float, ...], float]]:
    """Every network with its shares and gap."""
    for name, options, shares, gap in LAYERS:
        yield f"{name}, layers", layers(name, **{"batch_size": 32, **options}), shares, gap
    for name, options, shares, gap in OPS:
        graph = in_flops(name, **options)
        yield f"{name}, {len(graph.ops)} ops", graph, shares, gap


def judged(
    title: str, trees: tuple[Path, Path], file: Path, share: float, gap: float, commit: str
) -> list[Figure]:
    """One budget, planned by both in turns."""
    words = [str(file), *(f"{value:g}" for value in (share, gap, LIMIT))]
    turns = [[said(tree, PLAN, *words) for tree in trees] for _ in range(TURNS)]
    ours, theirs = ([turn[place] for turn in turns] for place in range(2))
    proven = [all(run[3] <= 1.001 * gap for run in runs) for runs in (ours, theirs)]
    if not proven[1]:
        print(f"{title}: not proven by {commit} in {LIMIT:g} s", flush=True)
        return []
    if not proven[0]:
        return [Figure(f"{title}: no longer proven in {LIMIT:g} s", 1, 0, "")]
    spent = median(run[0] for run in theirs)
    wall, cpu = (
        median(a[place] / b[place] for a, b in zip(ours, theirs, strict=True)) for place in range(2)
    )
    print(f"{title}: {wall:.2f} of {spent:.2f} s, CPU {cpu:.2f}", flush=True)
    told = f"{title}: seconds over those of {commit} ({spent:.2f} s)"
    return [
        Figure(told, wall, MOST, "x"),
        Figure(f"{title}: CPU seconds over those of {commit}", cpu, None, "x"),
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default=FIRST, help="an earlier state")
    commit = parser.parse_args().commit
    figures: list[Figure] = []
    with both(commit) as trees, tempfile.TemporaryDirectory() as folder:
        for name, graph, shares, gap in graphs():
            file = Path(folder, "planned.graph.json")
            write_graph(file, graph)
            for share in shares:
                figures += judged(f"{name}, at {share:g}", trees, file, share, gap, commit)
            publish("proven", figures)  # so far


if __name__ == "__main__":
    main()
