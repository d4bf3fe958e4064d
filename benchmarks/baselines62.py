"""Checkmate's section 6.2: baselines as a fixed S, and the R of least cost for it.

``python -m benchmarks.baselines62 [NETWORKS]`` writes runs/benchmarks/baselines62.json. Our
``ap_*`` and ``linearized_*`` plan by ``plan_with_checkpoints``; the paper's set S from the
checkpoints and then solve for R. It prints no S, so that three of them are tried on the networks
and quick budgets of ``checkmate_table2``, each over the cost of ``anytime``, which is ours, in
FLOPs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from benchmarks.figures import Figure, publish
from benchmarks.graphs import captured
from rematbench import costmodel
from rematbench.base.errors import Infeasible
from rematbench.engines.plans.stages import BoolArray, dependencies, needed, plan_with_checkpoints
from rematbench.graphs.builders.keras import keras_graph
from rematbench.graphs.builders.layers import kind_of
from rematbench.graphs.builders.synthetic import with_backward
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.graphs.structure import articulation_points, forward_ops, read_bytes
from rematbench.jobs.accounting import account
from rematbench.report.tables import geometric_mean
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.base import Problem, Strategy
from rematbench.strategies.checkmate.rounding import two_phase
from rematbench.strategies.chen import every_sqrt, greedy, segment_sizes

SECONDS = 6.0
"""Of ``anytime``, as in checkmate_table2's quick profile."""
MOST = 100
"""Segment sizes of the greedy ones, as in theirs."""
VGG = (0.95, 0.9, 0.85)
LAYERED: dict[str, tuple[int, tuple[int, int], tuple[float, ...]]] = {
    "vgg16": (256, (224, 224), VGG),
    "vgg19": (256, (224, 224), VGG),
    "mobilenet": (512, (224, 224), (0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)),
    "unet": (32, (416, 608), (0.9, 0.8, 0.7, 0.6, 0.5, 0.45)),
    "resnet50": (256, (224, 224), (0.9, 0.7, 0.5, 0.3, 0.2)),
}
"""By Keras' layers: batch, image, budgets as parts of checkpoint-all's peak."""
CAPTURED: dict[str, tuple[dict[str, Any], tuple[float, ...]]] = {
    "vgg16": ({"batch_size": 256}, (0.9, 0.7)),
    "vgg19": ({"batch_size": 256}, (0.9, 0.7)),
    "mobilenet_v1": ({"batch_size": 512}, (0.7, 0.4)),
    "unet": ({"batch_size": 32, "resolution": "416x608"}, (0.7, 0.5)),
    "resnet50": ({"batch_size": 256}, (0.6, 0.4)),
}
"""Of PyTorch's graphs: options, budgets."""


@dataclass(frozen=True)
class SweptNetwork:
    """A graph under Checkmate's accounting, in FLOPs, and its budgets in bytes."""

    name: str
    graph: Graph
    budgets: tuple[int, ...]


def networks() -> Iterator[tuple[str, Callable[[], SweptNetwork]]]:
    """Those of checkmate_table2, made when asked for."""
    for name, (batch, image, shares) in LAYERED.items():
        yield f"keras_{name}", partial(_layered, name, batch, image, shares)
    for name, (options, shares) in CAPTURED.items():
        yield name, partial(_captured, name, options, shares)


def _layered(
    name: str, batch: int, image: tuple[int, int], shares: tuple[float, ...]
) -> SweptNetwork:
    graph = with_backward(keras_graph(name, batch, *image))
    kinds = {value.name: kind_of(value.name) for value in graph.values if value.resident}
    costed = costmodel.apply("flops", graph, None)
    return _network(f"keras_{name}", account("checkmate", costed, kinds), shares)


def _captured(name: str, options: dict[str, Any], shares: tuple[float, ...]) -> SweptNetwork:
    found = captured(name, **options)
    costed = costmodel.apply("flops", found.graph, found)
    graph = account("checkmate", costed, found.kinds, found.gradient_values)
    return _network(name, graph, shares)


def _network(name: str, graph: Graph, shares: tuple[float, ...]) -> SweptNetwork:
    peak = simulate(graph, program_order(graph)).peak_bytes
    return SweptNetwork(name, graph, tuple(int(share * peak) for share in shares))


# Checkpoints, as strategies/chen/planner.py chooses them


def checkpoint_sets(graph: Graph, strategy: str) -> list[tuple[int, ...]]:
    """The sets of checkpoints that a strategy tries: one for sqrt, a sweep for greedy."""
    find = articulation_points if strategy.startswith("ap") else forward_ops
    candidates = find(graph)
    if strategy.endswith("sqrt"):
        return [tuple(every_sqrt(candidates).tolist())]
    ops = forward_ops(graph)
    bytes_of, allowed = read_bytes(graph)[ops], np.isin(ops, candidates)
    sweep = segment_sizes(bytes_of, MOST)
    return list(dict.fromkeys(tuple(ops[greedy(bytes_of, allowed, b)].tolist()) for b in sweep))


# What is kept per stage


def loss_place(graph: Graph) -> int:
    """The loss op's row in S."""
    assert graph.loss_index is not None
    return int(np.searchsorted(needed(graph), graph.loss_index))


def only_checkpoints(graph: Graph, chosen: tuple[int, ...]) -> BoolArray:
    """S of nothing but the checkpoints and what follows the last, once the backward pass runs.

    Whatever else a stage reads is computed in it again, from the checkpoint before.
    """
    ops, loss = needed(graph), loss_place(graph)
    kept = np.tri(len(ops), k=-1, dtype=bool)  # forward values till the loss, gradients till read
    dropped = ~np.isin(ops[:loss], chosen) & (ops[:loss] <= max(chosen, default=-1))
    kept[loss + 1 :, :loss] &= ~dropped
    return kept


