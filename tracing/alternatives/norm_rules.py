"""What batch norm and layer norm offer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from rematbench.graphs.ir import Op
from rematbench.graphs.kinds import ImplementationTraits
from rematbench.tracing.alternatives import norms
from rematbench.tracing.alternatives.scene import (
    Declined,
    Found,
    Offer,
    Rule,
    Scene,
    inplace_offer,
    like,
    rounded,
)
from rematbench.tracing.captured import TorchCall

aten = torch.ops.aten

OUTPUT_TOLERANCE = 2e-5

BATCH_NORM = aten._native_batch_norm_legit_functional.default


def _why_not_from_output(scene: Scene, weight: Any, bias: Any) -> str | None:
    """Why the normalised input cannot be read off the output; None: it can."""
    if weight is None:
        return None
    scale = scene.parameter(weight.name)
    shift = None if bias is None else scene.parameter(bias.name)
    if scale is None or (bias is not None and shift is None):
        return "weight or bias is computed, so that nobody knows whether it comes close to 0"
    size = scale.abs()
    smallest = size.min().item() if size.numel() else 1.0
    if not smallest >= norms.SMALLEST_WEIGHT:
        return (
            f"the smallest |weight| is {smallest:g}; dividing by less than "
            f"{norms.SMALLEST_WEIGHT:g} loses the normalised input"
        )
    if shift is not None and bool((shift.abs() > norms.LARGEST_BIAS * size).any()):
        return f"some |bias| is more than {norms.LARGEST_BIAS:g} times its |weight|"
    return None


def _traits(scene: Scene, output: str) -> ImplementationTraits:
    return ImplementationTraits(rounded(OUTPUT_TOLERANCE, scene.spec(output).dtype))


def batch_norm(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Batch norm into its input, and again by its saved statistics (recomputation only)."""
    x, weight, bias, mean, var, training, momentum, eps = call.args
    if not training or None in call.outs[:5]:
        yield Declined("statistics", "it is not in training mode")
        return
    root = like(call, norms.batch_norm_inplace, x, weight, bias, mean, var, momentum, eps)
    yield inplace_offer(scene, call, x.name, "inplace", root)
    saved = tuple(scene.captured.value_of[out] for out in call.outs[1:] if out is not None)
    refs = [type(x)(out) for out in call.outs[1:3] if out is not None]
    again = replace(like(call, norms.batch_norm_again, x, weight, bias, *refs), outs=call.outs[:1])
    # The new running statistics stay as they are, so they must be there.
    yield Offer("statistics", again, needs=saved)
    root = replace(again, target=norms.batch_norm_again_inplace)
    yield inplace_offer(scene, call, x.name, "statistics+inplace", root, saved)


def batch_norm_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """From the output; the default reads the input."""
    grad, x, weight, _, _, _, invstd, training, _, wanted = call.args
    made = None if invstd is None else scene.maker(invstd.name)
    if made is None or made[1].target is not BATCH_NORM or made[1].args[0] != x:
        return
    y, bias = made[1].outs[0], made[1].args[2]
    reason = None if training else "it is not in training mode"
    reason = reason or _why_not_from_output(scene, weight, bias)
    if reason or y is None:
        yield Declined("output", reason or "its output is never used")
        return
    root = like(
        call, norms.batch_norm_backward, grad, type(x)(y), weight, bias, invstd, list(wanted)
    )
    yield Offer("output", root, _traits(scene, y))


def layer_norm_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """From the output; the default reads the input."""
    grad, x, shape, _, invstd, weight, bias, wanted = call.args
    made = scene.maker(invstd.name)
    if made is None or made[1].target is not aten.native_layer_norm.default:
        return
    y = made[1].outs[0]
    if y is None or made[1].args[0] != x:
        return
    reason = _why_not_from_output(scene, weight, bias)
    if reason:
        yield Declined("output", reason)
        return
    root = like(
        call, norms.layer_norm_backward,
        grad, type(x)(y), list(shape), invstd, weight, bias, list(wanted),
    )  # fmt: skip
    size = scene.bytes[scene.captured.value_of[y]]
    yield Offer(
        "output",
        root,
        _traits(scene, y),
        workspace_bytes=size,
    )


RULES: dict[Any, Rule] = {
    BATCH_NORM: batch_norm,
    aten.native_batch_norm_backward.default: batch_norm_backward,
    aten.native_layer_norm_backward.default: layer_norm_backward,
}
