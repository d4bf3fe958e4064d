"""torchvision's classifiers, and torchvision itself where its compiled part is missing."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.tracing.workload import Workload, image_size

# Weights of auxiliary heads' losses, as their papers give them.
_AUXILIARY = {"googlenet": 0.3, "inception_v3": 0.4}
_EXTRA: dict[str, dict[str, Any]] = {
    "googlenet": {"init_weights": False, "aux_logits": True},
    "inception_v3": {"init_weights": False, "aux_logits": True},
}
_RENAMED = {"resnext101": "resnext101_32x8d"}
_DECLARED: list[torch.library.Library] = []


@functools.cache
def import_torchvision() -> ModuleType:
    """torchvision, also where it was built for CUDA and this PyTorch has none.

    Such a build fails on import because its operators do not exist. Only then are they declared
    (without kernels: no classifier calls them) and the import repeated; declaring them where
    torchvision works would end the process.
    """
    try:
        return importlib.import_module("torchvision")
    except (RuntimeError, ImportError, OSError):
        if hasattr(torch.ops.torchvision, "nms"):
            raise
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    _DECLARED.append(library)  # its operators live as long as it does
    for operator in ("nms", "qnms"):
        library.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return importlib.import_module("torchvision")


def classifier(
    name: str,
    *,
    batch_size: int = 32,
    resolution: int | str | None = None,
    num_classes: int = 1000,
    **options: Any,
) -> Workload:
    """A torchvision classifier with its cross-entropy loss, randomly initialised.

    GoogLeNet and Inception v3 keep their auxiliary heads, weighted as in their papers.

    Args:
        resolution: default 224 (inception_v3: 299).
        options: keyword arguments of torchvision's own function.

    Raises:
        ConfigError: torchvision's function has no such option.
    """
    height, width = image_size(resolution, 299 if name == "inception_v3" else 224)
    if name == "vit_b_16":
        options = {"image_size": height} | options
    build: Callable[..., nn.Module] = getattr(import_torchvision().models, _RENAMED.get(name, name))
    try:
        module = build(weights=None, num_classes=num_classes, **_EXTRA.get(name, {}) | options)
    except TypeError as error:
        raise ConfigError(
            f"model={name}: {error}; its options are: batch_size, resolution, num_classes, and "
            "those of torchvision's own class"
        ) from error
    auxiliary = _AUXILIARY.get(name)

    def make_batch() -> tuple[Tensor, ...]:
        images = torch.randn(batch_size, 3, height, width)
        return images, torch.randint(0, num_classes, (batch_size,))

    return Workload(name, module, make_batch, functools.partial(_loss, auxiliary))


def _loss(auxiliary: float | None, module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    found = module(images)
    if auxiliary is None:
        return F.cross_entropy(found, labels)
    heads = [head for head in found[1:] if head is not None]
    loss = F.cross_entropy(found[0], labels)
    for head in heads:
        loss = loss + auxiliary * F.cross_entropy(head, labels)
    return loss
