"""Piecewise linear activations and dropout from packed one-bit masks.

Bit k of byte i belongs to entry ``k * ceil(n / 8) + i``: eight planes, so that packing needs no
transposition and entries need not be a multiple of eight. No boolean of full size is ever made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor


def mask_bytes(entries: int) -> int:
    """Bytes of a packed mask."""
    return -(-entries // 8)


def pack(source: Tensor, condition: Callable[[Tensor], Tensor]) -> Tensor:
    """One bit per entry of ``source``: does ``condition`` hold? Workspace: two planes."""
    flat = source.reshape(-1)
    size = mask_bytes(flat.numel())
    bits = torch.zeros(size, dtype=torch.uint8, device=source.device)
    for k in range(8):
        plane = flat[k * size : (k + 1) * size]
        if plane.numel():
            bits[: plane.numel()] |= condition(plane).view(torch.uint8).mul_(1 << k)
    return bits


def planes(bits: Tensor, entries: int) -> Iterator[tuple[slice, Tensor]]:
    """(entries, booleans) of each plane of a packed mask."""
    size = bits.numel()
    for k in range(8):
        span = slice(k * size, min((k + 1) * size, entries))
        if span.start < span.stop:
            yield span, bits[: span.stop - span.start].bitwise_and(1 << k).ne(0)


def pack_above(source: Tensor, threshold: float) -> Tensor:
    """The bits ``not source <= threshold``: where ReLU passes its gradient (NaN passes)."""
    return pack(source, lambda x: (x <= threshold).logical_not_())


def pack_positive(source: Tensor) -> Tensor:
    """The bits ``source > 0``: where leaky ReLU passes its gradient unscaled."""
    return pack(source, lambda x: x > 0)


def pack_inside(source: Tensor, low: float, high: float) -> Tensor:
    """The bits where hardtanh (ReLU6) passes its gradient (NaN passes)."""
    return pack(source, lambda x: (x <= low).logical_or_(x >= high).logical_not_())


def pack_below(source: Tensor, threshold: float) -> Tensor:
    """The bits ``source < threshold``: the side of an activation's minimum."""
    return pack(source, lambda x: x < threshold)


def pack_mask(source: Tensor) -> Tensor:
    """A boolean mask at one bit per entry instead of one byte."""
    return pack(source, torch.clone)


def masked_backward(grad: Tensor, bits: Tensor) -> Tensor:
    """Gradient where the bit is set, 0 elsewhere: ReLU, ReLU6, hardtanh."""
    flat, result = grad.reshape(-1), torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    out, zero = result.view(-1), grad.new_zeros(())
    for span, mask in planes(bits, flat.numel()):
        torch.where(mask, flat[span], zero, out=out[span])
    return result


def leaky_backward(grad: Tensor, bits: Tensor, slope: float) -> Tensor:
    """Gradient where the bit is set, ``slope`` times it elsewhere."""
    flat, result = grad.reshape(-1), torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    out = result.view(-1)
    for span, mask in planes(bits, flat.numel()):
        torch.mul(flat[span], slope, out=out[span])
        torch.where(mask, flat[span], out[span], out=out[span])
    return result


def dropout_backward(grad: Tensor, bits: Tensor, scale: float) -> Tensor:
    """Dropout's gradient from a packed mask."""
    flat, result = grad.reshape(-1), torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    out = result.view(-1)
    for span, mask in planes(bits, flat.numel()):
        torch.mul(flat[span], mask, out=out[span])
    return result.mul_(scale)


def dropout_replayed(grad: Tensor, probability: float) -> Tensor:
    """Dropout's gradient without a mask: the generator stands where it stood before the draw."""
    dropped: Tensor = torch.ops.aten.native_dropout.default(grad, probability, True)[0]
    return dropped


def relu_inplace(x: Tensor) -> Tensor:
    """ReLU into its own input."""
    return x.relu_()


def clamp_inplace(x: Tensor, low: float, high: float) -> Tensor:
    """Hardtanh (ReLU6) into its own input."""
    clamped: Tensor = torch.ops.aten.hardtanh_.default(x, low, high)
    return clamped


def leaky_inplace(x: Tensor, slope: float) -> Tensor:
    """Leaky ReLU into its own input."""
    leaked: Tensor = torch.ops.aten.leaky_relu_.default(x, slope)
    return leaked


def add_inplace(overwritten: Tensor, other: Tensor, alpha: float = 1) -> Tensor:
    """A sum into one of its terms."""
    return overwritten.add_(other, alpha=alpha)
