"""Why MONeT's overheads are not the paper's: what other implementations of operators cost.

``python -m benchmarks.monet_costs`` writes ``runs/benchmarks/monet_costs.json``, which
docs/claims.csv quotes. A roofline charges an implementation that moves fewer bytes (in place, from
an output, a mask of bits) less than PyTorch's own operator, so that at a third of the memory a step
may be cheaper than one without recomputation. Here none is cheaper than the operator that it stands
for, and `anytime_joint` plans the paper's networks again: at the smallest budgets of
:mod:`benchmarks.monet`, and for the least memory at 10 % overhead beside `anytime`'s (Table 1).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from benchmarks.figures import Figure, publish
from benchmarks.monet import CASES, GAP, SECONDS, Case, cost_of, costed, memory_at_overhead
from rematbench import costmodel
from rematbench.graphs.ir import Graph, Op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.anytime.planner import Anytime
from rematbench.strategies.anytime_joint.planner import AnytimeJoint
from rematbench.strategies.base import Problem
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model


def never_cheaper(graph: Graph) -> Graph:
    """The graph, each implementation of an op at least as dear as its first, PyTorch's own."""

    def dear(op: Op) -> Op:
        least = op.implementations[0].cost
        raised = (replace(each, cost=max(each.cost, least)) for each in op.implementations)
        return replace(op, implementations=tuple(raised))

    return replace(graph, ops=tuple(map(dear, graph.ops)))


def saved(graph: Graph) -> float:
    """What the cheapest implementations save of a step without recomputation, in %."""
    plain = sum(op.implementations[0].cost for op in graph.ops)
    least = sum(min(each.cost for each in op.implementations) for op in graph.ops)
    return 100 * (1 - least / plain)


def measure(case: Case) -> Iterator[Figure]:
    """One network."""
    torch.manual_seed(0)
    plain = capture(make_model(case.model, **case.options))
    modelled = costed(plain, "full")
    graph, bare = never_cheaper(modelled), costmodel.apply("roofline", plain.graph, plain)
    yield Figure(f"{case.name}: saved by the cheapest implementations", saved(modelled), None, "%")
    base = simulate(graph, program_order(graph))
    budget = int(case.fractions[0] * base.peak_bytes)
    found = AnytimeJoint(gap=case.stop).plan(Problem(graph, budget, time_limit=SECONDS))
    overhead = 100 * (cost_of(graph, found) / base.cost - 1)
    yield Figure(f"{case.name} at {case.fractions[0]:g}: overhead", overhead, None, "%")
    joint = memory_at_overhead(AnytimeJoint(gap=GAP), graph)
    alone = memory_at_overhead(Anytime(gap=GAP), bare)
    yield Figure(f"{case.name}, 10 % overhead: memory / anytime_joint's", alone / joint, None, "x")


def main() -> None:
    """Plan, print, write."""
    AnytimeJoint().warm_up()
    publish("monet_costs", [each for case in CASES if case.table for each in measure(case)])


if __name__ == "__main__":
    main()
