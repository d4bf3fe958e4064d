"""Checkmate's baselines as its authors' program has them, where ours give other numbers.

``python -m benchmarks.authors_baselines`` writes runs/benchmarks/authors_baselines.json, which
docs/claims.csv quotes. The program (github.com/parasj/checkmate, ``gen_s_matrix_fixed_checkpoints``
and ``schedule_from_rs``) keeps whole segments while the backward pass is in them, as S says and
not until the last read; the release of the paper's time kept the gradients of a segment, too. Its
greedy baseline tries 60 segment sizes up to three times the memory of the sqrt baseline; its means
are over 32 budgets, evenly from the largest layer to checkpoint-all, those that a baseline meets.
Table 2 was made with times of a V100 that the authors did not publish: all of it is in FLOPs here,
and again by a V100's roofline, which says what other costs do to the ratios. The ILP's costs are
those of ``anytime``, which is ours, to 0.3 %.
"""

from __future__ import annotations

from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, product
from math import inf

import numpy as np

from benchmarks.baselines62 import LAYERED, Point
from benchmarks.figures import Figure, publish
from rematbench import costmodel
from rematbench.base.errors import Infeasible
from rematbench.engines.plans.stages import BoolArray, dependencies, optimal_recomputation
from rematbench.graphs.builders.keras import keras_graph
from rematbench.graphs.builders.layers import kind_of
from rematbench.graphs.builders.synthetic import with_backward
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.graphs.structure import articulation_points
from rematbench.jobs.accounting import account
from rematbench.report.tables import geometric_mean
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem
from rematbench.strategies.chen import every_sqrt, greedy
from rematbench.strategies.revolve import ApRevolve

NETWORKS = ("mobilenet", "vgg16", "vgg19", "resnet50")
"""Of Table 2, whose baselines are not within a few percent of the paper's."""
SIZES = np.arange(0, 3, 0.05)
"""Of a greedy segment, as parts of the sqrt baseline's activations."""
BUDGETS = 32
COSTS = {"flops": "", "roofline": ", V100's roofline"}
"""Cost models, and what figures say of them."""
SECONDS, GAP = 6.0, 0.003
MEMORY = 16 * 10**9
MOST_IMAGES = 1300
"""No batch of MobileNet is larger in so much memory."""


def network(name: str, batch: int, image: tuple[int, int], costs: str = "flops") -> Graph:
    """By Keras' layers, costs by one of :data:`COSTS`, under Checkmate's accounting."""
    graph = with_backward(keras_graph(name, batch, *image))
    kinds = {value.name: kind_of(value.name) for value in graph.values if value.resident}
    return account("checkmate", costmodel.apply(costs, graph, None, preset="v100"), kinds)


def loss_of(graph: Graph) -> int:
    """The loss's place; ops before it mirror those behind it."""
    assert graph.loss_index is not None
    return graph.loss_index


def kept_whole(graph: Graph, chosen: Sequence[int], gradients: bool) -> BoolArray:
    """The program's S: checkpoints, the segment that a stage is in, gradients until read.

    Args:
        chosen: checkpoints, ops in program order.
        gradients: are a segment's gradients kept until its last stage, too?
    """
    reads, loss = dependencies(graph), loss_of(graph)
    count = len(reads)
    kept = reads.T.copy()
    for op in range(loss, count):
        kept[op + 1 : max(np.flatnonzero(reads[op]), default=op) + 1, op] = True
    for op in chosen:
        kept[op + 1 :, op] = True
    for first, end in pairwise([0, *chosen, loss + 1]):
        mirror = count - end
        kept[first : end + 1, first:end] = True
        kept[mirror : count - first, first:end] = True
        if gradients:
            kept[max(mirror - 1, loss) : count - first, max(mirror, loss + 1) : count - first] = (
                True
            )
    return np.tril(kept, -1)


def spent(graph: Graph, kept: BoolArray) -> Point:
    """Cost and peak of S and the R of least cost; values stay as long as S says."""
    reads, computed = dependencies(graph), optimal_recomputation(graph, kept)
    tables = graph.tables
    size = np.array([tables.value_bytes[tables.writes[op]].sum() for op in range(len(kept))])
    live = np.zeros(len(kept), dtype=bool)
    peak = 0
    for stage, stays in enumerate([*kept[1:], np.zeros(len(kept), dtype=bool)]):
        ops, last = np.flatnonzero(computed[stage]), np.full(len(kept), -1)
        for op in ops:
            last[reads[:, op]] = op
        live &= stays | (last >= 0)
        for op in ops:
            live[op] = True
            peak = max(peak, int(size[live].sum()))
            live &= stays | (last > op)
    costs = np.array([op.implementations[0].cost for op in graph.ops])
    return Point(float((computed @ costs).sum()), peak + graph.resident_bytes)


