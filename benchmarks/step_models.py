"""The models of ``benchmarks.step``, at sizes for two cores."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rematbench.tracing.workload import Workload
from rematbench.zoo import make_model
from rematbench.zoo.vision import import_torchvision

_small = {"size": "small", "batch_size": 8}


def gpt2(layers: int = 2, **others: Any) -> Workload:
    """GPT-2's blocks, narrower."""
    sizes = {"n_layer": layers, "n_embd": 96, "n_head": 4, "n_positions": 256, "vocab_size": 500}
    return make_model("gpt2", **{**_small, "sequence_length": 64, **sizes, **others})


def vit() -> Workload:
    """ViT-B/16's layers, narrower and fewer."""
    transformer = import_torchvision().models.VisionTransformer
    module = transformer(64, 8, 2, 4, 96, 384, num_classes=100)

    def batch() -> tuple[Tensor, ...]:
        return torch.randn(8, 3, 64, 64), torch.randint(100, (8,))

    def loss(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(images), labels)

    return Workload("vit", module, batch, loss)


MODELS: dict[str, Callable[[], Workload]] = {
    "resnet32": partial(make_model, "resnet32", batch_size=8),
    "vit": vit,
    "gpt2": gpt2,
    "bert": partial(
        make_model, "bert_large", **_small, sequence_length=64, max_position_embeddings=64
    ),
    "t5": partial(make_model, "t5_large", **_small, sequence_length=48, target_length=32),
    "unet": partial(make_model, "unet", batch_size=1, resolution=192, base_channels=8),
    "lstm": partial(
        make_model, "lstm_lm", batch_size=8, sequence_length=12, hidden=64, vocabulary=200
    ),
    "swin": partial(make_model, "swin_b", **_small),
    "moe": partial(make_model, "mixtral", **_small, sequence_length=32, experts="grouped_mm"),
    "lora": partial(gpt2, lora=4),
}


class WholeStep(nn.Module):
    """A model that returns its loss, so that all of the step is in what is compiled."""

    def __init__(self, workload: Workload) -> None:
        super().__init__()
        self.module, self._loss = copy.deepcopy(workload.module).train(), workload.loss

    def forward(self, *batch: Tensor) -> Tensor:
        """The loss."""
        return self._loss(self.module, *batch)


class Twice(nn.Module):
    """Checkpointed blocks that one graph passes twice (pytorch#193193)."""

    def __init__(self, blocks: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
            for _ in range(blocks)
        )

    def _pass(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return x

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return (self._pass(x) * self._pass(y)).mean()


def twice() -> Workload:
    """A model as in pytorch#193193."""

    def batch() -> tuple[Tensor, ...]:
        return torch.randn(64, 96), torch.randn(64, 96)

    return Workload("twice", Twice(8, 96), batch, lambda model, x, y: model(x, y))
