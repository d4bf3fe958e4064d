"""Models whose branches only meet in the loss."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.tracing.workload import Workload, image_size
from rematbench.zoo.sequences import UnrolledLSTM
from rematbench.zoo.vision import import_torchvision

_TRUNKS = ("vgg16", "vgg19", "resnet18", "resnet50", "resnet152")


def _trunk(name: str, embedding: int) -> nn.Module:
    """A torchvision classifier whose last layer embeds instead of classifying."""
    return getattr(import_torchvision().models, name)(weights=None, num_classes=embedding)


def siamese(
    *,
    batch_size: int = 32,
    resolution: int | str | None = None,
    embedding: int = 128,
    margin: float = 0.2,
) -> Workload:
    """The triplet network of Schroff et al., "FaceNet: A Unified Embedding for Face Recognition
    and Clustering" (CVPR 2015), on ResNet-18: one trunk embeds the anchor, the positive and the
    negative image, each in a pass of its own, and the triplet loss joins the three.

    Args:
        batch_size: triplets.
        resolution: default 224.
        margin: alpha of the paper.
    """
    height, width = image_size(resolution, 224)

    def make_batch() -> tuple[Tensor, ...]:
        shape = (batch_size, 3, height, width)
        return torch.randn(*shape), torch.randn(*shape), torch.randn(*shape)

    def loss(module: nn.Module, *images: Tensor) -> Tensor:
        anchor, positive, negative = (F.normalize(module(image)) for image in images)
        near = (anchor - positive).square().sum(1)
        far = (anchor - negative).square().sum(1)
        return F.relu(near - far + margin).mean()

    return Workload("siamese", _trunk("resnet18", embedding), make_batch, loss)


class _CrossModal(nn.Module):
    """An image and a text encoder; returns the cosine of each image to each text."""

    def __init__(self, trunk: nn.Module, lstm: UnrolledLSTM, embedding: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.lstm = lstm
        self.project = nn.Linear(lstm.hidden, embedding)

    def forward(self, images: Tensor, tokens: Tensor) -> Tensor:
        seen = F.normalize(self.trunk(images))
        read = F.normalize(self.project(self.lstm(tokens)[-1]))
        return seen @ read.t()


def cross_modal(
    *,
    batch_size: int = 32,
    resolution: int | str | None = None,
    trunk: str = "vgg19",
    sequence_length: int = 16,
    hidden: int = 300,
    embedding: int = 300,
    vocabulary: int = 10000,
    margin: float = 0.2,
) -> Workload:
    """The image-sentence embedding of Kiros et al., "Unifying Visual-Semantic Embeddings with
    Multimodal Neural Language Models" (2014): a convolutional network reads images, an LSTM reads
    sentences, and a ranking loss on cosines pulls each image to its own sentence, away from the
    others of the batch. Here the convolutional network is trained too.

    Args:
        resolution: default 224.
        trunk: torchvision's classifier to read images with.
        hidden: of the LSTM and its words.
    """
    height, width = image_size(resolution, 224)
    if trunk not in _TRUNKS:
        raise ConfigError(f"cross_modal: trunk={trunk}: give one of {', '.join(_TRUNKS)}")
    lstm = UnrolledLSTM(vocabulary, hidden, hidden, 1, 0.0)
    module = _CrossModal(_trunk(trunk, embedding), lstm, embedding)

    def make_batch() -> tuple[Tensor, ...]:
        images = torch.randn(batch_size, 3, height, width)
        return images, torch.randint(0, vocabulary, (batch_size, sequence_length))

    def loss(module: nn.Module, images: Tensor, tokens: Tensor) -> Tensor:
        cosines = module(images, tokens)
        own = cosines.diagonal()
        # The pairs on the diagonal add the margin, a constant, to each sum.
        by_image = F.relu(margin + cosines - own[:, None]).sum(1) - margin
        by_text = F.relu(margin + cosines - own[None, :]).sum(0) - margin
        return (by_image + by_text).mean()

    return Workload("cross_modal", module, make_batch, loss)
