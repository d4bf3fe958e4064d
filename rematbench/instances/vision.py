"""torchvision's networks beyond its classifiers, as models of ``model=python``."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.tracing.workload import Workload
from rematbench.zoo.vision import classifier, import_torchvision

_CLASSES, _FRAMES = 21, 16


def torchvision_model(arch: str, batch_size: int = 16, resolution: int = 224) -> Workload:
    """A network of ``torchvision.models``, ``.segmentation`` or ``.video``, with cross-entropy.

    Args:
        arch: as ``torchvision.models.list_models()`` has it.
        batch_size: images, or clips of 16 frames.
        resolution: height and width.
    """
    models = import_torchvision().models
    if hasattr(models, arch):
        return classifier(arch, batch_size=batch_size, resolution=resolution)
    video = hasattr(models.video, arch)
    options = {"num_classes": _CLASSES} if video else {"num_classes": _CLASSES, "aux_loss": False}
    if arch.startswith("lraspp"):
        del options["aux_loss"]
    part = models.video if video else models.segmentation
    module = getattr(part, arch)(weights=None, **_no_backbone(video), **options)
    size = (batch_size, 3, *((_FRAMES,) if video else ()), resolution, resolution)
    labelled = (batch_size,) if video else (batch_size, resolution, resolution)

    def make_batch() -> tuple[Tensor, ...]:
        return torch.randn(size), torch.randint(0, _CLASSES, labelled)

    def loss(module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
        found = module(images)
        return F.cross_entropy(found if video else found["out"], labels)

    return Workload(arch, module, make_batch, loss)


def _no_backbone(video: bool) -> dict[str, None]:
    return {} if video else {"weights_backbone": None}
