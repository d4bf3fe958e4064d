"""Why MONeT's overheads and ratios are not the paper's: what operators cost.

``python -m benchmarks.monet_costs`` writes ``runs/benchmarks/monet_costs.json``, which
docs/claims.csv quotes. A roofline charges an implementation that moves fewer bytes (in place, from
an output, a mask of bits) less than PyTorch's own operator, so that at a third of the memory a step
may be cheaper than one without recomputation. Here none is cheaper than the operator that it stands
for, and `anytime_joint` plans the paper's networks again: at the smallest budgets of
:mod:`benchmarks.monet`, and for the least memory at 10 % overhead beside `anytime`'s (Table 1).
MobileNet-V2's ratio there depends on its convolutions, which recomputation mostly spares: the
dearer they are beside the rest of a step, the less memory both need, and the nearer they come.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import replace

import torch
from torch.nn import Conv2d

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


def recosted(graph: Graph, cost: Callable[[Op, float], float]) -> Graph:
    """The graph, its implementations' costs made others by their op and what they were."""

    def changed(op: Op) -> Op:
        found = (replace(each, cost=cost(op, each.cost)) for each in op.implementations)
        return replace(op, implementations=tuple(found))

    return replace(graph, ops=tuple(map(changed, graph.ops)))


def never_cheaper(graph: Graph) -> Graph:
    """The graph, each implementation of an op at least as dear as its first, PyTorch's own."""
    return recosted(graph, lambda op, cost: max(cost, op.implementations[0].cost))


def dearer(graph: Graph, modules: Container[str], times: float) -> Graph:
    """The graph, these modules' convolutions and their gradients so many times as dear."""

    def cost(op: Op, before: float) -> float:
        concerned = op.scope in modules and "convolution" in str(op.target)
        return times * before if concerned else before

    return recosted(graph, cost)


def saved(graph: Graph) -> float:
    """What the cheapest implementations save of a step without recomputation, in %."""
    plain = sum(op.implementations[0].cost for op in graph.ops)
    least = sum(min(each.cost for each in op.implementations) for op in graph.ops)
    return 100 * (1 - least / plain)


def share(graph: Graph, modules: Container[str]) -> float:
    """What these modules' ops, with PyTorch's own implementations, take of a step, in %."""
    costs = [(op.scope in modules, op.implementations[0].cost) for op in graph.ops]
    return 100 * sum(cost for inside, cost in costs if inside) / sum(cost for _, cost in costs)


def convolutions(case: Case) -> Iterator[Figure]:
    """Table 1's memory where convolutions cost more, no implementation less than PyTorch's own."""
    model = make_model(case.model, **case.options)
    found = {name: m for name, m in model.module.named_modules() if isinstance(m, Conv2d)}
    depthwise = {name for name, module in found.items() if module.groups > 1}
    plain = capture(model)
    full, bare = costed(plain, "full"), costmodel.apply("roofline", plain.graph, plain)
    dear = (("depthwise convolutions", depthwise, 16), ("convolutions", found, 4))
    for which, modules, times in dear:
        title = f"{case.name}, {which} {times} times as dear"
        alone, both = (dearer(each, modules, times) for each in (bare, never_cheaper(full)))
        part = share(alone, found)
        yield Figure(f"{title}: convolutions' share", part, None, "% of a step")
        memory = memory_at_overhead(Anytime(gap=GAP), alone)
        yield Figure(f"{title}: memory of anytime", memory, None, "of checkpoint-all")
        ratio = memory / memory_at_overhead(AnytimeJoint(gap=GAP), both)
        yield Figure(f"{title}: memory / anytime_joint's", ratio, None, "x")


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
    figures = [each for case in CASES if case.table for each in measure(case)]
    (mobile,) = [case for case in CASES if case.table and case.model == "mobilenet_v2"]
    publish("monet_costs", [*figures, *convolutions(mobile)])


if __name__ == "__main__":
    main()
