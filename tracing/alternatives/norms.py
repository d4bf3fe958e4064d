"""Normalisations backward from their output, in place, and again by their statistics.

From the output, ``(y - bias) / weight`` is the normalised input (MONeT, section 3; In-Place
Activated BatchNorm), which asks for weights away from 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

aten = torch.ops.aten

SMALLEST_WEIGHT = 1e-3
LARGEST_BIAS = 100.0  # as a multiple of |weight|: the share of y that is no information


def batch_norm_backward(
    grad: Tensor,
    y: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    invstd: Tensor,
    wanted: list[bool],
) -> tuple[Tensor | None, ...]:
    """Batch norm's gradients from its output, by the ordinary kernel without workspace.

    The output is itself a batch whose mean is ``bias`` and whose deviation is ``weight``; only
    the factor of the input's gradient, ``weight * invstd``, must be restored.
    """
    if weight is None:
        one = torch.ones_like(invstd)
        scale, back, centre = invstd, one, torch.zeros_like(invstd)
    else:
        scale, back = invstd * weight * weight, weight.reciprocal()
        centre = torch.zeros_like(invstd) if bias is None else bias
    result: tuple[Tensor | None, ...] = aten.native_batch_norm_backward.default(
        grad, y, scale, None, None, centre, back, True, 0.0, wanted
    )
    return result


def batch_norm_inplace(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> tuple[Tensor, ...]:
    """Batch norm in training, into its own input; new running statistics, like the original."""
    mean, var = running_mean.clone(), running_var.clone()
    saved_mean, saved_invstd = torch.empty_like(mean), torch.empty_like(var)
    aten._native_batch_norm_legit.out(
        x, weight, bias, mean, var, True, momentum, eps,
        out=x, save_mean=saved_mean, save_invstd=saved_invstd,
    )  # fmt: skip
    return x, saved_mean, saved_invstd, mean, var


def _by_statistics(
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean: Tensor,
    invstd: Tensor,
    out: Tensor,
) -> Tensor:
    # As inference with variance 1 the kernel does the very arithmetic that it did in training.
    scale = invstd if weight is None else invstd * weight
    none = x.new_empty(0)
    aten._native_batch_norm_legit.out(
        x, scale, bias, mean, torch.ones_like(invstd), False, 0.0, 0.0,
        out=out, save_mean=none, save_invstd=none.clone(),
    )  # fmt: skip
    return out


def batch_norm_again(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor
) -> tuple[Tensor]:
    """The output of a batch norm whose statistics are known."""
    return (_by_statistics(x, weight, bias, mean, invstd, torch.empty_like(x)),)


def batch_norm_again_inplace(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor
) -> tuple[Tensor]:
    """The same, into its own input."""
    return (_by_statistics(x, weight, bias, mean, invstd, x),)


def layer_norm_backward(
    grad: Tensor,
    y: Tensor,
    shape: list[int],
    invstd: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    wanted: list[bool],
) -> tuple[Tensor | None, ...]:
    """Layer norm's gradients from its output; workspace: the normalised input."""
    normal = y.clone() if bias is None else y - bias
    if weight is not None:
        normal.div_(weight)
    result: list[Tensor | None] = list(
        aten.native_layer_norm_backward.default(
            grad,
            normal,
            shape,
            torch.zeros_like(invstd),
            torch.ones_like(invstd),
            weight,
            bias,
            wanted,
        )
    )
    if result[0] is not None:
        result[0].mul_(invstd)
    return tuple(result)
