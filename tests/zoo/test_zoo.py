"""Every model of the zoo: what it captures, its loss, its size and what it refuses."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from shallow import make_shallow

from rematbench.base.errors import ConfigError
from rematbench.graphs.ir import Phase
from rematbench.tracing.trace import capture
from rematbench.zoo import NAMES, make_model

SENTENCES = {"layers": 2, "width": 32, "heads": 2, "sequence_length": 16, "vocabulary": 50}
WIDE = {"resolution": "32x64"}
CELLS = {"cells": 3, "channels": 4}
SMALL: dict[str, dict[str, Any]] = {
    "alexnet": {"resolution": 64},
    "inception_v3": {"resolution": 299},  # its auxiliary head needs as much
    "mobilenet_v1": {"width": 0.5},
    "resnet32": {"blocks": 1},
    "densenet_bc": {"depth": 10},
    "darts": CELLS,
    "nasnet": CELLS,
    "amoebanet": CELLS,
    "unet": {"base_channels": 4, **WIDE},
    "fcn8": WIDE,
    "segnet": WIDE,
    "unet3d": {"resolution": "8x16", "depth": 24, "base_channels": 4},
    "roberta": SENTENCES,
    "transformer_lm": SENTENCES,
    "lstm_lm": {"sequence_length": 4, "hidden": 8, "vocabulary": 50},
    "tree_lstm": {"depth": 3, "hidden": 8, "vocabulary": 50},
    "biggan_generator": {"resolution": 64, "base_channels": 8},
    "biggan_discriminator": {"resolution": 64, "base_channels": 8},
    "cross_modal": {"resolution": 32, "trunk": "resnet18", "hidden": 8, "sequence_length": 3},
}
# Their full depth takes half a minute each to capture: here every stage has two blocks.
DEEP = {
    **dict.fromkeys(("densenet121", "densenet161", "densenet169", "densenet201"), "densenet"),
    **dict.fromkeys(("resnet101", "resnet152", "resnext101"), "resnet"),
}


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_gets_a_gradient(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in DEEP:
        make_shallow(DEEP[name], monkeypatch)
    torch.manual_seed(0)
    workload = make_model(name, batch_size=2, **SMALL.get(name, {"resolution": 32}))
    assert workload.name == name
    captured = capture(workload)
    graph = captured.graph
    assert [op.phase for op in graph.ops].count(Phase.LOSS) == 1
    assert set(captured.gradients) == {key for key, _ in workload.module.named_parameters()}
    resident = {value.name for value in graph.values if value.resident}
    ends = (captured.loss, *captured.gradients.values(), *captured.updates.values())
    assert set(graph.outputs) == {captured.value_of[end] for end in ends} - resident
    assert set(captured.updates) <= {key for key, _ in workload.module.named_buffers()}
    assert math.isfinite(workload(*workload.make_batch()).item())


# As published, or as the authors' code makes them.
MILLIONS = {
    "mobilenet_v1": 4.2,
    "resnet32": 0.46,
    "densenet_bc": 0.77,
    "darts": 3.35,  # the three as DARTS's code makes them;
    "nasnet": 3.83,  # published are 3.3, 3.3 (its own layout, 32 channels)
    "amoebanet": 3.15,  # and 3.2
    "unet": 31.0,
    "unet3d": 19.1,
    "roberta": 125,
    "transformer_lm": 124,
    "biggan_generator": 70.4,
    "biggan_discriminator": 88.0,
    "resnet152": 60.2,
    "resnext101": 88.8,
    "densenet201": 20.0,
}


@pytest.mark.parametrize("name", MILLIONS)
def test_size_of_the_paper(name: str) -> None:
    with torch.device("meta"):
        module = make_model(name).module
    found = sum(parameter.numel() for parameter in module.parameters()) / 1e6
    assert found == pytest.approx(MILLIONS[name], rel=0.01)


@pytest.mark.parametrize("resolution", [64, 128, 256])
@pytest.mark.parametrize("name", ["biggan_generator", "biggan_discriminator"])
def test_biggan_attends_at_every_resolution(name: str, resolution: int) -> None:
    workload = make_model(name, batch_size=2, resolution=resolution, base_channels=8)
    softmaxes = [op for op in capture(workload).graph.ops if op.name.startswith("_softmax")]
    assert [op.phase for op in softmaxes] == [Phase.FORWARD, Phase.BACKWARD]


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("unet", {"resolution": 40}, "give multiples of 16"),
        ("fcn8", {"resolution": "32x48"}, "give multiples of 32"),
        ("unet3d", {"resolution": 16, "depth": 3}, "3x16x16: give multiples of 8"),
        ("biggan_generator", {"resolution": 32}, "give one of 64, 128, 256"),
        ("biggan_discriminator", {"resolution": "64x128"}, "give one of"),
        ("cross_modal", {"trunk": "googlenet"}, "give one of vgg16"),
        ("roberta", {"width": 30, "heads": 4}, "multiple of the heads"),
        ("roberta", {"resolution": 224}, "its options are: .*sequence_length"),
        ("lstm_lm", {"layers": 0}, "layers=0: give 1 or more"),
        ("tree_lstm", {"depth": 0}, "give 1 or more"),
        ("unet3d", {"depth": 0}, "depth=0: give 1 or more"),
        ("densenet_bc", {"depth": 99}, "a multiple of 6"),
        ("densenet_bc", {"blocks": [6, 0]}, "1 layer or more"),
        ("darts", {"resolution": 30}, "give multiples of 4"),
        ("nasnet", {"cells": 2}, "give 3 or more cells"),
        ("resnet32", {"blocks": 0}, "give 1 or more"),
        ("resnet18", {"resolution": "3x"}, "give pixels"),
        ("resnet18", {"colour": "red"}, "its options are: batch_size, resolution"),
        ("zebra", {}, "the zoo has: vgg11"),
    ],
)
def test_refusals(name: str, options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        make_model(name, **options)


@pytest.mark.parametrize(
    ("name", "key"),
    [("transformer_lm", "sequence_length"), ("resnet18", "num_classes"), ("unet", "base_channels")],
)
def test_counts_are_one_or_more(name: str, key: str) -> None:
    with pytest.raises(ConfigError, match=f"model={name} model.options.{key}=0: give 1 or more"):
        make_model(name, **{key: 0})
