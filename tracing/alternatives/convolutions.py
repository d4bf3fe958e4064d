"""2-d convolution algorithms that PyTorch can steer on every device (MONeT, section 4.4).

Native kernels choose their own algorithm and workspace; these trade workspace for time within
PyTorch's public operations. Input gradients are convolutions of the output's gradient and read
no activation, unlike ``convolution_backward``, which asks for the input and only looks at its
shape.

Every function returns a contiguous result. ``geometry`` is (stride, padding, dilation), each a
pair.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor

aten = torch.ops.aten

Geometry = tuple[list[int], list[int], list[int]]
Gradients = tuple[None, Tensor | None, Tensor | None]

_LAST = torch.channels_last


def _convolve(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, groups: int) -> Tensor:
    result: Tensor = aten.convolution.default(x, w, b, *geometry, False, [0, 0], groups)
    return result


def _transposed(
    grad: Tensor, w: Tensor, geometry: Geometry, extra: list[int], groups: int
) -> Tensor:
    result: Tensor = aten.convolution.default(grad, w, None, *geometry, True, extra, groups)
    return result


def _chunks(count: int, chunks: int) -> list[slice]:
    size = -(-count // chunks)
    return [slice(start, min(start + size, count)) for start in range(0, count, size)]


# Forward


def channels_last(
    x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, groups: int
) -> Tensor:
    """In channels-last layout, and back."""
    x, w = x.contiguous(memory_format=_LAST), w.contiguous(memory_format=_LAST)
    y = _convolve(x, w, b, geometry, groups)
    del x
    return y.contiguous()


def chunked(
    x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, groups: int,
    out: list[int], chunks: int,
) -> Tensor:  # fmt: skip
    """``chunks`` parts of the batch, one after another: the workspace of one part."""
    y = x.new_empty(out)
    for part in _chunks(len(x), chunks):
        y[part] = _convolve(x[part], w, b, geometry, groups)
    return y


def _columns(x: Tensor, kernel: list[int], geometry: Geometry) -> Tensor:
    stride, padding, dilation = geometry
    return F.unfold(x, kernel, dilation, padding, stride)


def im2col(
    x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, out: list[int], chunks: int
) -> Tensor:
    """One matrix product per image with all windows as columns; ``chunks`` of the batch unfolded
    at a time."""
    y = x.new_empty(out)
    flat = w.view(1, w.shape[0], -1)
    for part in _chunks(len(x), chunks):
        columns = _columns(x[part], list(w.shape[2:]), geometry)
        product = y[part].flatten(2)
        torch.bmm(flat.expand(len(columns), -1, -1), columns, out=product)
    return y if b is None else y.add_(b.view(1, -1, 1, 1))


def fft(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, out: list[int]) -> Tensor:
    """By the convolution theorem; a stride computes all positions and drops some."""
    stride, padding, _ = geometry
    height, width = (n + 2 * p + (n + 2 * p) % 2 for n, p in zip(x.shape[2:], padding, strict=True))
    # Padding on the left and above; the transform pads on the right and below.
    padded = F.pad(x, (padding[1], 0, padding[0], 0)) if any(padding) else x
    ours = torch.fft.rfft2(padded, s=(height, width))
    del padded
    shape = ours.shape[2:]
    left = ours.permute(2, 3, 0, 1).reshape(-1, x.shape[0], x.shape[1])
    del ours
    theirs = torch.fft.rfft2(w, s=(height, width)).conj()
    right = theirs.permute(2, 3, 1, 0).reshape(-1, w.shape[1], w.shape[0])
    del theirs
    product = torch.bmm(left, right)
    del left, right
    spectrum = product.view(*shape, x.shape[0], w.shape[0]).permute(2, 3, 0, 1)
    del product
    whole = torch.fft.irfft2(spectrum, s=(height, width))
    del spectrum
    last = [(n - 1) * step + 1 for n, step in zip(out[2:], stride, strict=True)]
    y = x.new_empty(out)
    y.copy_(whole[:, :, : last[0] : stride[0], : last[1] : stride[1]])
    return y if b is None else y.add_(b.view(1, -1, 1, 1))


_INPUT = ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1))
_KERNEL = ((1, 0, 0), (0.5, 0.5, 0.5), (0.5, -0.5, 0.5), (0, 0, 1))
_OUTPUT = ((1, 1, 1, 0), (0, 1, -1, -1))


@functools.cache
def _matrix(rows: tuple[tuple[float, ...], ...], dtype: torch.dtype, device: str) -> Tensor:
    """Made once: a copy to a device makes the host wait, which a CUDA graph does not allow."""
    return torch.tensor(rows, dtype=dtype, device=device)


def winograd(
    x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, out: list[int], chunks: int
) -> Tensor:
    """F(2 x 2, 3 x 3): 16 products where the plain algorithm takes 36; ``chunks`` parts of the
    batch, one after another. Stride and dilation 1."""
    if chunks == 1:
        return _winograd(x, w, b, geometry, out)
    y = x.new_empty(out)
    for part in _chunks(len(x), chunks):
        piece = x[part]
        y[part] = _winograd(piece, w, b, geometry, [len(piece), *out[1:]])
    return y


def _winograd(x: Tensor, w: Tensor, b: Tensor | None, geometry: Geometry, out: list[int]) -> Tensor:
    padding = geometry[1]
    tiles = [-(-n // 2) for n in out[2:]]
    need = [2 * n + 2 for n in tiles]
    right = [n - x.shape[axis + 2] - padding[axis] for axis, n in enumerate(need)]
    padded = F.pad(x, (padding[1], right[1], padding[0], right[0]))
    windows = padded.unfold(2, 4, 2).unfold(3, 4, 2)  # n c th tw 4 4
    b_t, g, a_t = (_matrix(m, x.dtype, str(x.device)) for m in (_INPUT, _KERNEL, _OUTPUT))
    count = x.shape[0] * tiles[0] * tiles[1]
    # Both sides as one product with the 16 x 16 matrix of the two-sided transform.
    both = torch.kron(b_t, b_t)
    gathered = windows.permute(4, 5, 1, 0, 2, 3).reshape(16, -1)
    del padded, windows
    transformed = (both @ gathered).view(16, x.shape[1], count)
    del gathered
    weights = (torch.kron(g, g) @ w.permute(2, 3, 0, 1).reshape(9, -1)).view(16, *w.shape[:2])
    product = torch.bmm(weights, transformed).view(16, -1)
    del transformed, weights
    small = (torch.kron(a_t, a_t) @ product).view(2, 2, w.shape[0], x.shape[0], *tiles)
    del product
    y = x.new_empty(out)
    for i in range(2):
        for j in range(2):
            spot = y[:, :, i::2, j::2]
            part = small[i, j].permute(1, 0, 2, 3)
            spot.copy_(part[:, :, : spot.shape[2], : spot.shape[3]])
    return y if b is None else y.add_(b.view(1, -1, 1, 1))


def by_parts(parts: list[Tensor], w: Tensor, b: Tensor | None, geometry: Geometry) -> Tensor:
    """Of the parts' concatenation along the channels: the sum over the parts."""
    y: Tensor | None = None
    for x, piece in zip(parts, _pieces(w, parts), strict=True):
        more = _convolve(x, piece.contiguous(), b if y is None else None, geometry, 1)
        y = more if y is None else y.add_(more)
    assert y is not None
    return y


