"""The plans of strategies that need no time limit, by their hashes.

``python tests/support/plan_hashes.py`` writes tests/data/golden/plan_hashes.csv. A change that
moves or tidies code must leave every hash as it is.
"""

from __future__ import annotations

import csv
import functools
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import tightest

from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.graphs.builders.synthetic import with_backward
from rematbench.graphs.files import read_graph
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Problem, Strategy
from rematbench.graphs.simulate import simulate
from rematbench.strategies import registry
from rematbench.tracing.captured import Captured

GOLDEN = Path(__file__).parents[1] / "data" / "golden"
RECORD = GOLDEN / "plan_hashes.csv"
FILES = (
    *("fenghuang/resnet50", "fenghuang/vgg16", "kusumoto/resnet50", "kusumoto/unet"),
    *("kusumoto/vgg19", "moccasin/random_layered_n100", "moccasin/resnet50_train"),
)
"""Graph files below ``tests/data/golden``; beside them, the captured models of ``tightest``."""
FRACTIONS = (0.5, 0.8)
TIMED = (
    *("anytime", "anytime_joint", "checkmate_d", "checkmate_ilp", "checkmate_o", "hybrid"),
    *("checkmate_rounding", "hierarchical", "moccasin", "monet", "rockmate", "sac_ilp"),
)
"""What they find depends on the time that they have."""
SECONDS = 60.0


class Line(NamedTuple):
    """A strategy's plan for a graph: its hash, or the status without one."""

    graph: str
    strategy: str
    fraction: str
    plan: str


def names() -> list[str]:
    """The strategies whose plans are recorded: by no clock, and without a link to a host."""
    ours = (name for name in registry.names() if registry.entry(name).source == "rematbench")
    return [name for name in ours if name not in (*TIMED, *tightest.COPIES)]


@functools.cache
def graph_of(name: str) -> tuple[Graph, Captured | None]:
    """A graph file of the golden ones, with a backward pass, or a captured model."""
    if name in tightest.MODELS:
        found = tightest.captured(name)
        return found.graph, found
    graph = read_graph(GOLDEN / f"{name}.graph.json")
    scheduled = graph.loss_index is not None or name.startswith("moccasin")
    return (graph if scheduled else with_backward(graph)), None


def lines(name: str, graphs: tuple[str, ...]) -> Iterator[Line]:
    """A strategy's plans for each graph."""
    for each in graphs:
        graph, captured = graph_of(each)
        peak = simulate(graph, program_order(graph)).peak_bytes
        for fraction in FRACTIONS:
            problem = Problem(graph, int(fraction * peak), SECONDS, captured=captured)
            yield Line(each, name, str(fraction), answer(registry.make(name), problem))


def answer(strategy: Strategy, problem: Problem) -> str:
    """The plan's hash, or why there is none."""
    try:
        plan = strategy.plan(problem).plan
    except NotApplicable:
        return "not_applicable"
    except Infeasible:
        return "infeasible"
    assert plan is not None
    return plan.hash(problem.graph)


def recorded() -> list[Line]:
    """The committed table."""
    with RECORD.open(newline="") as file:
        return [Line(*row) for row in list(csv.reader(file))[1:]]


if __name__ == "__main__":
    with RECORD.open("w", newline="") as out:
        table = csv.writer(out, lineterminator="\n")
        table.writerow(Line._fields)
        for strategy_name in sys.argv[1:] or names():
            found = list(lines(strategy_name, (*FILES, *tightest.MODELS)))
            table.writerows(found)
            print(strategy_name, len(found), flush=True)
