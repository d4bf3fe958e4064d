"""Segmentation networks: a class per pixel, or per voxel."""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.tracing.workload import Workload, image_size
from rematbench.zoo.classifiers import cross_entropy

_CONV: dict[int, type[nn.Module]] = {2: nn.Conv2d, 3: nn.Conv3d}
_UP: dict[int, type[nn.Module]] = {2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
_NORM: dict[int, type[nn.Module]] = {2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
_POOL: dict[int, type[nn.Module]] = {2: nn.MaxPool2d, 3: nn.MaxPool3d}

# Channels and convolutions of VGG16's five stages.
_VGG16 = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def _workload(
    name: str,
    module: nn.Module,
    shape: tuple[int, ...],
    num_classes: int,
    multiple: int,
) -> Workload:
    """Pixelwise cross entropy of ``module`` on a batch of ``shape`` (N, C, then sizes)."""
    batch_size, _, *sizes = shape
    if any(size % multiple for size in sizes):
        given = "x".join(map(str, sizes))
        raise ConfigError(f"{name}: resolution {given}: give multiples of {multiple}")

    def make_batch() -> tuple[Tensor, ...]:
        return torch.randn(*shape), torch.randint(0, num_classes, (batch_size, *sizes))

    return Workload(name, module, make_batch, cross_entropy)


def _convs(dims: int, channels: list[int], batch_norm: bool) -> nn.Module:
    """3-wide convolutions through ``channels``, each followed by a ReLU."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(channels):
        layers.append(_CONV[dims](inputs, outputs, 3, padding=1))
        if batch_norm:
            layers.append(_NORM[dims](outputs))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers)


class _UNet(nn.Module):
    """An encoder and a decoder, joined at each resolution."""

    def __init__(
        self,
        down: list[nn.Module],
        bottom: nn.Module,
        up: list[tuple[nn.Module, nn.Module]],
        pool: nn.Module,
        head: nn.Module,
    ) -> None:
        super().__init__()
        self.down = nn.ModuleList(down)
        self.bottom = bottom
        self.grow = nn.ModuleList(grow for grow, _ in up)
        self.merge = nn.ModuleList(merge for _, merge in up)
        self.pool = pool
        self.head = head

    def forward(self, x: Tensor) -> Tensor:
        skipped = []
        for stage in self.down:
            x = stage(x)
            skipped.append(x)
            x = self.pool(x)
        x = self.bottom(x)
        for grow, merge in zip(self.grow, self.merge, strict=True):
            x = merge(torch.cat([skipped.pop(), grow(x)], 1))
        return self.head(x)


def unet(
    *,
    batch_size: int = 1,
    resolution: int | str | None = None,
    num_classes: int = 2,
    channels: int = 1,
    base_channels: int = 64,
    dropout: float = 0.5,
    batch_norm: bool = False,
    upsampling: bool = False,
) -> Workload:
    """U-Net of Ronneberger et al., "U-Net: Convolutional Networks for Biomedical Image
    Segmentation" (MICCAI 2015), with padded convolutions, so that nothing is cropped, and
    dropout at the end of the contracting path.

    Args:
        resolution: multiples of 16; default 416x608, as in Jain et al. (Checkmate, 2020).
        channels: of the image.
        base_channels: of the first stage; they double four times.
        dropout: 0 for none.
        batch_norm, upsampling: with batch norms, and upsampling in place of transposed
            convolutions: 67 forward ops without dropout, as Shah et al. count (MONeT, 2021).
    """
    widths = [base_channels * 2**level for level in range(5)]
    down = [
        _convs(2, [before, width, width], batch_norm)
        for before, width in zip([channels, *widths], widths[:4], strict=False)
    ]
    bottom = _convs(2, [widths[3], *widths[4:] * 2], batch_norm)
    if dropout:
        down[-1] = nn.Sequential(down[-1], nn.Dropout(dropout))
        bottom = nn.Sequential(bottom, nn.Dropout(dropout))
    up: list[tuple[nn.Module, nn.Module]] = []
    for width in widths[3::-1]:
        grow = nn.Upsample(scale_factor=2, mode="nearest") if upsampling else (
            _UP[2](2 * width, width, 2, stride=2))  # fmt: skip
        joined = width + (2 * width if upsampling else width)
        up.append((grow, _convs(2, [joined, width, width], batch_norm)))
    head = nn.Conv2d(base_channels, num_classes, 1)
    module = _UNet(down, bottom, up, _POOL[2](2), head)
    shape = (batch_size, channels, *image_size(resolution, "416x608"))
    return _workload("unet", module, shape, num_classes, 16)


def unet3d(
    *,
    batch_size: int = 1,
    resolution: int | str | None = None,
    num_classes: int = 3,
    channels: int = 3,
    base_channels: int = 32,
    depth: int | None = None,
) -> Workload:
    """3D U-Net of Çiçek et al., "3D U-Net: Learning Dense Volumetric Segmentation from Sparse
    Annotation" (MICCAI 2016), with padded convolutions, so that nothing is cropped, on patches
    of 64 voxels a side. Channels double before each pooling and stay in each up-convolution.

    Args:
        resolution: height and width of the patch, multiples of 8; default 64.
        channels: of the volume.
        base_channels: of the first convolution.
        depth: of the patch, a multiple of 8; its height where not given.
    """
    height, width = image_size(resolution, 64)
    ends = [2 * base_channels * 2**level for level in range(4)]
    stages = [
        _convs(3, [before, end // 2, end], True)
        for before, end in zip([channels, *ends], ends, strict=False)
    ]
    up = [
        (_UP[3](below, below, 2, stride=2), _convs(3, [below + end, end, end], True))
        for below, end in zip(ends[:0:-1], ends[2::-1], strict=True)
    ]
    head = nn.Conv3d(ends[0], num_classes, 1)
    module = _UNet(stages[:3], stages[3], up, _POOL[3](2), head)
    shape = (batch_size, channels, height if depth is None else depth, height, width)
    return _workload("unet3d", module, shape, num_classes, 8)


class _FCN8(nn.Module):
    """VGG16, convolutional to the end, scored at three depths."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        channels = 3
        self.stages = nn.ModuleList()
        for width, count in _VGG16:
            self.stages.append(_convs(2, [channels, *[width] * count], False))
            channels = width
        self.pool = nn.MaxPool2d(2)
        self.classify = nn.Sequential(
            *(nn.Conv2d(512, 4096, 7, padding=3), nn.ReLU(), nn.Dropout(0.5)),
            *(nn.Conv2d(4096, 4096, 1), nn.ReLU(), nn.Dropout(0.5)),
            nn.Conv2d(4096, num_classes, 1),
        )
        self.score = nn.ModuleList(nn.Conv2d(width, num_classes, 1) for width in (256, 512))
        self.twice = nn.ModuleList(
            nn.ConvTranspose2d(num_classes, num_classes, 4, 2, 1, bias=False) for _ in range(2)
        )
        self.eightfold = nn.ConvTranspose2d(num_classes, num_classes, 16, 8, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        pooled = []
        for stage in self.stages:
            x = self.pool(stage(x))
            pooled.append(x)
        scores = self.twice[0](self.classify(x)) + self.score[1](pooled[3])
        scores = self.twice[1](scores) + self.score[0](pooled[2])
        return self.eightfold(scores)


def fcn8(
    *, batch_size: int = 1, resolution: int | str | None = None, num_classes: int = 21
) -> Workload:
    """FCN-8s of Long et al., "Fully Convolutional Networks for Semantic Segmentation"
    (CVPR 2015), on VGG16. Padding in its convolutions replaces the paper's padding of the image
    by 100 pixels and the crops that go with it.

    Args:
        resolution: multiples of 32; default 416x608, as in Jain et al. (Checkmate, 2020).
    """
    shape = (batch_size, 3, *image_size(resolution, "416x608"))
    return _workload("fcn8", _FCN8(num_classes), shape, num_classes, 32)


class _SegNet(nn.Module):
    """VGG16's convolutions and their mirror image, which unpools by the encoder's indices."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        channels = 3
        self.encoder = nn.ModuleList()
        self.decoder = nn.ModuleList()
        for width, count in _VGG16:
            self.encoder.append(_convs(2, [channels, *[width] * count], True))
            first = channels == 3
            last = [width] if first else [width, channels]
            self.decoder.insert(0, _convs(2, [width] * (count - 1) + last, True))
            channels = width
        self.head = nn.Conv2d(_VGG16[0][0], num_classes, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        indices = []
        for stage in self.encoder:
            x, index = F.max_pool2d(stage(x), 2, return_indices=True)
            indices.append(index)
        for stage in self.decoder:
            x = stage(F.max_unpool2d(x, indices.pop(), 2))
        return self.head(x)


def segnet(
    *, batch_size: int = 1, resolution: int | str | None = None, num_classes: int = 21
) -> Workload:
    """SegNet of Badrinarayanan et al., "SegNet: A Deep Convolutional Encoder-Decoder Architecture
    for Image Segmentation" (TPAMI 2017): VGG16's convolutions with batch normalisation, mirrored;
    each unpooling takes the indices of the max-pooling it mirrors.

    Args:
        resolution: multiples of 32; default 416x608, as in Jain et al. (Checkmate, 2020).
    """
    shape = (batch_size, 3, *image_size(resolution, "416x608"))
    return _workload("segnet", _SegNet(num_classes), shape, num_classes, 32)
