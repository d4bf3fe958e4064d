"""What a concatenation, and its gradient, need not be in memory for.

A convolution is linear: that of a concatenation is the sum of its parts' convolutions, and no plan
has to make what all of them together are.

The gradient of a concatenation is one storage, and the part of it that belongs to a skip
connection is a view. In a U-Net that view waits until the backward pass comes back to where the
skip began, and all of the storage with it. A copy lets the rest go.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from rematbench.graphs.ir import Op, Phase
from rematbench.tracing.alternatives import bits
from rematbench.tracing.alternatives.scene import (
    Declined,
    Offer,
    OptionalOp,
    Scene,
    entries,
    images,
    like,
    out_of,
    plain,
)
from rematbench.tracing.captured import Ref, TorchCall

aten = torch.ops.aten

WAIT = 8
"""Ops over which a part must wait to be worth a copy."""


def parts_of(scene: Scene) -> Iterator[tuple[str, Offer | OptionalOp | Declined]]:
    """(name of the op that it is for, what is offered), all sums of the backward pass."""
    graph = scene.captured.graph
    for number, op in enumerate(graph.ops):
        call = scene.root(op.name)
        is_sum = call.target is aten.add.Tensor and all(isinstance(a, Ref) for a in call.args)
        if op.phase is not Phase.BACKWARD or not is_sum:
            continue
        for term in call.args:
            after = _copied_after(scene, op, term.name)
            if after is not None and number - graph.op_index[after] > WAIT:
                yield from ((op.name, found) for found in _copied(scene, op, term, after))


def _copied_after(scene: Scene, op: Op, name: str) -> str | None:
    """The op that a copy of the tensor ``name`` follows; None where no copy helps.

    A copy helps where the tensor is at most half of its storage, and ``op`` the last to read that.
    """
    captured, value = scene.captured, scene.captured.value_of[name]
    graph, spec = captured.graph, scene.spec(name)
    if value in scene.resident or value in graph.outputs or value not in scene.writer:
        return None
    terms = [a.name for a in scene.root(op.name).args if captured.value_of[a.name] == value]
    *_, before, last = scene.writer[value], *scene.readers[value]
    if terms != [name] or last is not op:
        return None
    if 2 * entries(spec) * spec.dtype.itemsize > scene.bytes[value]:
        return None
    return before.name


def _copied(scene: Scene, op: Op, term: Ref, after: str) -> Iterator[Offer | OptionalOp | Declined]:
    """The copy, the sum that reads it, and the sum into it."""
    call, spec = scene.root(op.name), scene.spec(term.name)
    out = out_of(call)
    name, alpha = f"{term.name}_part", call.kwargs.get("alpha", 1)
    copy = plain(spec.shape, spec.dtype)
    if out is None or scene.spec(out) != copy:
        yield Declined("parts:copy", "the sum is not a contiguous tensor like the part")
        return
    options = {"memory_format": torch.contiguous_format}
    clone = TorchCall(aten.clone.default, (term,), options, (name,), False)
    yield OptionalOp(name, after, clone, {name: copy})
    one, two = (Ref(name) if argument == term else argument for argument in call.args)
    yield Offer("parts:copy", replace(call, args=(one, two)))
    into = (one, two, alpha) if one == Ref(name) else (two, one)
    if one == Ref(name) or alpha == 1:
        root = like(call, bits.add_inplace, *into)
        yield Offer("parts:copy+inplace", root, overwrites=(name,))


def joined(scene: Scene, name: str) -> list[Ref] | None:
    """The parts of a tensor that is the concatenation of contiguous images along the channels."""
    made = scene.maker(name)
    if made is None or made[1].target is not aten.cat.default:
        return None
    parts, dim = (*made[1].args, 0)[:2]
    if dim not in (1, -3) or not all(isinstance(part, Ref) for part in parts):
        return None
    return list(parts) if images(*(scene.spec(part.name) for part in parts)) else None
