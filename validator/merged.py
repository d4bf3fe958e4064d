"""Both gradients of a convolution by one call, where a plan computes them one after the other.

A captured convolution's backward pass is two ops, so that a plan may part them. Side by side they
are one call again, as in eager training, if that gives the same bits and takes no more memory: each
kind of call is tried once on stand-in tensors, and the answer remembered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.utils._python_dispatch import _disable_current_modes

from rematbench.base.errors import is_out_of_memory
from rematbench.costmodel.device import peak_of, release
from rematbench.costmodel.profiled import call_key, stand_in
from rematbench.tracing.captured import Captured, TorchCall
from rematbench.tracing.devices import device_of
from rematbench.validator.compare import same

_known: dict[tuple[Any, ...], bool] = {}
"""Is one call as good as two? By device, its settings and the kinds of both."""


def merged_calls(captured: Captured, codes: Sequence[int]) -> dict[int, TorchCall]:
    """The pairs of statements that one call does.

    Args:
        codes: of a plan for the captured graph.

    Returns:
        By the position of the first statement of a pair: the call that makes what the roots of
        both ops make.
    """
    found: dict[int, TorchCall] = {}
    for position, (one, other) in enumerate(pairwise(codes)):
        first, second = _half(captured, one), _half(captured, other)
        taken = position - 1 in found
        if taken or first is None or second is None or not _belong(first, second):
            continue
        if _as_good(captured, first, second):
            found[position] = _both(first, second)
    return found


def _half(captured: Captured, code: int) -> TorchCall | None:
    """The root call of a statement that computes half of a convolution's backward pass."""
    if code < 0:
        return None
    graph = captured.graph
    number = int(graph.tables.op_of[code])
    op = graph.ops[number]
    implementation = op.implementations[code - int(graph.tables.op_first[number])]
    root = captured.code[op.name][implementation.name][0]
    whole = (
        root.target is not torch.ops.aten.convolution_backward.default or implementation.overwrites
    )
    return None if whole else root


def _belong(first: TorchCall, second: TorchCall) -> bool:
    """The same gradient's, the one of what the other is not?"""
    apart = not any(a and b for a, b in zip(first.args[-1], second.args[-1], strict=True))
    return apart and first.args[:-1] == second.args[:-1] and first.kwargs == second.kwargs


def _both(first: TorchCall, second: TorchCall) -> TorchCall:
    outs = tuple(a or b for a, b in zip(_three(first), _three(second), strict=True))
    return replace(first, args=(*first.args[:-1], [out is not None for out in outs]), outs=outs)


def _three(call: TorchCall) -> tuple[str | None, ...]:
    return (*call.outs, None, None, None)[:3]


def _as_good(captured: Captured, first: TorchCall, second: TorchCall) -> bool:
    """Does one call give the bits of two, within their memory? Remembered."""
    device = captured.device
    cudnn = torch.backends.cudnn.benchmark, torch.backends.cudnn.deterministic
    place = device, torch.get_num_threads(), *cudnn
    key = *place, *(call_key(captured, call) for call in (first, second))
    if key in _known:
        return _known[key]
    try:
        # torch.compile generates code while its own modes stand.
        with unset_fake_temporarily(), _disable_current_modes(), device_of(device).forked_random():
            found = _known[key] = _tried(captured, first, second)
        return found
    except RuntimeError as error:
        if not is_out_of_memory(error):
            raise
    release(device)  # now that the error, and what it holds, is gone
    return False


def _tried(captured: Captured, first: TorchCall, second: TorchCall) -> bool:
    device, kwargs = captured.device, dict(first.kwargs)
    arguments: tuple[Any, ...] = stand_in(captured, replace(first, target=_given), device)[0]()
    masks = [call.args[-1] for call in (_both(first, second), first, second)]
    made: list[list[Tensor]] = []

    def run(*masks: list[bool]) -> None:
        found = [first.target(*arguments[:-1], mask, **kwargs) for mask in masks]
        made.append([t for outs in zip(*found, strict=True) for t in outs if t is not None])

    with torch.no_grad():
        # One call comes first: what only a first call takes counts against it.
        one, two = peak_of(lambda: run(masks[0]), device), peak_of(lambda: run(*masks[1:]), device)
    bits = all(a.stride() == b.stride() and same(a, b) for a, b in zip(*made, strict=True))
    return bits and one.peak_bytes <= two.peak_bytes


def _given(*arguments: Any) -> tuple[Any, ...]:
    return arguments
