"""What `anytime` proved in seconds at an earlier commit, beside what it takes now.

``python -m benchmarks.proven COMMIT`` plans the same graphs by the code of both, in turns, each in
a process of its own whose kernels are compiled, and writes ``runs/benchmarks/proven.json``. What is
not proven there in a minute is left out: a time limit is no speed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

from benchmarks.checkmate import PAPERS, REAL, SWEPT, Target
from benchmarks.figures import Figure, publish
from benchmarks.graphs import in_flops, layers
from benchmarks.trees import FIRST, both, said
from rematbench.graphs.files import write_graph
from rematbench.graphs.ir import Graph

MOST = 1.1
TURNS = 3
LIMIT = 60.0
"""Seconds for a proof."""
PLAN = """
import sys
from time import perf_counter, process_time
from rematbench.graphs.files import read_graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem
try:
    from rematbench.strategies.anytime.planner import Anytime
except ImportError:  # an earlier commit, which called it so
    from rematbench.strategies.checkmate.ilp import CheckmateIlp as Anytime

graph, (share, gap, limit) = read_graph(sys.argv[1]), map(float, sys.argv[2:])
peak = simulate(graph, program_order(graph)).peak_bytes
planner = Anytime(gap=gap)
planner.warm_up()
wall, cpu = perf_counter(), process_time()
found = planner.plan(Problem(graph, int(share * peak), time_limit=limit))
wall, cpu = perf_counter() - wall, process_time() - cpu
cost = simulate(graph, found.plan).cost
print(wall, cpu, cost, 1 - found.bound / cost)
"""


def graphs() -> Iterator[tuple[str, Graph, list[Target]]]:
    """The networks of :mod:`benchmarks.checkmate`, with what was asked of them within the limit."""
    for name, options, targets in PAPERS:
        if quick := [target for target in targets if target.seconds <= LIMIT]:
            yield f"{name}, layers", layers(name, **{"batch_size": 32, **options}), quick
    for name, options, target in REAL:
        if name in SWEPT:
            yield f"{name}, ops", in_flops(name, **options), [target]


def without_nodes(graph: Graph) -> Graph:
    """A graph that earlier commits read: they know no autograd nodes, random ops and targets."""
    plain = (replace(op, autograd_node=None, random=False, target=None) for op in graph.ops)
    return replace(graph, ops=tuple(plain), random_state_bytes=0)


def judged(
    title: str, trees: tuple[Path, Path], file: Path, target: Target, commit: str
) -> list[Figure]:
    """One budget, planned by both in turns."""
    gap = target.gap / 100
    words = [str(file), *(f"{value:g}" for value in (target.fraction, gap, LIMIT))]
    if said(trees[1], PLAN, *words)[3] > 1.001 * gap:
        print(f"{title}: not proven by {commit} in {LIMIT:g} s", flush=True)
        return []
    turns = [[said(tree, PLAN, *words) for tree in trees] for _ in range(TURNS)]
    ours, theirs = ([turn[place] for turn in turns] for place in range(2))
    if any(run[3] > 1.001 * gap for run in ours):
        return [Figure(f"{title}: no longer proven in {LIMIT:g} s", 1, 0, "")]
    spent = median(run[0] for run in theirs)
    wall, cpu = (
        median(a[place] / b[place] for a, b in zip(ours, theirs, strict=True)) for place in range(2)
    )
    print(f"{title}: {wall:.2f} of {spent:.2f} s, CPU {cpu:.2f}", flush=True)
    text = f"{title}: seconds over those of {commit} ({spent:.2f} s)"
    return [
        Figure(text, wall, MOST, "x"),
        Figure(f"{title}: CPU seconds over those of {commit}", cpu, None, "x"),
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("commit", nargs="?", default=FIRST, help="an earlier state")
    commit = parser.parse_args().commit
    figures: list[Figure] = []
    with both(commit) as trees, tempfile.TemporaryDirectory() as folder:
        for name, graph, targets in graphs():
            file = Path(folder, "planned.graph.json")
            write_graph(file, without_nodes(graph))
            for target in targets:
                title = f"{name}, at {target.fraction:g}"
                figures += judged(title, trees, file, target, commit)
            publish("proven", figures)  # so far


if __name__ == "__main__":
    main()