def winograd_by_parts(
    parts: list[Tensor], w: Tensor, b: Tensor | None, geometry: Geometry, out: list[int]
) -> Tensor:
    """The same by :func:`winograd`, image by image."""
    y, pieces = parts[0].new_zeros(out), _pieces(w, parts)
    for image in range(len(y)):
        here, size = slice(image, image + 1), [1, *out[1:]]
        for x, piece in zip(parts, pieces, strict=True):
            y[here] += _winograd(x[here], piece, None, geometry, size)
    return y if b is None else y.add_(b.view(1, -1, 1, 1))


def _pieces(w: Tensor, parts: list[Tensor]) -> tuple[Tensor, ...]:
    """The weights of each part's channels."""
    pieces: tuple[Tensor, ...] = w.split([x.shape[1] for x in parts], dim=1)
    return pieces


# Gradient of the input


def _mirrored(w: Tensor, geometry: Geometry) -> tuple[Tensor, Geometry]:
    """Weight and geometry of the convolution that is a stride-1 convolution's input gradient."""
    padding = [k - 1 - p for k, p in zip(w.shape[2:], geometry[1], strict=True)]
    return w.flip(2, 3).transpose(0, 1).contiguous(), ([1, 1], padding, [1, 1])


def input_channels_last(
    grad: Tensor, w: Tensor, geometry: Geometry, extra: list[int], groups: int
) -> Tensor:
    """In channels-last layout, and back."""
    grad, w = grad.contiguous(memory_format=_LAST), w.contiguous(memory_format=_LAST)
    result = _transposed(grad, w, geometry, extra, groups)
    del grad
    return result.contiguous()


