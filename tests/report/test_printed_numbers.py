"""What benchmarks count to show why printed numbers differ."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.joins_counts import layer_bytes
from benchmarks.log_costs import evened
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.streams.events import Call, EventStream, Release


def test_an_operator_costs_its_median_and_nothing_else_changes() -> None:
    calls = [Call("relu", (), (), cost) for cost in (1, 900, 2)]
    stream = EventStream((*calls, Call("mm", (), (), 7), Release("x")), "log")
    found = evened(stream)
    assert found.events == (*[replace(call, cost=2) for call in calls], *stream.events[3:])
    assert found.name == "log"


def test_layers_are_convolutions_normalizations_and_relus_of_the_forward_pass() -> None:
    made = {"conv": ("convolution", 8), "norm": ("_native_batch_norm_legit_functional", 4),
            "sum": ("add", 2), "relu": ("relu", 1)}  # fmt: skip
    values = [Value("x", 16, resident=True), *(Value(n, size) for n, (_, size) in made.items())]
    ops = [
        replace(simple_op(name, Phase.FORWARD, ["x"], [name], 1), target=f"aten.{operator}.default")
        for name, (operator, _) in made.items()
    ]
    graph = Graph("net", tuple(values), tuple(ops), tuple(made))
    assert layer_bytes(graph) == 8 + 4 + 1
