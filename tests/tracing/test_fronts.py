"""Both front ends, the plain trace and TorchDynamo, make the same graph."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from fronts import check_same_graph
from torch import Tensor, nn

from rematbench.base.errors import CaptureError, ConfigError
from rematbench.graphs.plan import program_order
from rematbench.tracing import Workload, capture
from rematbench.validator import measure
from rematbench.zoo import make_model

# One of each family of the zoo.
SENTENCES = {"layers": 1, "width": 32, "heads": 2, "sequence_length": 8, "vocabulary": 50}
MODELS: dict[str, dict[str, Any]] = {
    "vgg11": {"resolution": 32},
    "alexnet": {"resolution": 64},
    "mobilenet_v1": {"resolution": 32, "width": 0.5},
    "resnet18": {"resolution": 32},
    "resnet32": {"resolution": 32, "blocks": 1},
    "densenet_bc": {"resolution": 32, "depth": 10},
    "darts": {"resolution": 32, "cells": 3, "channels": 4},
    "nasnet": {"resolution": 32, "cells": 3, "channels": 4},
    "amoebanet": {"resolution": 32, "cells": 3, "channels": 4},
    "segnet": {"resolution": 32},
    "unet": {"resolution": 32, "base_channels": 4},
    "fcn8": {"resolution": 32},
    "unet3d": {"resolution": "8x16", "depth": 24, "base_channels": 4},
    "roberta": SENTENCES,
    "transformer_lm": SENTENCES,
    "lstm_lm": {"sequence_length": 2, "hidden": 8, "vocabulary": 50},
    "tree_lstm": {"depth": 2, "hidden": 8, "vocabulary": 50},
    "biggan_generator": {"resolution": 64, "base_channels": 8},
    "biggan_discriminator": {"resolution": 64, "base_channels": 8},
    "siamese": {"resolution": 32},
    "cross_modal": {"resolution": 32, "trunk": "resnet18", "hidden": 8, "sequence_length": 2},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_same_graph(name: str) -> None:
    check_same_graph(make_model(name, batch_size=2, **MODELS[name]))


LOG = logging.getLogger("recurrent")


class Recurrent(nn.Module):
    """A layer of PyTorch's own, and words for a log."""

    def __init__(self) -> None:
        super().__init__()
        self.cells = nn.LSTM(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        LOG.warning("reads %s", "something")
        found: Tensor = self.cells(x)[0]
        return found


@pytest.mark.filterwarnings("ignore:TF32")
def test_recurrent_layers_and_logs() -> None:
    module = Recurrent()
    check_same_graph(
        Workload("cells", module, lambda: (torch.ones(2, 1, 4),), lambda m, x: m(x).sum())
    )


class Tied(nn.Module):
    """A weight under two names, one of them read twice, and a buffer under two, of two modules."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.layer, self.head = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 9)
        self.head.weight = self.words.weight
        self.register_buffer("scale", torch.full((4,), 2.0))
        self.layer.register_buffer("scale", self.scale)

    def forward(self, x: Tensor) -> Tensor:
        found = self.layer(self.words(x)) * self.scale + self.layer.scale
        guess: Tensor = self.head(found)
        return guess + self.head(found.sin())


def test_tied_weights_and_buffers() -> None:
    """Gradients of a name that is read twice come first; the module is left as it was."""
    module = Tied()
    batch = (torch.arange(6),)
    captured = check_same_graph(
        Workload("tied", module, lambda: batch, lambda m, x: m(x).square().mean())
    )
    assert module.head.weight is module.words.weight
    assert module.layer.scale is module.scale
    assert [op for op in captured.graph.ops if op.name.startswith("tied_")]
    result = measure(captured, program_order(captured.graph), device="cpu", repeats=1)
    assert result.gradient_bitwise


class TiedRecurrent(nn.Module):
    """Layers that keep lists of their own weights, one of which they share."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LSTM(4, 4), nn.LSTM(4, 4)
        self.second.weight_hh_l0 = self.first.weight_hh_l0

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.second(self.first(x)[0])[0]
        return found


@pytest.mark.filterwarnings("ignore:TF32")
def test_tied_weights_of_recurrent_layers() -> None:
    module = TiedRecurrent()
    check_same_graph(
        Workload("tied", module, lambda: (torch.ones(2, 1, 4),), lambda m, x: m(x).sum())
    )
    assert module.second._flat_weights[1] is module.first.weight_hh_l0


class Masked(nn.Module):
    """Python that looks at data, to skip a mask of ones, unless a compiler reads it."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.drop = nn.Linear(8, 8), nn.Dropout(0.5)
        self.register_buffer("scale", torch.full((8,), 2.0), persistent=False)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        if not torch.compiler.is_compiling() and mask.all():
            return self.drop(self.layer(x)) * self.scale
        return self.drop(self.layer(x)) * self.scale * mask


def masked() -> Workload:
    def batch() -> tuple[Tensor, Tensor]:
        return torch.ones(4, 8), torch.ones(4, 8)

    return Workload("masked", Masked(), batch, lambda m, x, mask: m(x, mask).square().mean())


def test_dynamo_takes_what_the_plain_trace_cannot() -> None:
    with pytest.raises(CaptureError, match=r"depends on the values of its tensors"):
        capture(masked(), front="trace")
    captured = capture(masked())
    found = {(r.kind, r.target) for r in captured.residents}
    assert {("parameter", "layer.weight"), ("buffer", "scale"), ("input", 1)} <= found
    result = measure(captured, program_order(captured.graph), device="cpu", repeats=1)
    assert result.gradient_bitwise


def broken(module: nn.Module, x: Tensor) -> Tensor:
    loss: Tensor = module(x).square().mean()
    if loss > 1:
        return loss
    return 2 * loss


def test_a_graph_break_names_its_line() -> None:
    workload = Workload("broken", nn.Linear(4, 4), lambda: (torch.ones(2, 4),), broken)
    line = broken.__code__.co_firstlineno + 2
    for front in ("auto", "trace", "dynamo"):
        with pytest.raises(CaptureError, match=rf"{Path(__file__).name}:{line} in broken") as text:
            capture(workload, front=front)
        assert "\n" not in str(text.value)


def by_items(module: nn.Module, x: Tensor) -> Tensor:
    kept: Tensor = module(x)[: int(x.sum().item())]
    return kept.sum()


def by_selection(module: nn.Module, x: Tensor) -> Tensor:
    kept: Tensor = module(x)[x > 0]
    return kept.sum()


def by_a_mask(module: nn.Module, x: Tensor) -> Tensor:
    found: Tensor = module(x).sum() if (x > 0).all() else module(x).mean()
    return found


def raising(module: nn.Module, x: Tensor) -> Tensor:
    raise ValueError("no such thing here")


@pytest.mark.parametrize(
    ("loss", "said"),
    [
        (by_items, "depends on the values of its tensors"),
        (by_selection, "depends on the values of its tensors"),
        (by_a_mask, "Data-dependent branching"),
        (raising, "no such thing here"),
    ],
)
def test_what_is_not_one_graph(loss: Any, said: str) -> None:
    workload = Workload("broken", nn.Linear(4, 4), lambda: (torch.ones(2, 4),), loss)
    line = loss.__code__.co_firstlineno + 1
    place = rf"{Path(__file__).name}:{line} in {loss.__name__}"
    for front, words in (("dynamo", said), ("auto", "")):
        with pytest.raises(CaptureError, match=rf"{place}.*{words}") as text:
            capture(workload, front=front)
        assert "\n" not in str(text.value)


def test_unknown() -> None:
    with pytest.raises(ConfigError, match="auto, trace, dynamo"):
        capture(masked(), front="magic")
