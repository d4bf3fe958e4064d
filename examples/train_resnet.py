"""A torchvision ResNet, trained within a budget by one line.

    python examples/train_resnet.py --budget 0.5

Two copies of a ResNet-18 with random weights see the same made-up images: one as usual, one
compiled by rematbench within a share of the other's measured peak. The loss is outside of what is
compiled. Losses, parameters and buffers are compared.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from beside import Batch, arguments, side_by_side
from torch import Tensor, nn

from rematbench.zoo.vision import import_torchvision

models = import_torchvision().models


def images(steps: int, batch_size: int, resolution: int) -> Iterator[Batch]:
    """Batches of ten classes: a pattern each, and noise."""
    generator = torch.Generator().manual_seed(0)
    patterns = torch.randn(10, 3, resolution, resolution, generator=generator)
    for _ in range(steps):
        labels = torch.randint(10, (batch_size,), generator=generator)
        noise = torch.randn(batch_size, 3, resolution, resolution, generator=generator)
        yield 0.3 * patterns[labels] + noise, labels


def loss(model: Any, batch: Batch) -> Tensor:
    x, labels = batch
    return F.cross_entropy(model(x), labels)


def main() -> None:
    given = arguments(__doc__.splitlines()[0], batch_size=16, resolution=96, model="resnet18")
    torch.manual_seed(0)
    plain = models.get_model(given.model, num_classes=10).train()
    data = list(images(given.steps, given.batch_size, given.resolution))

    def compiled(model: nn.Module, options: dict[str, Any]) -> Any:
        return torch.compile(model, backend="rematbench", options=options)

    side_by_side(given, plain, loss, data, compiled)


if __name__ == "__main__":
    main()
