"""Gist's encodings of values that wait for the backward pass (Gist, section 4.2 and 4.3).

Lossless: the entries of ReLU's output that are not zero, with one-byte columns in rows of 256
(CSR) or with a bitmap. Lossy: half precision. Sparse encodings have a fixed capacity, taken from
the measured density, so that a plan's memory is known; a batch that does not fit is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from rematbench.base.errors import ExecutionError
from rematbench.tracing.alternatives.bits import pack, planes

ROW = 256
_BLOCK = 1 << 10  # rows at a time: temporaries stay below a few megabytes


def capacity(entries: int, density: float) -> int:
    """Entries to make room for: half a per cent above the measured density, in steps of 1/64.

    Steps, so that values alike in size and sparsity share a profile.
    """
    return min(entries, math.ceil((density + 0.005) * 64) * entries // 64 + 64)


def _overflow(kept: int, room: int) -> ExecutionError:
    return ExecutionError(
        f"a sparse encoding has room for {room} entries and finds {kept} that are not zero; "
        "measure the sparsity on this batch, or choose another encoding"
    )


def to_half(x: Tensor) -> Tensor:
    """Half precision."""
    return x.half()


def to_bitmap(x: Tensor, room: int) -> tuple[Tensor, Tensor]:
    """(one bit per entry, the entries that are not zero)."""
    values = x.new_zeros(room)
    bits = pack(x, lambda part: part != 0)
    end = 0
    for span, mask in planes(bits, x.numel()):
        found = x.reshape(-1)[span][mask]
        begin, end = end, end + len(found)
        if end > room:
            raise _overflow(end, room)
        values[begin:end] = found
    return bits, values


def to_csr(x: Tensor, room: int) -> tuple[Tensor, Tensor, Tensor]:
    """(entries that are not zero, their columns in rows of 256, where each row starts)."""
    flat = x.reshape(-1)
    rows = -(-flat.numel() // ROW)
    values = x.new_zeros(room)
    columns = torch.zeros(room, dtype=torch.uint8, device=x.device)
    starts = torch.zeros(rows + 1, dtype=torch.int32, device=x.device)
    end = 0
    for first in range(0, rows, _BLOCK):
        block = flat[first * ROW : (first + _BLOCK) * ROW]
        where = block.nonzero().view(-1)
        begin, end = end, end + len(where)
        if end > room:
            raise _overflow(end, room)
        values[begin:end] = block[where]
        counts = torch.bincount(where // ROW, minlength=-(-block.numel() // ROW))
        columns[begin:end] = where.remainder_(ROW)
        starts[first + 1 : first + 1 + len(counts)] = counts.cumsum_(0).add_(begin)
    return values, columns, starts


def _from_half(parts: list[Tensor], shape: list[int]) -> Tensor:
    return parts[0].float()


def _from_bitmap(parts: list[Tensor], shape: list[int]) -> Tensor:
    bits, values = parts
    dense = values.new_zeros(shape)
    flat, end = dense.view(-1), 0
    for span, mask in planes(bits, flat.numel()):
        begin, end = end, end + int(mask.sum())
        flat[span].masked_scatter_(mask, values[begin:end])
    return dense


def _from_csr(parts: list[Tensor], shape: list[int]) -> Tensor:
    values, columns, starts = parts
    dense = values.new_zeros(shape)
    flat = dense.view(-1)
    for first in range(0, len(starts) - 1, _BLOCK):
        bounds = starts[first : first + _BLOCK + 1].long()
        begin, end = int(bounds[0]), int(bounds[-1])
        rows = torch.repeat_interleave(bounds.diff())
        where = rows.mul_(ROW).add_(columns[begin:end])
        flat[first * ROW : (first + _BLOCK) * ROW].index_put_((where,), values[begin:end])
    return dense


DECODERS = {"fp16": _from_half, "bitmap": _from_bitmap, "csr": _from_csr}


def decoded(
    base: Callable[..., object],
    encoding: str,
    positions: list[int],
    shape: list[int],
    parts: list[Tensor],
    arguments: list[object],
    **options: object,
) -> object:
    """Run ``base`` with its arguments at ``positions`` decoded; the decoded value is workspace."""
    dense = DECODERS[encoding](parts, shape)
    filled = [dense if i in positions else a for i, a in enumerate(arguments)]
    return base(*filled, **options)
