"""Gist's encodings for what waits for the backward pass: which values, and who reads them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from rematbench.graphs.ir import Op, Phase
from rematbench.graphs.kinds import ImplementationTraits
from rematbench.tracing.alternatives import encodings
from rematbench.tracing.alternatives.bits import mask_bytes
from rematbench.tracing.alternatives.scene import (
    Declined,
    Found,
    Offer,
    OptionalOp,
    Scene,
    contiguous,
    entries,
    plain,
)
from rematbench.tracing.captured import Ref, TensorSpec, TorchCall, call_names, call_reads

aten = torch.ops.aten

# Half precision keeps 11 bits; batch norm looks at differences from the mean, which lose some.
HALF_TOLERANCE = 2e-3
SMALLEST_BYTES = 1024

# Backward ops that need a dense value and pass its error on no larger than it is, and the positions
# of the value among their arguments. Besides products, the second argument is what the op waited
# for; statistics are small. The others read a mask, an output or a shape instead, or (cosine,
# division) blow the error up.
_PLACES = {
    aten.convolution_backward.default: ([1],),
    aten.mm.default: ([0], [1], [0, 1]),
    aten.bmm.default: ([0], [1], [0, 1]),
    aten.mul.Tensor: ([0], [1], [0, 1]),
    aten.native_batch_norm_backward.default: ([1],),
    aten.native_layer_norm_backward.default: ([1],),
    aten.silu_backward.default: ([1],),
    aten.gelu_backward.default: ([1],),
    aten.hardswish_backward.default: ([1],),
}


def encodings_of(scene: Scene) -> Iterator[tuple[str, Offer | OptionalOp | Declined]]:
    """(name of the op that it is for, what is offered), all values of the step."""
    for value, readers in scene.readers.items():
        if not _worthwhile(scene, value):
            continue
        later = [op for op in readers if _decodable(scene, op, value)]
        if later:
            yield from ((extra.after, extra) for extra in _encode(scene, value))
        for op in later:
            yield from ((op.name, offer) for offer in _offers(scene, op, value))


def _worthwhile(scene: Scene, value: str) -> bool:
    writer = scene.writer.get(value)
    if writer is None or writer.phase is not Phase.FORWARD:
        return False
    if value in scene.captured.graph.outputs or value not in scene.captured.tensors:
        return False
    spec = scene.spec(value)
    whole = entries(spec) * spec.dtype.itemsize == scene.bytes[value] >= SMALLEST_BYTES
    return whole and spec.dtype is torch.float32 and contiguous(spec)


def _decodable(scene: Scene, op: Op, value: str) -> bool:
    """Does a backward op's root call read the whole value as an argument, nothing else of it?"""
    calls = scene.captured.code[op.name]["default"]
    call = calls[0]
    places = _places(call, value)
    if op.phase is not Phase.BACKWARD or places not in _PLACES.get(call.target, ()):
        return False
    if call.target is aten.convolution_backward.default and call.args[10][0]:
        return False
    used = {ref for each in calls for ref in call_reads(each)}
    names = {ref for ref in used if scene.captured.value_of[ref] == value}
    return names == {value} and call_names(call).count(value) == len(places)


def _places(call: TorchCall, value: str) -> list[int]:
    """The positions of a value among a call's arguments."""
    return [i for i, argument in enumerate(call.args) if argument == Ref(value)]


def _available(scene: Scene, value: str) -> list[str]:
    if value in scene.density:
        return ["fp16", "csr", "bitmap"]
    return ["fp16"]


def _parts(scene: Scene, value: str, encoding: str) -> dict[str, TensorSpec]:
    size = entries(scene.spec(value))
    if encoding == "fp16":
        return {f"{value}_fp16": plain(scene.spec(value).shape, torch.float16)}
    room = encodings.capacity(size, scene.density[value])
    values = {f"{value}_{encoding}_values": plain((room,), torch.float32)}
    if encoding == "bitmap":
        return {f"{value}_bitmap_bits": plain((mask_bytes(size),), torch.uint8)} | values
    rows = -(-size // encodings.ROW) + 1
    columns = {f"{value}_csr_columns": plain((room,), torch.uint8)}
    return values | columns | {f"{value}_csr_starts": plain((rows,), torch.int32)}


def _encode(scene: Scene, value: str) -> Iterator[OptionalOp]:
    """The encodings of a value, each made once its last reader of the forward pass is done."""
    before = (op for op in scene.readers[value] if op.phase is Phase.FORWARD)
    *_, after = scene.writer[value], *before
    targets: dict[str, Callable[..., Any]] = {
        "fp16": encodings.to_half,
        "bitmap": encodings.to_bitmap,
        "csr": encodings.to_csr,
    }
    size = entries(scene.spec(value))
    for encoding in _available(scene, value):
        parts = _parts(scene, value, encoding)
        density = 1.0 if encoding == "fp16" else scene.density[value]
        room = () if encoding == "fp16" else (encodings.capacity(size, density),)
        call = TorchCall(
            targets[encoding], (Ref(value), *room), {}, tuple(parts), unpack=encoding != "fp16"
        )
        workspace = {"fp16": 0, "bitmap": size, "csr": 24 * min(size, 1 << 18)}[encoding]
        traits = ImplementationTraits(density=density)
        yield OptionalOp(f"{value}_{encoding}", after.name, call, parts, workspace, traits)


def _offers(scene: Scene, op: Op, value: str) -> Found:
    call = scene.root(op.name)
    positions = _places(call, value)
    shape = list(scene.spec(value).shape)
    single = sum(_worthwhile(scene, v) and _decodable(scene, op, v) for v in op.reads) == 1
    for encoding in _available(scene, value):
        parts = [Ref(name) for name in _parts(scene, value, encoding)]
        rest = [None if i in positions else a for i, a in enumerate(call.args)]
        root = TorchCall(
            encodings.decoded,
            (call.target, encoding, positions, shape, parts, rest),
            call.kwargs,
            call.outs,
            call.unpack,
        )
        kind, tolerance = ("lossy", HALF_TOLERANCE) if encoding == "fp16" else ("encoded", 0.0)
        traits = ImplementationTraits(tolerance, runs_default=True)
        name = f"{kind}:{encoding}"
        yield Offer(name if single else f"{name}:{value}", root, traits, scene.bytes[value])
