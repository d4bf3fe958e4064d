"""CIFAR networks of searched cells: DARTS, NASNet-A and AmoebaNet-A.

All three have one layout, that of DARTS's public evaluation code (quark0/darts, ``cnn/model.py``),
with which Feng & Huang, "Optimal Gradient Checkpoint Search for Arbitrary Computation Graphs"
(CVPR 2021), also made the three CIFAR rows of their table 2: a stem, 20 cells of which those at a
third and at two thirds halve the resolution and double the channels, and a linear head. A cell
reads the outputs of the two cells before it. The genotypes are those that ``cnn/genotypes.py`` of
the same code lists as ``DARTS_V2``, ``NASNet`` and ``AmoebaNet``.

As in Feng & Huang's runs, there is neither drop path (the papers train with it) nor an auxiliary
head. Pooling is followed by a batch normalization only during the search, so not here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.tracing.workload import Workload, image_size
from rematbench.zoo.classifiers import on_images

Edge = tuple[str, int]
"""An operation of :data:`_OPERATIONS` and the state that it reads."""


@dataclass(frozen=True)
class CellPlan:
    """One searched cell.

    Attributes:
        nodes: the two edges whose sum is the state of each node. States 0 and 1 are the outputs
            of the last cell but one and of the last cell; node i makes state i + 2.
        joined: the states whose concatenation is the cell's output.
    """

    nodes: tuple[tuple[Edge, Edge], ...]
    joined: tuple[int, ...]


@dataclass(frozen=True)
class Genotype:
    """The two cells that a network repeats."""

    normal: CellPlan
    reduction: CellPlan


_DARTS_V2 = Genotype(
    CellPlan(
        (
            (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
            (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)),
            (("sep_conv_3x3", 1), ("skip_connect", 0)),
            (("skip_connect", 0), ("dil_conv_3x3", 2)),
        ),
        (2, 3, 4, 5),
    ),
    CellPlan(
        (
            (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("skip_connect", 2), ("max_pool_3x3", 1)),
            (("max_pool_3x3", 0), ("skip_connect", 2)),
            (("skip_connect", 2), ("max_pool_3x3", 1)),
        ),
        (2, 3, 4, 5),
    ),
)
_NASNET_A = Genotype(
    CellPlan(
        (
            (("sep_conv_5x5", 1), ("sep_conv_3x3", 0)),
            (("sep_conv_5x5", 0), ("sep_conv_3x3", 0)),
            (("avg_pool_3x3", 1), ("skip_connect", 0)),
            (("avg_pool_3x3", 0), ("avg_pool_3x3", 0)),
            (("sep_conv_3x3", 1), ("skip_connect", 1)),
        ),
        (2, 3, 4, 5, 6),
    ),
    CellPlan(
        (
            (("sep_conv_5x5", 1), ("sep_conv_7x7", 0)),
            (("max_pool_3x3", 1), ("sep_conv_7x7", 0)),
            (("avg_pool_3x3", 1), ("sep_conv_5x5", 0)),
            (("skip_connect", 3), ("avg_pool_3x3", 2)),
            (("sep_conv_3x3", 2), ("max_pool_3x3", 1)),
        ),
        (4, 5, 6),
    ),
)
_AMOEBANET_A = Genotype(
    CellPlan(
        (
            (("avg_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("sep_conv_3x3", 0), ("sep_conv_5x5", 2)),
            (("sep_conv_3x3", 0), ("avg_pool_3x3", 3)),
            (("sep_conv_3x3", 1), ("skip_connect", 1)),
            (("skip_connect", 0), ("avg_pool_3x3", 1)),
        ),
        (4, 5, 6),
    ),
    CellPlan(
        (
            (("avg_pool_3x3", 0), ("sep_conv_3x3", 1)),
            (("max_pool_3x3", 0), ("sep_conv_7x7", 2)),
            (("sep_conv_7x7", 0), ("avg_pool_3x3", 1)),
            (("max_pool_3x3", 0), ("max_pool_3x3", 1)),
            (("conv_7x1_1x7", 0), ("sep_conv_3x3", 5)),
        ),
        (3, 4, 6),
    ),
)


def _pointwise(inputs: int, outputs: int) -> nn.Module:
    """What brings a cell's input to the channels of the cell."""
    return nn.Sequential(
        nn.ReLU(), nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs)
    )


def _depthwise(channels: int, kernel: int, stride: int, dilation: int) -> nn.Module:
    """ReLU, a depthwise and a 1x1 convolution, batch normalization."""
    padding = dilation * (kernel // 2)
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(
            *(channels, channels, kernel, stride, padding, dilation), groups=channels, bias=False
        ),
        nn.Conv2d(channels, channels, 1, bias=False),
        nn.BatchNorm2d(channels),
    )


