"""Odd graphs: every strategy gives a valid plan or says why not, and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from rematbench.base.errors import Infeasible, NotApplicable, Stopped
from rematbench.graphs.builders.synthetic import join, unit_chain, with_backward
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies import registry
from rematbench.strategies.base import Problem
from rematbench.strategies.chain_dp import ChainDp
from rematbench.strategies.checkpoint_all import CheckpointAll
from rematbench.strategies.chen import (
    ApGreedy,
    ApSqrt,
    ChenGreedy,
    ChenSqrt,
    LinearizedGreedy,
    LinearizedSqrt,
)
from rematbench.strategies.feng_huang import FengHuang, RandomCheckpoints
from rematbench.strategies.hierarchical import Hierarchical
from rematbench.strategies.joins import EquivChain, JoinDp
from rematbench.strategies.kusumoto import Kusumoto
from rematbench.strategies.moccasin import Moccasin
from rematbench.strategies.practice import EveryLayer, SelectiveAttention
from rematbench.strategies.registry import make
from rematbench.strategies.revolve import ApRevolve, Revolve
from rematbench.strategies.rockmate import Rockmate
from rematbench.strategies.xla_remat import XlaRemat

STRATEGIES = [
    *(CheckpointAll(), ChenSqrt(), ChenGreedy(), ApSqrt(), ApGreedy()),
    *(LinearizedSqrt(), LinearizedGreedy(), Revolve(), ApRevolve(), Revolve(2)),
    *(FengHuang(), FengHuang("lcg"), RandomCheckpoints(), JoinDp(), EquivChain()),
    *(EquivChain(reading="chain"), EquivChain(reading="turn")),
    *(ChainDp(), ChainDp(exact_steps=0), Kusumoto(), Kusumoto("approximate", "memory")),
    *(XlaRemat(), XlaRemat("bytes", 1), Moccasin(threads=1), Rockmate(2, 2)),
    *(EveryLayer(), SelectiveAttention(), Hierarchical(polish=False)),
]


def forward(edges: dict[str, list[str]], outputs: list[str], size: int = 2, cost: int = 1) -> Graph:
    ops = tuple(
        simple_op(name, Phase.FORWARD, reads, [name], cost) for name, reads in edges.items()
    )
    return Graph("odd", tuple(Value(name, size) for name in edges), ops, tuple(outputs))


ODD = {
    "one op": forward({"a": []}, ["a"]),
    "several sources": forward({"a": [], "b": [], "c": ["a", "b"], "d": ["c"]}, ["d"]),
    "several sinks": forward({"a": [], "b": ["a"], "c": ["a"], "d": ["b"]}, ["c", "d"]),
    "disconnected": forward({"a": [], "b": ["a"], "c": [], "d": ["c"], "e": ["d"]}, ["b", "e"]),
    "a resident": Graph(
        "odd",
        (Value("x", 1, resident=True), Value("a", 2), Value("b", 2), Value("c", 2)),
        (
            simple_op("a", Phase.FORWARD, ["x"], ["a"], 1),
            simple_op("b", Phase.FORWARD, ["a", "x"], ["b"], 1),
            simple_op("c", Phase.FORWARD, ["b", "x"], ["c"], 1),
        ),
        ("c",),
    ),
    "zero bytes": forward({"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}, ["d"], size=0),
    "zero costs": forward({"a": [], "b": ["a"], "c": ["b"], "d": ["c"]}, ["d"], cost=0),
}
GRAPHS = (
    ODD
    | {f"{name}, backward": with_backward(graph) for name, graph in ODD.items()}
    | {"unit_chain1": unit_chain(1), "unit_chain2": unit_chain(2)}
    | {f"join{n}": join(n) for n in ([0], [1], [0, 0], [0, 3], [1, 1, 1], [5, 1])}
)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda s: repr(s).replace(" ", ""))
def test_a_valid_plan_or_a_reason(name: str, strategy) -> None:
    graph = GRAPHS[name]
    for budget in (None, 6, 1):
        try:
            plan = strategy.plan(Problem(graph, budget)).plan
        except (NotApplicable, Infeasible) as error:
            assert str(error)  # noqa: PT017
            continue
        trace = simulate(graph, plan)
        assert budget is None or trace.peak_bytes <= budget


def with_costs(graph: Graph, cost: Callable[[int], float]) -> Graph:
    ops = (
        replace(op, implementations=tuple(replace(i, cost=cost(k)) for i in op.implementations))
        for k, op in enumerate(graph.ops)
    )
    return replace(graph, ops=tuple(ops))


ONE_HUGE = with_costs(unit_chain(6), lambda op: 1e90 if op == 2 else 1.0)
ONE_LARGE = replace(ONE_HUGE.values[3], bytes=2**55)
EXTREMES = {
    "a huge cost": ONE_HUGE,
    "a huge cost and value": replace(
        ONE_HUGE, values=(*ONE_HUGE.values[:3], ONE_LARGE, *ONE_HUGE.values[4:])
    ),
    "tiny costs": with_costs(unit_chain(6), lambda op: 1e-300),
    "nothing": Graph("nothing", (), (), ()),
    "a resident alone": Graph("alone", (Value("x", 4, resident=True),), (), ()),
    "no output": replace(forward({"a": []}, ["a"]), outputs=()),
    "one op": forward({"a": []}, ["a"]),
}


@pytest.mark.parametrize("name", registry.names())
def test_every_strategy_on_extremes(name: str) -> None:
    """A plan that the simulator accepts, or a reason; and no lack of time where nothing is done."""
    for what, graph in EXTREMES.items():
        peak = simulate(graph, program_order(graph)).peak_bytes
        for budget in (None, peak, int(0.7 * peak)):
            try:
                plan = make(name).plan(Problem(graph, budget, time_limit=1.0)).plan
            except (Infeasible, NotApplicable) as error:
                hurried = isinstance(error, Stopped) and len(graph.ops) <= 1
                if hurried:
                    pytest.fail(f"{what}: {error}")
            else:
                assert simulate(graph, plan).peak_bytes <= (budget or math.inf), (what, budget)
