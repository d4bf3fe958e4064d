"""Floating-point operations by PyTorch's registry of formulas, bytes moved where it has none.

The registry covers convolutions, matrix products and attention. For every other op (pointwise,
normalisation, pooling) the cost is the number of bytes that it reads and writes, as if each took
one floating-point operation: such ops are bound by memory, and a cost of zero would make
recomputing them look free.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from costmodel import with_costs
from graphs.capture import Call, Captured, Ref, TensorSpec, call_reads
from graphs.ir import Graph


def spec_bytes(spec: TensorSpec) -> int:
    """Bytes of the tensor's entries."""
    return torch.Size(spec.shape).numel() * spec.dtype.itemsize


def bytes_moved(captured: Captured, call: Call) -> int:
    """Bytes that a call reads and writes."""
    names: Iterable[str | None] = [*call_reads(call), *call.outs]
    return sum(spec_bytes(captured.tensors[name]) for name in names if name is not None)


def call_flops(captured: Captured, call: Call) -> float | None:
    """Floating-point operations of a call by PyTorch's formulas, or None."""
    formula = flop_registry.get(getattr(call.target, "overloadpacket", None))
    if formula is None:
        return None
    outs = [None if out is None else _meta(captured.tensors[out]) for out in call.outs]
    result: Any = tuple(outs) if call.unpack else outs[0]
    arguments = [_materialise(captured, a) for a in call.args]
    options = {key: _materialise(captured, a) for key, a in call.kwargs.items()}
    return float(formula(*arguments, **options, out_val=result))


def _meta(spec: TensorSpec) -> torch.Tensor:
    return torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype, device="meta")


def _materialise(captured: Captured, argument: Any) -> Any:
    if isinstance(argument, Ref):
        return _meta(captured.tensors[argument.name])
    if isinstance(argument, (list, tuple)):
        return type(argument)(_materialise(captured, a) for a in argument)
    return argument


def flops(captured: Captured) -> Graph:
    """The captured graph with costs in floating-point operations; no workspaces."""
    costs = {}
    for op in captured.graph.ops:
        root = captured.code[op.name]["default"][0]
        found = call_flops(captured, root)
        costs[op.name] = (float(bytes_moved(captured, root)) if found is None else found, 0)
    return with_costs(captured.graph, costs, "flop")