def segments(graph: Graph, chosen: tuple[int, ...]) -> BoolArray:
    """S that also keeps a segment from the first backward op that reads of it to the last."""
    ops, loss, reads = needed(graph), loss_place(graph), dependencies(graph)
    kept = only_checkpoints(graph, chosen)
    segment = np.searchsorted(np.sort(chosen), ops[:loss], side="left")
    for each in np.unique(segment[~kept[-1, :loss]]):
        mine = np.flatnonzero((segment == each) & ~kept[-1, :loss])
        mine = mine[reads[mine, loss + 1 :].any(axis=1)]  # others are needed once, to restore these
        if len(mine):
            stages = loss + 1 + np.flatnonzero(reads[mine, loss + 1 :].any(axis=0))
            kept[stages[0] + 1 : stages[-1] + 1, mine] = True
    return kept


def as_planned(graph: Graph, chosen: tuple[int, ...]) -> BoolArray:
    """S of the plan that our strategy makes: which op's values are there when a stage begins."""
    return kept_by(graph, plan_with_checkpoints(graph, chosen))


def kept_by(graph: Graph, plan: Plan) -> BoolArray:
    """S of a plan whose first computes are in program order."""
    ops, tables = needed(graph), graph.tables
    place = np.full(len(graph.ops) + 1, -1, dtype=np.int64)  # a resident's writer is -1
    place[ops] = np.arange(len(ops))
    owner = place[tables.writer]
    there = np.zeros(len(graph.values), dtype=bool)
    kept = np.zeros((len(ops), len(ops)), dtype=bool)
    stage, begins = 0, False
    for code in plan.codes(graph).tolist():
        if code < 0:
            there[~code] = False
            continue
        if begins:  # what the last stage left is freed by now
            mine = owner[there]
            kept[stage, mine[mine >= 0]] = True
        op = int(tables.op_of[code])
        begins = int(place[op]) == stage
        stage += begins
        there[tables.writes[op]] = True
    return kept


SCHEDULES: dict[str, Callable[[Graph, tuple[int, ...]], Plan]] = {
    "ours, before": plan_with_checkpoints,
    "S of ours, R of least cost": lambda graph, chosen: two_phase(graph, as_planned(graph, chosen)),
    "S of segments": lambda graph, chosen: two_phase(graph, segments(graph, chosen)),
    "S of checkpoints": lambda graph, chosen: two_phase(graph, only_checkpoints(graph, chosen)),
}
"""How a set of checkpoints becomes a plan."""
STRATEGIES = ("ap_sqrt", "ap_greedy", "linearized_sqrt", "linearized_greedy")


@dataclass(frozen=True)
class Point:
    """A plan's cost (FLOPs) and peak (bytes)."""

    cost: float
    peak: int


def optimum(
    network: SweptNetwork, planner: Strategy | None = None, seconds: float = SECONDS
) -> list[float | None]:
    """Per budget: the cost of the plan that a planner finds (None: ``anytime``)."""
    planner = Anytime() if planner is None else planner
    found: list[float | None] = []
    for budget in network.budgets:
        try:
            plan = planner.plan(Problem(network.graph, budget, time_limit=seconds)).plan
        except Infeasible:
            found.append(None)
            continue
        assert plan is not None
        found.append(simulate(network.graph, plan).cost)
    return found


def ratios(
    network: SweptNetwork, points: list[Point], best: list[float | None]
) -> list[float | None]:
    """Per budget: the cheapest plan that fits, over the optimum; None where there is none."""
    found: list[float | None] = []
    for budget, cost in zip(network.budgets, best, strict=True):
        fits = [point.cost for point in points if point.peak <= budget]
        found.append(min(fits) / cost if fits and cost else None)
    return found


def trial(network: SweptNetwork) -> list[dict[str, Any]]:
    """A line per strategy and schedule: ratios by budget."""
    best, base = optimum(network), simulate(network.graph, program_order(network.graph)).peak_bytes
    lines = []
    for strategy in STRATEGIES:
        chosen = checkpoint_sets(network.graph, strategy)
        for schedule, make in SCHEDULES.items():
            traces = [simulate(network.graph, make(network.graph, each)) for each in chosen]
            points = [Point(trace.cost, trace.peak_bytes) for trace in traces]
            lines.append(
                {
                    "network": network.name,
                    "strategy": strategy,
                    "schedule": schedule,
                    "budgets": [round(budget / base, 3) for budget in network.budgets],
                    "ratios": ratios(network, points, best),
                    "leanest_peak": round(min(point.peak for point in points) / base, 4),
                }
            )
    return lines


def figure(line: dict[str, Any]) -> Figure | None:
    """The geometric mean over the budgets that a line meets, as in Table 2."""
    met = [ratio for ratio in line["ratios"] if ratio]
    mean = geometric_mean(met)
    if mean is None:
        return None
    text = f"{len(met)} of {len(line['ratios'])} budgets"
    name = f"{line['network']}, {line['strategy']}: {line['schedule']}, {text}"
    return Figure(name, mean, None, "x")


def main(chosen: list[str]) -> None:
    """Try every network, or those chosen."""
    lines: list[dict[str, Any]] = []
    for name, make in networks():
        if not chosen or name in chosen:
            lines += trial(make())
            print(name, flush=True)
    publish("baselines62", [f for f in map(figure, lines) if f], trial=lines)


if __name__ == "__main__":
    main(sys.argv[1:])