def checkpoints(graph: Graph, strategy: str, gradients: bool) -> Iterator[list[int]]:
    """The sets that the program tries."""
    points, ops = articulation_points(graph), np.arange(loss_of(graph))
    candidates = points if strategy.startswith("ap") else ops
    if strategy.endswith("sqrt"):
        yield every_sqrt(candidates).tolist()
        return
    tables = graph.tables
    size: IntArray = np.array([tables.value_bytes[tables.writes[op]].sum() for op in ops])
    base = spent(graph, kept_whole(graph, every_sqrt(ops).tolist(), gradients))
    sizes = (base.peak - graph.resident_bytes) * SIZES
    found = (greedy(size, np.isin(ops, candidates), float(each)) for each in sizes)
    for chosen in dict.fromkeys(tuple(each.tolist()) for each in found):
        yield [*chosen]


def baseline(graph: Graph, strategy: str, gradients: bool) -> list[Point]:
    """What the program has to choose from."""
    sets = checkpoints(graph, strategy, gradients)
    return [spent(graph, kept_whole(graph, chosen, gradients)) for chosen in sets]


def budgets_of(graph: Graph) -> list[int]:
    """In bytes, residents included."""
    reads, tables = dependencies(graph), graph.tables
    size = np.array([tables.value_bytes[tables.writes[op]].sum() for op in range(len(reads))])
    forward = range(loss_of(graph))
    least = max(int(size[reads[:, op]].sum() + size[op]) for op in forward) + graph.resident_bytes
    most = simulate(graph, program_order(graph)).peak_bytes
    return [int(least + k * (most - least) / BUDGETS) for k in range(BUDGETS)]


def costs_of(graph: Graph, planner: Anytime | ApRevolve, budgets: Iterable[int]) -> list[float]:
    """Per budget what a plan costs; infinite where there is none."""
    found = []
    for budget in budgets:
        try:
            plan = planner.plan(Problem(graph, budget, time_limit=SECONDS)).plan
        except Infeasible:
            found.append(inf)
            continue
        assert plan is not None
        found.append(simulate(graph, plan).cost)
    return found


def cheapest(points: Sequence[Point], budgets: Sequence[int]) -> list[float]:
    """Per budget the cost of the cheapest that fits; infinite where none does."""
    return [min((p.cost for p in points if p.peak <= b), default=inf) for b in budgets]


def compared(name: str, mine: Sequence[float], optima: Sequence[float]) -> Iterator[Figure]:
    """Over the optima: the mean as in Table 2, the least and the most."""
    ratios = [a / b for a, b in zip(mine, optima, strict=True) if max(a, b) < inf]
    yield Figure(f"{name}: budgets", len(ratios), None, f"of {BUDGETS}")
    if ratios:
        yield Figure(f"{name}: mean", geometric_mean(ratios) or inf, None, "x")
        yield Figure(f"{name}: least", min(ratios), None, "x")
        yield Figure(f"{name}: most", max(ratios), None, "x")


def ratios_of(name: str, costs: str) -> Iterator[Figure]:
    """Table 2's line of a network."""
    batch, image, _ = LAYERED[name]
    graph, title = network(name, batch, image, costs), f"keras_{name}{COSTS[costs]}"
    budgets = budgets_of(graph)
    optima = costs_of(graph, Anytime(gap=GAP), budgets)
    for strategy in ("ap_sqrt", "ap_greedy"):
        for gradients, what in ((False, "segments kept"), (True, "gradients kept, too")):
            mine = cheapest(baseline(graph, strategy, gradients), budgets)
            yield from compared(f"{title}, {strategy}, {what}", mine, optima)
    yield from compared(f"{title}, Griewank", costs_of(graph, ApRevolve(), budgets), optima)


def fits(batch: int, gradients: bool) -> bool:
    """Has the greedy baseline a plan of MobileNet in 16 GB, for a forward pass more at most?"""
    graph = network("mobilenet", batch, LAYERED["mobilenet"][1])
    costs = [op.implementations[0].cost for op in graph.ops]
    most = (sum(costs) + sum(costs[: loss_of(graph)])) * (1 + 1e-9)
    found = baseline(graph, "linearized_greedy", gradients)
    return any(point.peak <= MEMORY and point.cost <= most for point in found)


def largest(gradients: bool) -> int:
    """The largest batch that fits, where those below it fit, too."""
    batches = range(1, MOST_IMAGES)
    return batches[bisect(batches, 0, key=lambda batch: not fits(batch, gradients)) - 1]


def main() -> None:
    """Measure, print, write."""
    figures: list[Figure] = []
    for gradients, what in ((False, "segments kept"), (True, "gradients kept, too")):
        title = f"keras_mobilenet, largest batch of linearized_greedy, {what}"
        figures.append(Figure(title, largest(gradients), None, "images"))
    for name, costs in product(NETWORKS, COSTS):
        print(name, costs, flush=True)
        figures += ratios_of(name, costs)
    publish("authors_baselines", figures)


if __name__ == "__main__":
    main()
