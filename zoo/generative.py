"""BigGAN's generator and discriminator, a training step of each."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.tracing.workload import Workload, image_size

# Channel multipliers along the generator, by resolution; the discriminator has them reversed.
_MULTIPLIERS = {
    64: (16, 16, 8, 4, 2),
    128: (16, 16, 8, 4, 2, 1),
    256: (16, 16, 8, 8, 4, 2, 1),
}
_CHUNK = 20  # latent dimensions that each block gets
_CLASS = 128  # size of the shared class embedding


class _ImageAttention(nn.Module):
    """Self-attention of Zhang et al., "Self-Attention Generative Adversarial Networks" (2019)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = max(1, channels // 8)
        self.query = nn.Conv2d(channels, inner, 1, bias=False)
        self.key = nn.Conv2d(channels, inner, 1, bias=False)
        self.value = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.out = nn.Conv2d(channels // 2, channels, 1, bias=False)
        self.gain = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        batch, _, height, width = x.shape
        query = self.query(x).flatten(2)
        key = F.max_pool2d(self.key(x), 2).flatten(2)
        value = F.max_pool2d(self.value(x), 2).flatten(2)
        weights = (query.transpose(1, 2) @ key).softmax(-1)
        found = (value @ weights.transpose(1, 2)).reshape(batch, -1, height, width)
        return x + self.gain * self.out(found)


class _ConditionalNorm(nn.Module):
    """Batch normalisation whose gains and biases come from the class and the latent."""

    def __init__(self, channels: int, condition: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(channels, affine=False)
        self.gain = nn.Linear(condition, channels, bias=False)
        self.bias = nn.Linear(condition, channels, bias=False)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        gain = 1 + self.gain(condition)[:, :, None, None]
        return self.norm(x) * gain + self.bias(condition)[:, :, None, None]


class _Up(nn.Module):
    """A residual block of the generator, twice as wide and high at its end."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.norms = nn.ModuleList(
            _ConditionalNorm(channels, _CLASS + _CHUNK) for channels in (inputs, outputs)
        )
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1)

    def forward(self, x: Tensor, condition: Tensor) -> Tensor:
        h = F.interpolate(F.relu(self.norms[0](x, condition)), scale_factor=2)
        h = F.relu(self.norms[1](self.first(h), condition))
        return self.second(h) + self.shortcut(F.interpolate(x, scale_factor=2))


class _Generator(nn.Module):
    def __init__(self, size: int, base_channels: int, num_classes: int) -> None:
        super().__init__()
        channels = [base_channels * m for m in _MULTIPLIERS[size]]
        self.classes = nn.Embedding(num_classes, _CLASS)
        self.start = nn.Linear(_CHUNK, channels[0] * 16)
        self.blocks = nn.ModuleList(_Up(*pair) for pair in pairwise(channels))
        self.at = _attention_size(size)
        self.attend = _ImageAttention(channels[(self.at // 4).bit_length() - 1])
        self.finish = nn.Sequential(
            nn.BatchNorm2d(channels[-1]),
            nn.ReLU(),
            nn.Conv2d(channels[-1], 3, 3, padding=1),
            nn.Tanh(),
        )

    def forward(self, latent: Tensor, labels: Tensor) -> Tensor:
        first, *chunks = latent.split(_CHUNK, 1)
        classes = self.classes(labels)
        x = self.start(first).reshape(len(latent), -1, 4, 4)
        for block, chunk in zip(self.blocks, chunks, strict=True):
            x = block(x, torch.cat([classes, chunk], 1))
            x = self.attend(x) if x.shape[-1] == self.at else x
        return self.finish(x)


class _Down(nn.Module):
    """A residual block of the discriminator, which may halve width and height."""

    def __init__(self, inputs: int, outputs: int, first: bool, halve: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.shortcut = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.activate = nn.Identity() if first else nn.ReLU()
        self.pool = nn.AvgPool2d(2) if halve else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        h = self.second(F.relu(self.first(self.activate(x))))
        return self.pool(h) + self.pool(self.shortcut(x))


class _Discriminator(nn.Module):
    def __init__(self, size: int, base_channels: int, num_classes: int) -> None:
        super().__init__()
        multipliers = _MULTIPLIERS[size][:0:-1]
        channels = [3, *(base_channels * m for m in multipliers), 16 * base_channels]
        last = len(channels) - 2
        self.blocks = nn.ModuleList(
            _Down(inputs, outputs, first=i == 0, halve=i != last)
            for i, (inputs, outputs) in enumerate(pairwise(channels))
        )
        self.at = _attention_size(size)
        self.attend = _ImageAttention(channels[1 if size < 256 else 2])
        self.score = nn.Linear(channels[-1], 1)
        self.classes = nn.Embedding(num_classes, channels[-1])

    def forward(self, images: Tensor, labels: Tensor) -> Tensor:
        x = images
        for block in self.blocks:
            x = block(x)
            x = self.attend(x) if x.shape[-1] == self.at else x
        pooled = F.relu(x).sum((2, 3))
        return self.score(pooled)[:, 0] + (self.classes(labels) * pooled).sum(1)


def _attention_size(size: int) -> int:
    return min(64, size // 2)


def _size(name: str, resolution: int | str | None) -> int:
    height, width = image_size(resolution, 128)
    if height != width or height not in _MULTIPLIERS:
        known = ", ".join(map(str, _MULTIPLIERS))
        raise ConfigError(f"{name}: resolution={resolution}: give one of {known}")
    return height


def biggan_generator(
    *,
    batch_size: int = 32,
    resolution: int | str | None = None,
    num_classes: int = 1000,
    base_channels: int = 96,
) -> Workload:
    """The generator of Brock et al., "Large Scale GAN Training for High Fidelity Natural Image
    Synthesis" (ICLR 2019). Its loss stands in for the discriminator's verdict, which would bring a
    second model into the step: the mean of the image times a random target. Spectral
    normalisation, which changes weights between steps, is left out.

    Args:
        resolution: 64, 128 (the default) or 256.
        base_channels: the paper's ch.
    """
    size = _size("biggan_generator", resolution)
    module = _Generator(size, base_channels, num_classes)
    latent = _CHUNK * len(_MULTIPLIERS[size])

    def make_batch() -> tuple[Tensor, ...]:
        labels = torch.randint(0, num_classes, (batch_size,))
        return torch.randn(batch_size, latent), labels, torch.randn(batch_size, 3, size, size)

    return Workload("biggan_generator", module, make_batch, _generator_loss)


def _generator_loss(module: nn.Module, latent: Tensor, labels: Tensor, target: Tensor) -> Tensor:
    return (module(latent, labels) * target).mean()


def biggan_discriminator(
    *,
    batch_size: int = 32,
    resolution: int | str | None = None,
    num_classes: int = 1000,
    base_channels: int = 96,
) -> Workload:
    """The discriminator of Brock et al., "Large Scale GAN Training for High Fidelity Natural Image
    Synthesis" (ICLR 2019), with its hinge loss on real and generated images, which go through it
    as one batch, twice as large. Spectral normalisation, which changes weights between steps, is
    left out.

    Args:
        batch_size: real images; there are as many generated ones.
        resolution: 64, 128 (the default) or 256.
        base_channels: the paper's ch.
    """
    size = _size("biggan_discriminator", resolution)
    module = _Discriminator(size, base_channels, num_classes)

    def make_batch() -> tuple[Tensor, ...]:
        labels = torch.randint(0, num_classes, (2 * batch_size,))
        return torch.randn(2 * batch_size, 3, size, size), labels

    return Workload("biggan_discriminator", module, make_batch, _hinge_loss)


def _hinge_loss(module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    real, generated = module(images, labels).chunk(2)
    return F.relu(1 - real).mean() + F.relu(1 + generated).mean()
