"""Which algorithms a convolution, its input gradient and its parameter gradients offer.

Workspaces and operations are estimates by the algorithm, for the cost models that do not
measure; native kernels' own workspaces are not part of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from rematbench.graphs.ir import Op
from rematbench.graphs.kinds import ImplementationTraits
from rematbench.tracing.alternatives import convolutions as algorithms
from rematbench.tracing.alternatives.concatenation_rules import joined
from rematbench.tracing.alternatives.scene import (
    Declined,
    Found,
    Offer,
    Rule,
    Scene,
    contiguous,
    entries,
    one_out,
    out_of,
    rounded,
)
from rematbench.tracing.captured import TensorSpec, TorchCall

aten = torch.ops.aten

TOLERANCE = 1e-5
SHAPE_TOLERANCE = 2e-6
CHUNKS = (2, 8)


@dataclass(frozen=True, slots=True)
class Shape:
    """A 2-d convolution: batch, channels, sizes; ``item`` is the bytes of an entry."""

    x: TensorSpec
    w: TensorSpec
    y: TensorSpec
    stride: list[int]
    padding: list[int]
    dilation: list[int]
    groups: int

    @property
    def item(self) -> int:
        return int(self.x.dtype.itemsize)

    @property
    def flops(self) -> float:
        """Of the plain algorithm, for the output and for either gradient."""
        return 2.0 * entries(self.y) * math.prod(self.w.shape[1:])

    @property
    def kernel(self) -> tuple[int, ...]:
        return self.w.shape[2:]

    @property
    def geometry(self) -> tuple[list[int], list[int], list[int]]:
        return self.stride, self.padding, self.dilation

    @property
    def unit(self) -> bool:
        """Are stride and dilation 1?"""
        return all(n == 1 for n in (*self.stride, *self.dilation))

    @property
    def column_bytes(self) -> int:
        """Of the whole batch unfolded."""
        windows = self.y.shape[0] * self.y.shape[2] * self.y.shape[3]
        return windows * math.prod(self.w.shape[1:]) * self.item

    @property
    def copy_bytes(self) -> int:
        """Of input, weight and output in another layout."""
        return (entries(self.x) + entries(self.w) + entries(self.y)) * self.item

    def bytes_of(self, spec: TensorSpec, parts: Parts) -> int:
        """Of one part of a batch."""
        return entries(spec) // spec.shape[0] * parts.images * self.item

    def why_not(self) -> str | None:
        """Why no algorithm of ours applies; None: some do."""
        specs = (self.x, self.w, self.y)
        if any(len(s.shape) != 4 for s in specs) or not all(map(contiguous, specs)):
            return "it is not a convolution of contiguous images"
        if self.x.dtype not in (torch.float32, torch.float64):
            return "it is not in single or double precision"
        if not all(map(entries, specs)):
            return "it is empty"
        return None


def _pair(numbers: list[int]) -> list[int]:
    return [numbers[0], numbers[-1]]


def _shape(scene: Scene, x: str, w: str, y: str, args: tuple[Any, ...]) -> Shape:
    stride, padding, dilation, groups = args
    return Shape(
        scene.spec(x), scene.spec(w), scene.spec(y),
        _pair(stride), _pair(padding), _pair(dilation), groups,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Parts:
    """A batch in parts, one after another.

    Attributes:
        asked: parts that were asked for.
        images: of each part, but the last, which may be smaller.
        count: of the parts that there are.
    """

    asked: int
    images: int
    count: int

    @classmethod
    def of(cls, shape: Shape, asked: int) -> Parts:
        """A convolution's batch in as many parts, or fewer, equal ones."""
        batch = shape.x.shape[0]
        images = -(-batch // asked)
        return cls(asked, images, -(-batch // images))


def _chunked(shape: Shape) -> Iterator[Parts]:
    for chunks in CHUNKS:
        if shape.x.shape[0] >= chunks:
            yield Parts.of(shape, chunks)


def _traits(shape: Shape, flops: float, passes: int = 1) -> ImplementationTraits:
    return ImplementationTraits(rounded(TOLERANCE, shape.x.dtype), flops=flops, passes=passes)


def _unfolded(shape: Shape) -> Iterator[tuple[str, Parts]]:
    """(name, parts of the batch) for convolutions that unfolding helps."""
    if shape.groups == 1 and max(shape.kernel) > 1:
        yield "conv:im2col", Parts.of(shape, 1)
        if shape.x.shape[0] > 1:
            yield "conv:im2col_image", Parts.of(shape, shape.x.shape[0])


def _fft_estimate(shape: Shape) -> tuple[float, int]:
    """(flops, workspace bytes) of the convolution theorem."""
    sizes = [n + 2 * p + n % 2 for n, p in zip(shape.x.shape[2:], shape.padding, strict=True)]
    batch, inner, outer = shape.x.shape[0], shape.x.shape[1], shape.y.shape[1]
    spectrum = sizes[0] * (sizes[1] // 2 + 1)
    planes = batch * inner + inner * outer + batch * outer
    points = sizes[0] * sizes[1]
    flops = 2.5 * points * max(1, points.bit_length()) * planes
    flops += 8.0 * spectrum * batch * inner * outer
    held = max(batch * inner + inner * outer, batch * outer) + planes
    return flops, 2 * shape.item * spectrum * held


def _winograd_estimate(
    shape: Shape, outputs: TensorSpec, inner: int, parts: Parts
) -> tuple[float, int]:
    """(flops, workspace bytes) of F(2 x 2, 3 x 3)."""
    batch, outer, height, width = outputs.shape
    tiles = -(-height // 2) * -(-width // 2)
    flops = 2.0 * 16 * inner * outer + 2.0 * 256 * inner + 128.0 * outer
    held = tiles * max(2 * 16 * inner, 16 * (inner + outer), 20 * outer)
    if parts.count > 1:
        held += outer * height * width
    return flops * batch * tiles, shape.item * parts.images * held


def _fast(shape: Shape) -> Iterator[tuple[str, Parts]]:
    """(name, parts of the batch) of the transform algorithms that apply."""
    if shape.groups != 1 or any(n != 1 for n in shape.dilation):
        return
    if max(shape.kernel) > 1:
        yield "conv:fft", Parts.of(shape, 1)
    if shape.kernel == (3, 3) and shape.unit:
        yield "conv:winograd", Parts.of(shape, 1)
        if shape.x.shape[0] > 1:
            yield "conv:winograd_image", Parts.of(shape, shape.x.shape[0])


def convolution(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Algorithms of the forward convolution."""
    x, w, b, stride, padding, dilation, transposed, _, groups = call.args
    out = out_of(call)
    if transposed or out is None:
        return
    shape = _shape(scene, x.name, w.name, out, (stride, padding, dilation, groups))
    if reason := shape.why_not():
        yield Declined("conv", reason)
        return
    geometry, size = shape.geometry, list(shape.y.shape)

    def offer(
        name: str, flops: float, workspace: int, target: Any, *args: Any, passes: int = 1
    ) -> Offer:
        root = one_out(out, target, x, w, b, geometry, *args)
        return Offer(name, root, _traits(shape, flops, passes), int(workspace))

    plain = shape.flops
    yield offer("conv:channels_last", plain, shape.copy_bytes, algorithms.channels_last, groups)
    for parts in _chunked(shape):
        part, name = shape.bytes_of(shape.y, parts), f"conv:chunk{parts.asked}"
        chunked = algorithms.chunked, groups, size, parts.asked
        yield offer(name, plain, part, *chunked, passes=parts.count)
    for name, parts in _unfolded(shape):
        unfolded = algorithms.im2col, size, parts.count
        held = shape.column_bytes // parts.count
        yield offer(name, plain, held, *unfolded, passes=parts.count)
    for name, parts in _fast(shape):
        if name == "conv:fft":
            yield offer(name, *_fft_estimate(shape), algorithms.fft, size)
        else:
            estimate = _winograd_estimate(shape, shape.y, shape.x.shape[1], parts)
            winograd = algorithms.winograd, size, parts.asked
            yield offer(name, *estimate, *winograd, passes=parts.count)
    yield from _by_parts(scene, call, shape)


def _by_parts(scene: Scene, call: TorchCall, shape: Shape) -> Found:
    """The forward convolution of a concatenation, which need not be there."""
    x, w, b = call.args[:3]
    joint, out = joined(scene, x.name), out_of(call)
    if joint is None or shape.groups != 1:
        return
    assert out is not None
    once, more = Parts.of(shape, 1), len(joint) - 1
    root = one_out(out, algorithms.by_parts, joint, w, b, shape.geometry)
    traits = _traits(shape, shape.flops, more)
    yield Offer("parts", root, traits, shape.bytes_of(shape.y, once))
    for name, parts in _fast(shape):
        if name == "conv:winograd_image":
            flops, held = _winograd_estimate(shape, shape.y, shape.x.shape[1], parts)
            arguments = (joint, w, b, shape.geometry, list(shape.y.shape))
            root = one_out(out, algorithms.winograd_by_parts, *arguments)
            traits = _traits(shape, flops, parts.count)
            yield Offer("parts:winograd_image", root, traits, held)


def convolution_backward(scene: Scene, op: Op, call: TorchCall) -> Found:
    """Algorithms of either gradient, and input gradients that do not ask for the input."""
    transposed, wanted = call.args[7], call.args[10]
    if wanted[0] and any(wanted[1:]):
        yield Declined("conv", "input and parameter gradients are one op")
    elif wanted[0]:
        yield from _input_gradient(scene, call, transposed)
    elif not transposed:
        yield from _weight_gradient(scene, call)


def _input_gradient(scene: Scene, call: TorchCall, transposed: bool) -> Found:
    grad, x, w, _, stride, padding, dilation, _, extra, groups, _ = call.args
    out = call.outs[0]
    assert out is not None
    if transposed:
        root = one_out(
            out, aten.convolution.default,
            grad, w, None, stride, padding, dilation, False, [0] * len(stride), groups,
        )  # fmt: skip
        # oneDNN may pick another kernel than for the gradient; not so in the other direction.
        yield Offer(
            "shape", root, ImplementationTraits(rounded(SHAPE_TOLERANCE, scene.spec(out).dtype))
        )
        return
    x_spec, w_spec, y_spec = (scene.spec(t.name) for t in (x, w, grad))
    extra = [
        n - ((m - 1) * s - 2 * p + d * (k - 1) + 1)
        for n, m, k, s, p, d in zip(
            x_spec.shape[2:], y_spec.shape[2:], w_spec.shape[2:],
            stride, padding, dilation, strict=True,
        )
    ]  # fmt: skip
    arguments = (grad, w, None, stride, padding, dilation, True, extra, groups)
    yield Offer("shape", one_out(out, aten.convolution.default, *arguments))
    shape = _shape(scene, x.name, w.name, grad.name, (stride, padding, dilation, groups))
    if reason := shape.why_not():
        yield Declined("conv", reason)
        return
    yield from _input_algorithms(shape, grad, w, out, extra)


def _input_algorithms(shape: Shape, grad: Any, w: Any, out: str, extra: list[int]) -> Found:
    geometry, size, plain = shape.geometry, list(shape.x.shape), shape.flops

    def offer(
        name: str, flops: float, workspace: int, target: Any, *args: Any, passes: int = 1
    ) -> Offer:
        root = one_out(out, target, grad, w, geometry, *args)
        return Offer(name, root, _traits(shape, flops, passes), int(workspace))

    layout = algorithms.input_channels_last
    yield offer("conv:channels_last", plain, shape.copy_bytes, layout, extra, shape.groups)
    for parts in _chunked(shape):
        part, name = shape.bytes_of(shape.x, parts), f"conv:chunk{parts.asked}"
        chunked = algorithms.input_chunked, extra, shape.groups, size, parts.asked
        yield offer(name, plain, part, *chunked, passes=parts.count)
    for name, parts in _unfolded(shape):
        held = shape.column_bytes // parts.count + shape.bytes_of(shape.x, parts)
        unfolded = algorithms.input_im2col, size, parts.count
        yield offer(name, plain, held, *unfolded, passes=parts.count)
    fits = all(k - 1 >= p for k, p in zip(shape.kernel, shape.padding, strict=True))
    if not shape.unit or not fits:
        return
    for name, parts in _fast(shape):
        if name == "conv:fft":
            yield offer(name, *_fft_estimate(shape), algorithms.input_fft, size)
        else:
            estimate = _winograd_estimate(shape, shape.x, shape.y.shape[1], parts)
            winograd = algorithms.input_winograd, size, parts.asked
            yield offer(name, *estimate, *winograd, passes=parts.count)


def _weight_gradient(scene: Scene, call: TorchCall) -> Found:
    grad, x, w, _, stride, padding, dilation, _, _, groups, wanted = call.args
    shape = _shape(scene, x.name, w.name, grad.name, (stride, padding, dilation, groups))
    if reason := shape.why_not():
        yield Declined("conv", reason)
        return
    geometry, wanted, plain = shape.geometry, list(wanted), shape.flops

    def offer(name: str, workspace: int, target: Any, *args: Any, passes: int = 1) -> Offer:
        root = TorchCall(target, (grad, x, w, geometry, *args), {}, call.outs, call.unpack)
        return Offer(name, root, _traits(shape, plain, passes), int(workspace))

    layout = algorithms.weight_channels_last
    yield offer("conv:channels_last", shape.copy_bytes, layout, groups, wanted)
    weights = entries(shape.w) * shape.item
    for parts in _chunked(shape):
        chunked = algorithms.weight_chunked, groups, wanted, parts.asked
        yield offer(f"conv:chunk{parts.asked}", weights, *chunked, passes=parts.count)
    for name, parts in _unfolded(shape):
        unfolded = algorithms.weight_im2col, wanted, parts.count
        yield offer(name, shape.column_bytes // parts.count, *unfolded, passes=parts.count)
    joint = joined(scene, x.name)
    if joint is not None and shape.groups == 1:
        given = (grad, joint, w, geometry, wanted)
        root = TorchCall(algorithms.weight_by_parts, given, {}, call.outs, call.unpack)
        yield Offer("parts", root, _traits(shape, plain), weights)


RULES: dict[Any, Rule] = {
    aten.convolution.default: convolution,
    aten.convolution_backward.default: convolution_backward,
}