def input_chunked(
    grad: Tensor, w: Tensor, geometry: Geometry, extra: list[int], groups: int,
    out: list[int], chunks: int,
) -> Tensor:  # fmt: skip
    """Part of the batch after part."""
    result = grad.new_empty(out)
    for part in _chunks(len(grad), chunks):
        result[part] = _transposed(grad[part], w, geometry, extra, groups)
    return result


def input_im2col(
    grad: Tensor, w: Tensor, geometry: Geometry, out: list[int], chunks: int
) -> Tensor:
    """Columns by one matrix product per image, folded back."""
    stride, padding, dilation = geometry
    result = grad.new_empty(out)
    flat = w.view(1, w.shape[0], -1).transpose(1, 2)
    for part in _chunks(len(grad), chunks):
        piece = grad[part].flatten(2)
        columns = torch.bmm(flat.expand(len(piece), -1, -1), piece)
        result[part] = F.fold(columns, out[2:], list(w.shape[2:]), dilation, padding, stride)
    return result


def input_fft(grad: Tensor, w: Tensor, geometry: Geometry, out: list[int]) -> Tensor:
    """By the convolution theorem; stride 1."""
    return fft(grad, *_with_no_bias(w, geometry), out)


def input_winograd(
    grad: Tensor, w: Tensor, geometry: Geometry, out: list[int], chunks: int
) -> Tensor:
    """F(2 x 2, 3 x 3) with the mirrored kernel; stride 1."""
    return winograd(grad, *_with_no_bias(w, geometry), out, chunks)


def _with_no_bias(w: Tensor, geometry: Geometry) -> tuple[Tensor, None, Geometry]:
    mirrored, other = _mirrored(w, geometry)
    return mirrored, None, other


# Gradient of weight and bias


def _weight_gradients(
    grad: Tensor, x: Tensor, w: Tensor, geometry: Geometry, groups: int, wanted: list[bool]
) -> Gradients:
    bias = [w.shape[0]] if wanted[2] else None
    result: Gradients = aten.convolution_backward.default(
        grad, x, w, bias, *geometry, False, [0, 0], groups, wanted
    )
    return result


def weight_channels_last(
    grad: Tensor, x: Tensor, w: Tensor, geometry: Geometry, groups: int, wanted: list[bool]
) -> Gradients:
    """In channels-last layout, and back."""
    grad, x = grad.contiguous(memory_format=_LAST), x.contiguous(memory_format=_LAST)
    like = w.contiguous(memory_format=_LAST)
    _, weight, bias = _weight_gradients(grad, x, like, geometry, groups, wanted)
    return None, None if weight is None else weight.contiguous(), bias


def weight_chunked(
    grad: Tensor, x: Tensor, w: Tensor, geometry: Geometry, groups: int, wanted: list[bool],
    chunks: int,
) -> Gradients:  # fmt: skip
    """The sum over parts of the batch."""
    weight = bias = None
    for part in _chunks(len(x), chunks):
        _, more, shift = _weight_gradients(grad[part], x[part], w, geometry, groups, wanted)
        weight = more if weight is None or more is None else weight.add_(more)
        bias = shift if bias is None or shift is None else bias.add_(shift)
    return None, weight, bias


def weight_im2col(
    grad: Tensor, x: Tensor, w: Tensor, geometry: Geometry, wanted: list[bool], chunks: int
) -> Gradients:
    """One matrix product per image, summed in place."""
    weight = torch.zeros_like(w).view(w.shape[0], -1) if wanted[1] else None
    if weight is not None:
        for part in _chunks(len(x), chunks):
            columns = _columns(x[part], list(w.shape[2:]), geometry)
            for image, piece in zip(columns, grad[part].flatten(2), strict=True):
                weight.addmm_(piece, image.t())
    bias = grad.sum((0, 2, 3)) if wanted[2] else None
    return None, None if weight is None else weight.view(w.shape), bias


def weight_by_parts(
    grad: Tensor, parts: list[Tensor], w: Tensor, geometry: Geometry, wanted: list[bool]
) -> Gradients:
    """Of the parts' concatenation along the channels: the weights of each, one after another."""
    weights: list[Tensor] = []
    bias = None
    for x, piece in zip(parts, _pieces(w, parts), strict=True):
        asked = [False, wanted[1], wanted[2] and bias is None]
        _, weight, shift = _weight_gradients(grad, x, piece.contiguous(), geometry, 1, asked)
        weights += [] if weight is None else [weight]
        bias = shift if bias is None else bias
    return None, torch.cat(weights, 1) if weights else None, bias
