"""What activations, dropout, sums and max-pools offer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from rematbench.graphs.ir import Op
from rematbench.graphs.kinds import ImplementationTraits
from rematbench.tracing.alternatives import bits, pools, smooth
from rematbench.tracing.alternatives.scene import (
    Declined,
    Found,
    Offer,
    OptionalOp,
    Rule,
    Scene,
    contiguous,
    entries,
    images,
    inplace_offer,
    like,
    one_out,
    out_of,
    plain,
)
from rematbench.tracing.captured import Ref, TorchCall

aten = torch.ops.aten

# Next to an activation's minimum its output hardly tells the input apart (see `smooth`).
SMOOTH_TOLERANCE = 5e-4


def mask_op(
    scene: Scene, tensor: str, what: str, after: Op, target: Callable[..., Any], *args: Any
) -> tuple[OptionalOp, Ref]:
    """The optional op that packs one bit per entry of ``tensor``, and its result."""
    name = f"{tensor}_{what}"
    size = bits.mask_bytes(entries(scene.spec(tensor)))
    extra = OptionalOp(
        name,
        after.name,
        one_out(name, target, Ref(tensor), *args),
        {name: plain((size,), torch.uint8)},
        workspace_bytes=2 * size,
    )
    return extra, Ref(name)


def _layout(scene: Scene, call: TorchCall) -> str | None:
    out = out_of(call)
    if out is None or not contiguous(scene.spec(out)):
        return "its gradient is not contiguous"
    return None


def _by_mask(
    scene: Scene,
    call: TorchCall,
    packed: tuple[OptionalOp, Ref],
    target: Callable[..., Any],
    *options: Any,
) -> Found:
    """The gradient by a packed mask (:func:`mask_op`), which is read plane by plane."""
    reason = _layout(scene, call)
    if reason is not None:
        yield Declined("intermediate:bits", reason)
        return
    extra, mask = packed
    yield extra
    out = out_of(call)
    assert out is not None
    planes = 2 * bits.mask_bytes(entries(scene.spec(out)))
    root = like(call, target, call.args[0], mask, *options)
    yield Offer("intermediate:bits", root, workspace_bytes=planes)


def threshold_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """ReLU: from its input or a mask; the default reads its output."""
    grad, result, threshold = call.args[:3]
    made = scene.maker(result.name)
    if made is None or made[1].target is not aten.relu.default:
        return
    source = made[1].args[0]
    yield Offer("input", like(call, call.target, grad, source, threshold))
    packed = mask_op(scene, result.name, "bits", made[0], bits.pack_above, threshold)
    yield from _by_mask(scene, call, packed, bits.masked_backward)


def hardtanh_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Hardtanh and ReLU6: from the output or a mask; the default reads the input."""
    grad, source, low, high = call.args[:4]
    made = scene.forward_of(source.name, aten.hardtanh.default, (low, high), (-1, 1))
    if made is None:
        return
    result = out_of(made[1])
    assert result is not None
    yield Offer("output", like(call, call.target, grad, Ref(result), low, high))
    packed = mask_op(scene, result, "bits", made[0], bits.pack_inside, low, high)
    yield from _by_mask(scene, call, packed, bits.masked_backward)


def leaky_relu_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Leaky ReLU: from the output (slope 0 or more) or a mask; the default reads the input."""
    grad, source, slope, is_result = call.args[:4]
    made = scene.forward_of(source.name, aten.leaky_relu.default, (slope,), (0.01,))
    if is_result or made is None:
        return
    result = out_of(made[1])
    assert result is not None
    if slope >= 0:
        yield Offer("output", like(call, call.target, grad, Ref(result), slope, True))
    else:
        yield Declined("output", "a negative slope hides the input's sign; use a mask")
    packed = mask_op(scene, source.name, "positive", made[0], bits.pack_positive)
    yield from _by_mask(scene, call, packed, bits.leaky_backward, slope)


def _smooth_backward(scene: Scene, kind: str, target: Any, call: TorchCall) -> Found:
    grad, source = call.args[:2]
    name = "output:side_bits"
    made = next(
        (
            (op, forward)
            for op, forward in scene.forward_calls(source.name)
            if forward.target is target
            and forward.kwargs.get("approximate", "none") == call.kwargs.get("approximate", "none")
        ),
        None,
    )
    if made is None:
        return
    result = out_of(made[1])
    assert result is not None
    reason = _layout(scene, call)
    if scene.spec(result).dtype is not torch.float32:
        reason = "the inverse is tabulated in single precision only"
    if reason:
        yield Declined(name, reason)
        return
    side, mask = mask_op(scene, source.name, "side", made[0], bits.pack_below, smooth.minimum(kind))
    yield side
    size = bits.mask_bytes(entries(scene.spec(result)))
    yield Offer(
        name,
        like(call, smooth.backward_from_output, grad, Ref(result), mask, kind),
        ImplementationTraits(SMOOTH_TOLERANCE, flops=60.0 * 8 * size),
        workspace_bytes=2 * size + 48 * min(size, max(smooth.CHUNK, size // 8)),
    )


def silu_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """SiLU: from the output and one side bit; the default reads the input."""
    yield from _smooth_backward(scene, "silu", aten.silu.default, call)


def gelu_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """GELU, either form: from the output and one side bit; the default reads the input."""
    kind = call.kwargs.get("approximate", "none")
    yield from _smooth_backward(scene, kind, aten.gelu.default, call)


def dropout_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Dropout: a packed mask, or the seed; the default reads a boolean per entry."""
    grad, mask, scale = call.args[:3]
    made = scene.maker(mask.name)
    if made is None or made[1].target is not aten.native_dropout.default:
        return
    reason = _layout(scene, call)
    if reason is None:
        packed = mask_op(scene, mask.name, "bits", made[0], bits.pack_mask)
        yield from _by_mask(scene, call, packed, bits.dropout_backward, scale)
    forward = scene.spec(made[1].args[0].name)
    ours = scene.spec(grad.name)
    if not (contiguous(forward) and contiguous(ours)) or forward.dtype != ours.dtype:
        reason = "gradient and input differ in layout or type, so that draws may land elsewhere"
    if reason:
        yield Declined("replay", reason)
        return
    size = entries(ours)
    yield Offer(
        "replay",
        like(call, bits.dropout_replayed, grad, made[1].args[1]),
        ImplementationTraits(replays=made[0].name),
        workspace_bytes=size,
    )


