"""SiLU and GELU backward from their output and one side bit per entry.

Both fall to a single minimum and rise from there, so that the output and the side of the minimum
give back the input; the derivative is interpolated in ``sqrt(y - minimum)``, in which it is
smooth on either side. Next to the minimum the output hardly says where the input was: there the
derivative, itself near 0, is known to about 1e-4. Double precision, in which the validator runs
plans, starts from the interpolated input and solves for it.
"""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from rematbench.tracing.alternatives.bits import planes

aten = torch.ops.aten

GRID, CHUNK = 8192, 1 << 14
_LEFT, _RIGHT = -20.0, 20.0  # beyond, the derivative is 0 or 1 to single precision
_STEPS = 4


def _forward(kind: str, x: Tensor) -> Tensor:
    result: Tensor = aten.silu(x) if kind == "silu" else aten.gelu(x, approximate=kind)
    return result


def _derivative(kind: str, x: Tensor) -> Tensor:
    one = torch.ones_like(x)
    result: Tensor = (
        aten.silu_backward(one, x)
        if kind == "silu"
        else aten.gelu_backward(one, x, approximate=kind)
    )
    return result


@functools.cache
def minimum(kind: str) -> float:
    """Where the activation (``silu``, or GELU's ``none`` or ``tanh``) is smallest."""
    low, high = -2.0, 0.0
    for _ in range(60):
        middle = (low + high) / 2
        falling = _derivative(kind, torch.tensor(middle, dtype=torch.float64)).item() < 0
        low, high = (middle, high) if falling else (low, middle)
    return low


@functools.cache
def _table(
    kind: str, left: bool, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, Tensor, float]:
    """(roots, derivatives or in double precision inputs, smallest output) on one side of the
    minimum; roots rise."""
    exact = dtype is torch.float64
    end = (_LEFT if left else _RIGHT) * (2 if exact else 1)
    x = torch.linspace(minimum(kind), end, GRID, dtype=torch.float64)
    y = _forward(kind, x)
    root = (y - y[0]).clamp_(min=0).sqrt_()
    # Far out on the left, the outputs run together.
    apart = root.diff() > (0 if exact else 1e-7)
    keep = torch.cat([torch.ones(1, dtype=torch.bool), apart]).cummin(0).values
    found = x if exact else _derivative(kind, x)
    return root[keep].to(device, dtype), found[keep].to(device, dtype), float(y[0])


def _derivative_at(kind: str, left: bool, y: Tensor) -> Tensor:
    roots, values, smallest = _table(kind, left, y.device, y.dtype)
    root = (y - smallest).clamp_(min=0).sqrt_()
    above = torch.searchsorted(roots, root).clamp_(1, len(roots) - 1)
    below = above - 1
    start = roots[below]
    share = root.sub_(start).div_(roots[above] - start).clamp_(0, 1)
    found = torch.lerp(values[below], values[above], share)
    return _derivative(kind, _solved(kind, found, y)) if y.dtype is torch.float64 else found


def _solved(kind: str, x: Tensor, y: Tensor) -> Tensor:
    """The input whose output is ``y``, near ``x``, by Newton's method."""
    for _ in range(_STEPS):
        slope = _derivative(kind, x)
        step = (_forward(kind, x) - y).div_(slope).clamp_(-1, 1)
        x = x - step.masked_fill_(slope.abs() < 1e-12, 0.0)
    return x


def backward_from_output(grad: Tensor, y: Tensor, bits: Tensor, kind: str) -> Tensor:
    """The gradient of ``kind`` from its output and its side bits (set: left of the minimum)."""
    result = torch.empty(grad.shape, dtype=grad.dtype, device=grad.device)
    flat, values, out = grad.reshape(-1), y.reshape(-1), result.view(-1)
    chunk = max(CHUNK, flat.numel() // 64)
    for span, left in planes(bits, flat.numel()):
        for start in range(span.start, span.stop, chunk):
            part = slice(start, min(start + chunk, span.stop))
            side = left[start - span.start : part.stop - span.start]
            slope = torch.where(
                side,
                _derivative_at(kind, True, values[part]),
                _derivative_at(kind, False, values[part]),
            )
            torch.mul(flat[part], slope, out=out[part])
    return result
