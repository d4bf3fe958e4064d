"""Max-pool backward without the pool's input, from its indices or from packed window offsets.

PyTorch's indices take eight bytes per output; the offset of the maximum in its own window fits
one byte, or half of one for windows of up to 16 entries (Gist, section 4.1; MONeT's
intermediate-activated max-pool).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

Pair = tuple[int, int]
Geometry = tuple[list[int], list[int], list[int], list[int]]
"""Kernel, stride, padding and dilation of a 2-d pool."""


def _pair(numbers: list[int], default: int | Pair) -> Pair:
    if not numbers:
        return default if isinstance(default, tuple) else (default, default)
    return (numbers[0], numbers[-1])


class PoolGeometry:
    """The geometry of a 2-d pool, from its own arguments."""

    def __init__(
        self, kernel: list[int], stride: list[int], padding: list[int], dilation: list[int]
    ) -> None:
        self.kernel = _pair(kernel, 1)
        self.stride = _pair(stride, self.kernel)
        self.padding = _pair(padding, 0)
        self.dilation = _pair(dilation, 1)

    @property
    def entries(self) -> int:
        """Entries of a window."""
        return self.kernel[0] * self.kernel[1]

    def corner(self, axis: int, length: int, device: torch.device) -> Tensor:
        """First row or column of each window; may lie in the padding."""
        return torch.arange(length, device=device) * self.stride[axis] - self.padding[axis]


def _images(tensor: Tensor) -> Iterator[slice]:
    """At most eight slices of the batch, so that temporaries stay small."""
    count = tensor.shape[0]
    step = max(1, -(-count // 8))
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def encode(indices: Tensor, width: int, geometry: Geometry, packed: bool) -> Tensor:
    """Window offsets of max-pool indices, one byte each, or two to a byte if ``packed``."""
    window = PoolGeometry(*geometry)
    rows = window.corner(0, indices.shape[-2], indices.device)[:, None]
    columns = window.corner(1, indices.shape[-1], indices.device)
    offsets = torch.empty(indices.shape, dtype=torch.uint8, device=indices.device)
    for part in _images(indices):
        row = indices[part].div(width, rounding_mode="floor")
        column = indices[part] - row * width
        row.sub_(rows).div_(window.dilation[0], rounding_mode="floor").mul_(window.kernel[1])
        offsets[part] = row.add_(
            column.sub_(columns).div_(window.dilation[1], rounding_mode="floor")
        )
    if not packed:
        return offsets
    flat = offsets.view(-1)
    half = -(-flat.numel() // 2)
    halves = flat[:half].clone()
    halves[: flat.numel() - half] |= flat[half:] << 4
    return halves


def _decode(offsets: Tensor, window: PoolGeometry, height: int, width: int) -> Tensor:
    """Indices into a plane of ``height`` by ``width``; nonsense is clamped into it."""
    row = offsets.div(window.kernel[1], rounding_mode="floor").long()
    column = offsets - row * window.kernel[1]
    row.mul_(window.dilation[0]).add_(window.corner(0, offsets.shape[-2], offsets.device)[:, None])
    column.mul_(window.dilation[1]).add_(window.corner(1, offsets.shape[-1], offsets.device))
    return row.mul_(width).add_(column).clamp_(0, height * width - 1)


def _unpack(halves: Tensor, span: slice, shape: torch.Size, each: int) -> Tensor:
    """The offsets of the images in ``span``, of ``each`` entries, from half bytes."""
    size = halves.numel()
    begin, end = span.start * each, span.stop * each
    low = halves[begin : min(end, size)] & 15
    high = halves[max(begin - size, 0) : max(end - size, 0)] >> 4
    return torch.cat([low, high]).view(shape)


def backward_from_offsets(
    grad: Tensor,
    offsets: Tensor,
    shape: list[int],
    geometry: Geometry,
    ceil_mode: bool,
    packed: bool,
) -> Tensor:
    """Max-pool's gradient from window offsets; the indices are rebuilt a few images at a time."""
    window = PoolGeometry(*geometry)
    result = torch.empty(shape, dtype=grad.dtype, device=grad.device)
    each = grad[0].numel() if grad.shape[0] else 0
    for part in _images(grad):
        found = _unpack(offsets, part, grad[part].shape, each) if packed else offsets[part]
        indices = _decode(found, window, shape[-2], shape[-1])
        _scatter(grad[part], indices, result[part], geometry, ceil_mode)
    return result


def backward_from_indices(
    grad: Tensor, indices: Tensor, shape: list[int], geometry: Geometry, ceil_mode: bool
) -> Tensor:
    """Max-pool's gradient from PyTorch's indices alone: only the input's shape was needed."""
    result = torch.empty(shape, dtype=grad.dtype, device=grad.device)
    if result.numel():
        _scatter(grad, indices, result, geometry, ceil_mode)
    return result


def average_backward(grad: Tensor, shape: list[int], *options: Any) -> Tensor:
    """Average-pool's gradient: only the input's shape was needed; ``options`` are the pool's."""
    result = torch.empty(shape, dtype=grad.dtype, device=grad.device)
    aten.avg_pool2d_backward.grad_input(grad, result, *options, grad_input=result)
    return result


def _scatter(
    grad: Tensor, indices: Tensor, result: Tensor, geometry: Geometry, ceil_mode: bool
) -> None:
    # The kernel only looks at the shape of its second argument, the pool's input.
    aten.max_pool2d_with_indices_backward.grad_input(
        grad, result, *geometry, ceil_mode, indices, grad_input=result
    )