def max_pool_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Max-pool: from its indices alone, or from window offsets of one or half a byte."""
    grad, source, *geometry = call.args
    kernel, stride, padding, dilation, ceil_mode, indices = geometry
    shape = list(scene.spec(source.name).shape)
    if not contiguous(scene.spec(source.name)) or len(shape) != 4:
        yield Declined("shape", "the pool's input is not a contiguous batch of images")
        return
    window = (kernel, stride, padding, dilation)
    root = like(call, pools.backward_from_indices, grad, indices, shape, window, ceil_mode)
    yield Offer("shape", root)
    made = scene.maker(indices.name)
    if made is None:
        return
    spec = scene.spec(indices.name)
    offsets = pools.PoolGeometry(*window).entries
    share = -(-entries(spec) // 8)
    for bits_each in (8, 4):
        name = f"intermediate:offsets{bits_each}"
        if offsets > 2**bits_each:
            yield Declined(name, f"a window of {offsets} entries needs more than {bits_each} bits")
            continue
        packed = bits_each == 4
        value = f"{indices.name}_offsets{bits_each}"
        stored = (-(-entries(spec) // 2),) if packed else spec.shape
        yield OptionalOp(
            value,
            made[0].name,
            one_out(value, pools.encode, indices, shape[-1], window, packed),
            {value: plain(stored, torch.uint8)},
            workspace_bytes=32 * share + (2 * entries(spec) if packed else 0),
        )
        code = like(
            call, pools.backward_from_offsets, grad, Ref(value), shape, window, ceil_mode, packed
        )
        yield Offer(name, code, workspace_bytes=32 * share)


def average_pool_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Average-pool: the default asks for the input and only looks at its shape."""
    grad, source, *geometry = call.args
    spec = scene.spec(source.name)
    if not images(spec):
        yield Declined("shape", "the pool's input is not a contiguous batch of images")
        return
    yield Offer("shape", like(call, pools.average_backward, grad, list(spec.shape), *geometry))


def relu(scene: Scene, op: Op, call: TorchCall) -> Found:
    """ReLU into its input."""
    (x,) = call.args[:1]
    yield inplace_offer(scene, call, x.name, "inplace", like(call, bits.relu_inplace, x))


def hardtanh(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Hardtanh (ReLU6) into its input."""
    x = call.args[0]
    limits = (*call.args[1:], *(-1, 1)[len(call.args) - 1 :])
    root = like(call, bits.clamp_inplace, x, *limits)
    yield inplace_offer(scene, call, x.name, "inplace", root)


def leaky_relu(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Leaky ReLU into its input."""
    x, slope = (*call.args, 0.01)[:2]
    root = like(call, bits.leaky_inplace, x, slope)
    yield inplace_offer(scene, call, x.name, "inplace", root)


def add(scene: Scene, op: Op, call: TorchCall) -> Found:
    """A sum into its first or second term."""
    alpha = call.kwargs.get("alpha", 1)
    if len(call.args) != 2 or not all(isinstance(a, Ref) for a in call.args):
        return
    one, two = call.args
    first = like(call, bits.add_inplace, one, two, alpha)
    yield inplace_offer(scene, call, one.name, "inplace:first", first)
    if alpha == 1:
        second = like(call, bits.add_inplace, two, one)
        yield inplace_offer(scene, call, two.name, "inplace:second", second)


RULES: dict[Any, Rule] = {
    aten.threshold_backward.default: threshold_backward,
    aten.hardtanh_backward.default: hardtanh_backward,
    aten.leaky_relu_backward.default: leaky_relu_backward,
    aten.silu_backward.default: silu_backward,
    aten.gelu_backward.default: gelu_backward,
    aten.native_dropout_backward.default: dropout_backward,
    aten.max_pool2d_with_indices_backward.default: max_pool_backward,
    aten.avg_pool2d_backward.default: average_pool_backward,
    aten.relu.default: relu,
    aten.hardtanh.default: hardtanh,
    aten.leaky_relu.default: leaky_relu,
    aten.add.Tensor: add,
}
