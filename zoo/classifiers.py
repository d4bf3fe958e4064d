"""Image classifiers that torchvision does not have."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.tracing.workload import Workload, image_size


def on_images(
    name: str, module: nn.Module, batch_size: int, size: tuple[int, int], num_classes: int
) -> Workload:
    """Cross entropy of ``module``'s logits on images of ``size`` with three channels."""

    def make_batch() -> tuple[Tensor, ...]:
        images = torch.randn(batch_size, 3, *size)
        return images, torch.randint(0, num_classes, (batch_size,))

    return Workload(name, module, make_batch, cross_entropy)


def cross_entropy(module: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    """The loss of a module whose output is logits."""
    return F.cross_entropy(module(images), labels)


def _conv_bn_relu(inputs: int, outputs: int, kernel: int, stride: int, groups: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(),
    )


def mobilenet_v1(
    *,
    batch_size: int = 32,
    resolution: int | str | None = None,
    num_classes: int = 1000,
    width: float = 1.0,
) -> Workload:
    """MobileNet of Howard et al., "MobileNets: Efficient Convolutional Neural Networks for Mobile
    Vision Applications" (2017), table 1. The last depthwise convolution has stride 1: the stride 2
    that the table prints contradicts the sizes beside it.

    Args:
        resolution: default 224.
        width: the paper's width multiplier.
    """

    def scaled(channels: int) -> int:
        return max(8, int(channels * width))

    channels = scaled(32)
    layers = [_conv_bn_relu(3, channels, 3, 2, 1)]
    plan = [(64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2), *[(512, 1)] * 5]
    for outputs, stride in (*plan, (1024, 2), (1024, 1)):
        layers.append(_conv_bn_relu(channels, channels, 3, stride, channels))
        layers.append(_conv_bn_relu(channels, scaled(outputs), 1, 1, 1))
        channels = scaled(outputs)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
    module = nn.Sequential(*layers, *head)
    return on_images("mobilenet_v1", module, batch_size, image_size(resolution, 224), num_classes)


class _BasicBlock(nn.Module):
    """Two convolutions and a shortcut without parameters (option A of the paper)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = _conv_bn_relu(inputs, outputs, 3, stride, 1)
        self.conv = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)
        self.stride = stride
        self.grown = outputs - inputs

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.grown:
            half = self.grown // 2
            shortcut = x[:, :, :: self.stride, :: self.stride]
            shortcut = F.pad(shortcut, (0, 0, 0, 0, half, self.grown - half))
        return F.relu(self.norm(self.conv(self.first(x))) + shortcut)


def resnet32(
    *,
    batch_size: int = 128,
    resolution: int | str | None = None,
    num_classes: int = 10,
    blocks: int = 5,
) -> Workload:
    """The CIFAR ResNet of He et al., "Deep Residual Learning for Image Recognition" (CVPR 2016),
    section 4.2, of 6n+2 layers: three stages of n blocks with 16, 32 and 64 channels.

    Args:
        resolution: default 32.
        blocks: n; 5 makes 32 layers.
    """
    if blocks < 1:
        raise ConfigError(f"resnet32: blocks={blocks}: give 1 or more")
    layers = [_conv_bn_relu(3, 16, 3, 1, 1)]
    channels = 16
    for outputs in (16, 32, 64):
        for _ in range(blocks):
            layers.append(_BasicBlock(channels, outputs, 1 if outputs == channels else 2))
            channels = outputs
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, num_classes))
    module = nn.Sequential(*layers, *head)
    return on_images("resnet32", module, batch_size, image_size(resolution, 32), num_classes)


def _bn_relu_conv(inputs: int, outputs: int, kernel: int) -> nn.Module:
    return nn.Sequential(
        nn.BatchNorm2d(inputs),
        nn.ReLU(),
        nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False),
    )


class _DenseLayer(nn.Module):
    """A bottleneck layer, whose output is concatenated to its input."""

    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.bottleneck = _bn_relu_conv(inputs, 4 * growth, 1)
        self.conv = _bn_relu_conv(4 * growth, growth, 3)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(self.bottleneck(x))], 1)


def densenet_bc(
    *,
    batch_size: int = 64,
    resolution: int | str | None = None,
    num_classes: int = 10,
    depth: int = 100,
    growth: int = 12,
    compression: float = 0.5,
    blocks: Sequence[int] | None = None,
) -> Workload:
    """The CIFAR DenseNet-BC of Huang et al., "Densely Connected Convolutional Networks"
    (CVPR 2017): three dense blocks of bottleneck layers, compressed by theta between them.

    Args:
        resolution: default 32.
        depth: L, layers in all: 4 and a multiple of 6.
        growth: k.
        compression: theta.
        blocks: bottleneck layers of each dense block, in place of what depth says:
            6, 12, 24, 16 are those of the paper's DenseNet-121 for ImageNet.
    """
    count, rest = divmod(depth - 4, 6)
    if blocks is None and (count < 1 or rest):
        raise ConfigError(f"densenet_bc: depth={depth}: give 4 and a multiple of 6, such as 100")
    blocks = [count] * 3 if blocks is None else list(blocks)
    if not blocks or min(blocks) < 1:
        raise ConfigError(f"densenet_bc: blocks={blocks}: give each block 1 layer or more")
    channels = 2 * growth
    layers: list[nn.Module] = [nn.Conv2d(3, channels, 3, padding=1, bias=False)]
    for block, count in enumerate(blocks):
        if block:
            kept = int(channels * compression)
            layers += [_bn_relu_conv(channels, kept, 1), nn.AvgPool2d(2)]
            channels = kept
        for _ in range(count):
            layers.append(_DenseLayer(channels, growth))
            channels += growth
    layers += [nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    module = nn.Sequential(*layers, nn.Linear(channels, num_classes))
    return on_images("densenet_bc", module, batch_size, image_size(resolution, 32), num_classes)


def convolution_layer(*, batch_size: int = 256, resolution: int | str | None = None) -> Workload:
    """A lone 3-wide convolution of 64 channels (Shah et al., MONeT, 2021, Figure 7).

    The loss copies its output 16 times: an algorithm that needs more memory than the whole step
    would not be among the convolution's implementations, and the lone layer needs little.

    Args:
        resolution: default 56.
    """
    shape = (batch_size, 64, *image_size(resolution, 56))
    return Workload(
        "convolution_layer",
        nn.Conv2d(64, 64, 3, padding=1),
        lambda: (torch.randn(shape),),
        lambda module, images: module(images).repeat(16, 1, 1, 1).mean(),
    )
