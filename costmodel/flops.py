"""Floating-point operations by PyTorch's registry of formulas, bytes moved where it has none.

The registry covers convolutions, matrix products and attention. For every other op (pointwise,
normalisation, pooling) the cost is the number of bytes that it reads and writes, as if each took
one floating-point operation: such ops are bound by memory, and a cost of zero would make
recomputing them look free.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

from rematbench.costmodel.costs import with_costs
from rematbench.graphs.ir import Graph, Implementation, Op
from rematbench.tracing.captured import Captured, TensorSpec, TorchCall, call_reads, filled


def spec_bytes(spec: TensorSpec) -> int:
    """Bytes of the tensor's entries."""
    return math.prod(spec.shape) * int(spec.dtype.itemsize)


def bytes_moved(captured: Captured, call: TorchCall) -> int:
    """Bytes that a call reads and writes."""
    names: Iterable[str | None] = [*call_reads(call), *call.outs]
    return sum(spec_bytes(captured.tensors[name]) for name in names if name is not None)


def call_flops(captured: Captured, call: TorchCall) -> float | None:
    """Floating-point operations of a call by PyTorch's formulas, or None."""
    formula = flop_registry.get(getattr(call.target, "overloadpacket", None))
    if formula is None:
        return None
    outs = [None if out is None else _meta(captured.tensors[out]) for out in call.outs]
    result: Any = tuple(outs) if call.unpack else outs[0]
    arguments, options = filled(call, lambda name: _meta(captured.tensors[name]))
    found = float(formula(*arguments, **options, out_val=result))
    if call.target is torch.ops.aten.convolution_backward.default:
        *_, groups, (makes_input, makes_weight, _) = arguments
        if makes_weight and not makes_input:  # PyTorch's formula forgets the groups
            return found / int(groups)
    return found


def _meta(spec: TensorSpec) -> torch.Tensor:
    return torch.empty_strided(spec.shape, spec.stride, dtype=spec.dtype, device="meta")


def arithmetic(captured: Captured, op: str, implementation: str) -> float | None:
    """Floating-point operations of one implementation of ``op``; None: it is bound by memory.

    Alternatives bring their algorithm's own count; what only decodes before it runs the default
    implementation counts as that.
    """
    traits = captured.traits.get((op, implementation))
    if traits is not None and traits.flops is not None:
        return traits.flops
    if traits is not None and traits.runs_default:
        implementation = "default"
    return call_flops(captured, captured.code[op][implementation][0])


def estimated_workspace(op: Op, implementation: Implementation) -> int:
    """Bytes by the algorithm of an alternative; defaults are not modelled: 0."""
    return 0 if implementation is op.implementations[0] else implementation.workspace_bytes


def flops(captured: Captured) -> Graph:
    """The captured graph with costs in floating-point operations; workspaces as estimated.

    An alternative that has no formula counts the bytes that it moves; one that decodes first,
    these and the default's operations.
    """
    costs = {}
    for op in captured.graph.ops:
        for implementation in op.implementations:
            moved = float(bytes_moved(captured, captured.code[op.name][implementation.name][0]))
            found = arithmetic(captured, op.name, implementation.name)
            traits = captured.traits.get((op.name, implementation.name))
            decoding = moved if traits is not None and traits.runs_default else 0.0
            cost = moved if found is None else found + decoding
            costs[op.name, implementation.name] = (cost, estimated_workspace(op, implementation))
    return with_costs(captured.graph, costs, "flop")