class _FactorizedReduce(nn.Module):
    """Half the resolution: two strided 1x1 convolutions, one of them a pixel further on."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.even = nn.Conv2d(inputs, outputs // 2, 1, 2, bias=False)
        self.odd = nn.Conv2d(inputs, outputs - outputs // 2, 1, 2, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(x)
        normed: Tensor = self.norm(torch.cat([self.even(x), self.odd(x[:, :, 1:, 1:])], 1))
        return normed


def _separable(kernel: int) -> Callable[[int, int], nn.Module]:
    """Twice the depthwise unit; only the first one has the stride."""

    def make(channels: int, stride: int) -> nn.Module:
        units = (_depthwise(channels, kernel, step, 1) for step in (stride, 1))
        return nn.Sequential(*units)

    return make


def _skip(channels: int, stride: int) -> nn.Module:
    return nn.Identity() if stride == 1 else _FactorizedReduce(channels, channels)


def _row_and_column(channels: int, stride: int) -> nn.Module:
    return nn.Sequential(
        nn.ReLU(),
        nn.Conv2d(channels, channels, (1, 7), (1, stride), (0, 3), bias=False),
        nn.Conv2d(channels, channels, (7, 1), (stride, 1), (3, 0), bias=False),
        nn.BatchNorm2d(channels),
    )


_OPERATIONS: dict[str, Callable[[int, int], nn.Module]] = {
    "skip_connect": _skip,
    "avg_pool_3x3": lambda _, stride: nn.AvgPool2d(3, stride, 1, count_include_pad=False),
    "max_pool_3x3": lambda _, stride: nn.MaxPool2d(3, stride, 1),
    "sep_conv_3x3": _separable(3),
    "sep_conv_5x5": _separable(5),
    "sep_conv_7x7": _separable(7),
    "dil_conv_3x3": lambda channels, stride: _depthwise(channels, 3, stride, 2),
    "conv_7x1_1x7": _row_and_column,
}


class _Cell(nn.Module):
    """A searched cell, of the outputs of the two cells before it.

    Args:
        inputs: the channels of both.
        channels: of each state.
        reduction: whether the operations on the cell's inputs have stride 2.
        after_reduction: whether the first input is twice as large as the second.
    """

    def __init__(
        self,
        plan: CellPlan,
        inputs: tuple[int, int],
        channels: int,
        reduction: bool,
        after_reduction: bool,
    ) -> None:
        super().__init__()
        fit = _FactorizedReduce if after_reduction else _pointwise
        self.before_last = fit(inputs[0], channels)
        self.last = _pointwise(inputs[1], channels)
        self.nodes = nn.ModuleList()
        for node in plan.nodes:
            strides = (2 if reduction and state < 2 else 1 for _, state in node)
            made = (_OPERATIONS[op](channels, s) for (op, _), s in zip(node, strides, strict=True))
            self.nodes.append(nn.ModuleList(made))
        self.reads = [tuple(state for _, state in node) for node in plan.nodes]
        self.joined = plan.joined

    def forward(self, before_last: Tensor, last: Tensor) -> Tensor:
        states = [self.before_last(before_last), self.last(last)]
        for operations, reads in zip(self.nodes, self.reads, strict=True):
            left, right = (op(states[i]) for op, i in zip(operations, reads, strict=True))
            states.append(left + right)
        return torch.cat([states[i] for i in self.joined], 1)


class _CellNetwork(nn.Module):
    """Stem, cells and head."""

    def __init__(self, genotype: Genotype, cells: int, channels: int, num_classes: int) -> None:
        super().__init__()
        widths = (3 * channels, 3 * channels)
        self.stem = nn.Sequential(
            nn.Conv2d(3, widths[0], 3, padding=1, bias=False), nn.BatchNorm2d(widths[0])
        )
        self.cells = nn.ModuleList()
        after_reduction = False
        for i in range(cells):
            reduction = i in (cells // 3, 2 * cells // 3)
            channels *= 2 if reduction else 1
            plan = genotype.reduction if reduction else genotype.normal
            self.cells.append(_Cell(plan, widths, channels, reduction, after_reduction))
            widths = widths[1], len(plan.joined) * channels
            after_reduction = reduction
        self.head = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[1], num_classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        before_last = last = self.stem(images)
        for cell in self.cells:
            before_last, last = last, cell(before_last, last)
        logits: Tensor = self.head(last)
        return logits


def _network(
    name: str,
    genotype: Genotype,
    *,
    batch_size: int = 64,
    resolution: int | str | None = None,
    num_classes: int = 10,
    cells: int = 20,
    channels: int = 36,
) -> Workload:
    """One of the three.

    Args:
        batch_size: default that of Feng & Huang; the papers train with 96.
        resolution: default 32.
        channels: of the first cells' states; the default is that of Feng & Huang.
    """
    height, width = image_size(resolution, 32)
    if height % 4 or width % 4:
        raise ConfigError(f"{name}: resolution={height}x{width}: give multiples of 4")
    if cells < 3 or channels < 1:
        raise ConfigError(
            f"{name}: cells={cells}, channels={channels}: give 3 or more cells, 1 or more channels"
        )
    module = _CellNetwork(genotype, cells, channels, num_classes)
    return on_images(name, module, batch_size, (height, width), num_classes)


darts = partial(_network, "darts", _DARTS_V2)
"""Liu, Simonyan & Yang, "DARTS: Differentiable Architecture Search" (ICLR 2019), with the cells of
its second-order search (figures 4 and 5; ``DARTS_V2``)."""

nasnet = partial(_network, "nasnet", _NASNET_A)
"""NASNet-A of Zoph et al., "Learning Transferable Architectures for Scalable Image Recognition"
(CVPR 2018), N = 6, as DARTS's code evaluates it (``NASNet``): with DARTS's layout and no input of a
normal cell among what the cell concatenates. The paper's own "6 @ 768" has 32 channels and does
concatenate one, which makes its 3.3 million parameters; here are 3.8."""

amoebanet = partial(_network, "amoebanet", _AMOEBANET_A)
"""AmoebaNet-A of Real et al., "Regularized Evolution for Image Classifier Architecture Search"
(AAAI 2019), N = 6, as DARTS's code evaluates it (``AmoebaNet``), with DARTS's layout."""
