"""Real models, executed: the bits of eager training, whatever is recomputed."""

from __future__ import annotations

from typing import Any

import pytest
from helpers import recompute_everything
from shallow import make_shallow

from rematbench import validator
from rematbench.graphs.simulate import simulate
from rematbench.tracing.trace import capture
from rematbench.zoo import NAMES, make_model

SENTENCES = {"layers": 2, "width": 32, "heads": 2, "sequence_length": 16, "vocabulary": 50}
SMALL: dict[str, dict[str, Any]] = {
    "vgg16": {"resolution": 32},
    "resnet50": {"resolution": 64},
    "mobilenet_v2": {"resolution": 64},
    "googlenet": {"resolution": 64},
    "densenet121": {"resolution": 32},
    "vit_b_16": {"resolution": 32},
    "convnext_tiny": {"resolution": 32},
    "mobilenet_v1": {"resolution": 64},
    "resnet32": {"blocks": 2},
    "densenet_bc": {"depth": 22},
    "darts": {"cells": 4, "channels": 4},
    "unet": {"resolution": "64x96", "base_channels": 8},
    "segnet": {"resolution": 32},
    "unet3d": {"resolution": 16, "base_channels": 4},
    "roberta": SENTENCES,
    "transformer_lm": SENTENCES,
    "lstm_lm": {"sequence_length": 5, "hidden": 16, "vocabulary": 50},
    "tree_lstm": {"depth": 3, "hidden": 8, "embedding": 8, "vocabulary": 50},
    "biggan_generator": {"base_channels": 8, "num_classes": 10},
    "biggan_discriminator": {"base_channels": 8, "num_classes": 10},
    "siamese": {"resolution": 64},
    "cross_modal": {
        **{"resolution": 64, "trunk": "resnet18", "sequence_length": 4},
        **{"hidden": 16, "vocabulary": 50},
    },
}
DEEP = {"resnet50": "resnet", "densenet121": "densenet"}


@pytest.mark.parametrize("name", SMALL)
def test_bits_of_eager_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in DEEP:
        make_shallow(DEEP[name], monkeypatch)
    captured = capture(make_model(name, batch_size=2, **SMALL[name]))
    plan = recompute_everything(captured.graph)
    assert simulate(captured.graph, plan).recomputations > 0
    found = validator.measure(captured, plan, device="cpu", repeats=1)
    assert found.reason is None
    assert found.gradient_bitwise
    parameters = [p for p in captured.workload.module.parameters() if p.requires_grad]
    assert 0 < len(captured.gradients) <= len(parameters)


def test_every_model_has_a_configuration() -> None:
    from importlib.resources import files

    found = {path.name.partition(".")[0] for path in (files("rematbench.conf") / "model").iterdir()}
    assert set(NAMES) <= found
