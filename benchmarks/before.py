"""The plans of `anytime` beside those of the search that it was, before names were told apart.

At 4f1d762 ``checkmate_ilp`` was our own search; since then that name is Checkmate's program, and
the search is ``anytime``. ``python -m benchmarks.before`` plans graphs of the benchmarks
``checkmate``, ``proven`` and ``scale`` by the code of both, in turns, each in a process of its own
whose kernels are compiled. ``runs/benchmarks/before.json`` has each plan's cost over the other's:
of one pair where the two are equal, else the median of several, since annealing that ends by the
clock finds another plan each time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from benchmarks.checkmate import PAPERS, REAL, SWEPT
from benchmarks.figures import Figure, publish
from benchmarks.graphs import in_flops, layers
from benchmarks.large import transformer
from benchmarks.proven import PLAN, without_nodes
from benchmarks.trees import NEEDED, both, said
from rematbench.graphs.builders.layered import random_layered
from rematbench.graphs.files import write_graph
from rematbench.graphs.ir import Graph

COMMIT = NEEDED["before"]
LIMIT = 8.0
"""Seconds for a plan."""
GAP = 1e-4
TIE = 1e-3
"""Costs that differ by less are equal: annealing draws other numbers at another speed."""
PAIRS = 5
"""Where the first pair differs."""
MOST = 1.001
MEAN = 1 + 1e-4


def problems() -> Iterator[tuple[str, Graph, tuple[float, ...]]]:
    """Graphs, and shares of checkpoint-all's peak."""
    for name, options, targets in PAPERS:
        graph = layers(name, **{"batch_size": 32, **options})
        shares = tuple(t.fraction for t in targets if t.fraction >= 0.2)
        yield f"{name}, layers", graph, shares
    for name, options, target in REAL:
        if name in SWEPT:
            yield f"{name}, ops", in_flops(name, **options), (target.fraction,)
    yield "transformer_lm of 48 layers", transformer(48), (0.4, 0.25)
    for length in (500, 1000):
        yield f"random layered graph of {length} ops", random_layered(length), (0.9, 0.8)


def main() -> None:
    """Measure, print, write."""
    figures: list[Figure] = []
    ratios: list[float] = []
    with both(COMMIT) as trees, tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "planned.graph.json")
        for name, graph, shares in problems():
            write_graph(file, without_nodes(graph))
            for share in shares:
                words = [str(file), f"{share:g}", f"{GAP:g}", f"{LIMIT:g}"]
                pairs = compared(trees, words)
                ratios.append(median(ours[2] / theirs[2] for ours, theirs in pairs))
                ours, theirs = (median(run[3] for run in runs) for runs in zip(*pairs, strict=True))
                title = f"{name}, at {share:g}: cost over that of {COMMIT}"
                figures += [
                    Figure(title, ratios[-1], MOST, "x"),
                    Figure(f"{name}, at {share:g}: gap", 100 * ours, None, "%"),
                    Figure(f"{name}, at {share:g}: gap of {COMMIT}", 100 * theirs, None, "%"),
                ]
                print(f"{title} {ratios[-1]:.6f} (pairs: {len(pairs)})", flush=True)
            publish("before", [*figures, *summary(ratios)])


def compared(trees: tuple[Path, Path], words: list[str]) -> list[tuple[list[float], ...]]:
    """What the code of both says of one problem, in turns: once, or several times if it differs."""
    pairs = []
    for _ in range(PAIRS):
        pairs.append(tuple(said(tree, PLAN, *words) for tree in trees))
        if abs(pairs[0][0][2] / pairs[0][1][2] - 1) <= TIE:
            break
    return pairs


def summary(ratios: list[float]) -> list[Figure]:
    """How often a plan is cheaper, equal or dearer, and the mean ratio."""
    return [
        Figure("plans cheaper", sum(ratio < 1 - TIE for ratio in ratios), None, ""),
        Figure(
            "plans equal, within 0.1 %", sum(abs(ratio - 1) <= TIE for ratio in ratios), None, ""
        ),
        Figure("plans dearer", sum(ratio > 1 + TIE for ratio in ratios), 0, ""),
        Figure("mean ratio of costs", sum(ratios) / len(ratios), MEAN, "x"),
    ]


if __name__ == "__main__":
    main()
