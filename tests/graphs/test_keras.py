"""Checkmate's networks by Keras' layers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rematbench.base.errors import ConfigError, GraphError
from rematbench.costmodel import apply
from rematbench.graphs.builders.keras import NETWORKS, keras_graph
from rematbench.graphs.builders.layers import FLOAT, GRADIENTS, IMAGE, WEIGHTS, Layers, kind_of
from rematbench.graphs.builders.synthetic import with_backward
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.accounting import account

DATA = Path(__file__).parents[3] / "shared" / "data" / "training_graphs"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="needs ../shared/data/training_graphs")
# As Keras counts them, moving statistics of batch normalization included.
PARAMETERS = {
    "vgg16": 138_357_544,
    "vgg19": 143_667_240,
    "mobilenet": 4_253_864,
    "resnet50": 25_636_712,
}


def weights(graph: Graph) -> int:
    return sum(v.bytes for v in graph.values if v.name.endswith(WEIGHTS)) // FLOAT


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters(name: str) -> None:
    assert weights(keras_graph(name, 1, 224, 224)) == PARAMETERS[name]


def test_weights_do_not_depend_on_the_images() -> None:
    for name in NETWORKS:
        if "vgg" not in name:  # whose first matrix takes every pixel
            assert weights(keras_graph(name, 1, 64, 64)) == weights(keras_graph(name, 2, 96, 128))


@needs_data
@pytest.mark.parametrize(
    ("name", "batch", "size"),
    [("unet", 32, (416, 608)), ("mobilenet", 512, (224, 224)), ("vgg16", 256, (224, 224))],
)
def test_the_same_graphs_made_by_others(name: str, batch: int, size: tuple[int, int]) -> None:
    theirs = json.loads((DATA / f"{name}.graph.json").read_text())
    graph = with_backward(keras_graph(name, batch, *size))
    size_of = {value.name: value.bytes for value in graph.values}
    moving = {value.name for value in graph.values if not value.resident}
    assert [op.name for op in graph.ops] == [op["name"] for op in theirs["ops"]]
    for op, other in zip(graph.ops, theirs["ops"], strict=True):
        assert {*op.reads} & moving == {*other["reads"]}
        # They count a multiplication and an addition as one; the images' gradient is not ours.
        assert op.cost in (other["cost"], 2 * other["cost"])
    for value in theirs["values"]:
        if value["name"] != "loss":
            assert size_of[value["name"]] == value["bytes"]


def test_papers_memory_of_unet() -> None:
    """23 GB in section 6.3; all values and the gradients of one layer are 22.6."""
    graph = with_backward(keras_graph("unet", 32, 416, 608))
    kinds = {v.name: kind_of(v.name) for v in graph.values if v.resident}
    peak = simulate(account("checkmate", graph, kinds), program_order(graph)).peak_bytes
    assert 23e9 / 1.15 < peak < 23e9
    assert simulate(graph, program_order(graph)).peak_bytes == peak  # each weight counts twice


def test_resident_values() -> None:
    net = Layers("one", 3, 8, 8)
    net.norm(net.conv(IMAGE, 2))
    graph = net.graph()
    kinds = {v.name: kind_of(v.name) for v in graph.values if v.resident}
    assert kinds == {
        IMAGE: "input",
        f"conv0{WEIGHTS}": "parameter",
        f"conv0{GRADIENTS}": "buffer",
        f"bn1{WEIGHTS}": "parameter",
        f"bn1{GRADIENTS}": "buffer",
    }
    assert {v.name: v.bytes for v in graph.values}["conv0"] == 3 * 8 * 8 * 2 * FLOAT
    assert [op.cost for op in graph.ops] == [3 * 8 * 8 * 2 * 27 * 2, 3 * 8 * 8 * 2 * 4]


def test_shapes() -> None:
    """Windows with and without zeros around, strides, and what brings sizes back."""
    net = Layers("sizes", 1, 9, 9)

    def numbers(name: str) -> int:
        sizes = {value.name: value.bytes for value in net.graph().values}
        return sizes[name] // FLOAT

    assert numbers(net.conv(IMAGE, 1, 3, 2)) == 5 * 5
    small = net.conv(IMAGE, 1, 3, 2, padded=False)
    assert numbers(small) == 4 * 4
    assert numbers(net.deconv(small, 2, 4, 2)) == 10 * 10 * 2
    assert numbers(net.crop(net.upsample(small), small)) == 4 * 4
    assert numbers(net.pool(small)) == 2 * 2
    assert numbers(net.mean(small)) == 1


def test_costs() -> None:
    """flops and roofline need no capture where a graph's costs are in flop."""
    graph = with_backward(keras_graph("vgg16", 2, 224, 224))
    assert apply("flops", graph, None) is graph
    timed = apply("roofline", graph, None, preset="v100")
    assert timed.cost_unit == "second"
    conv, pool = (timed.ops[timed.op_index[name]] for name in ("conv1", "pool2"))
    assert conv.cost == pytest.approx(graph.ops[1].cost / 15.7e12)  # arithmetic
    moved = sum(v.bytes for v in graph.values if v.name in ("conv1", "pool2"))
    assert pool.cost == pytest.approx(moved / 900e9)  # traffic
    with pytest.raises(ConfigError, match="costmodel=flops or costmodel=roofline"):
        apply("profiled", graph, None)
    with pytest.raises(ConfigError, match="unknown machine"):
        apply("roofline", graph, None, preset="abacus")


def test_bad_input() -> None:
    with pytest.raises(ConfigError, match="use one of vgg16"):
        keras_graph("vgg61", 1, 224, 224)
    with pytest.raises(ConfigError, match="at most"):
        keras_graph("vgg16", 1, 10**9, 10**9)
    with pytest.raises(GraphError, match="too small for its layer"):
        keras_graph("vgg16", 1, 31, 31)
    with pytest.raises(GraphError, match="multiples of 8"):
        keras_graph("unet", 1, 100, 100)
