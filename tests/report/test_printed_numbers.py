"""Benchmarks that say why printed numbers differ, and pages that quote their records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from benchmarks.baselines62 import STRATEGIES
from benchmarks.joins_counts import layer_bytes
from benchmarks.log_costs import evened
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.streams.events import Call, EventStream, Release

HOUSE = Path(__file__).parents[2]


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


def figures_of(name: str) -> dict[str, float]:
    record = json.loads((HOUSE / f"runs/benchmarks/{name}.json").read_text())
    return {row["figure"]: row["value"] for row in record["figures"]}


def test_table_2_on_the_zoo_s_graphs_is_its_record_s() -> None:
    found, page = figures_of("zoo62"), (HOUSE / "docs/papers/checkmate.md").read_text()
    titles = {"vgg16": "VGG-16", "vgg19": "VGG-19", "mobilenet_v1": "MobileNet"}
    titles |= {"unet": "U-Net", "resnet50": "ResNet-50"}
    for name, title in titles.items():
        cells = [f"{title} ({found[f'{name}, anytime: budgets met']:g})"]
        for heuristic in (*STRATEGIES, "revolve"):
            try:
                mean, least, most = (
                    found[f"{name}, {heuristic} / anytime: {which}"]
                    for which in ("mean", "least", "most")
                )
            except KeyError:
                cells.append("–")
                continue
            met = found[f"{name}, {heuristic}: budgets met"]
            cells.append(f"{mean:.2f}x ({least:.2f}x to {most:.2f}x; {met:g})")
        assert f"| {' | '.join(cells)} |" in page
