"""Runs single calls of a captured step, outside of any plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from rematbench.tracing.captured import TorchCall, filled


def run_call(call: TorchCall, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors that a call makes, by name.

    Args:
        tensors: what it reads, by name.
    """
    args, kwargs = filled(call, tensors.__getitem__)
    result = call.target(*args, **kwargs)
    results = result if call.unpack else [result]
    return {n: t for n, t in zip(call.outs, results, strict=False) if n is not None}


def run_calls(calls: Iterable[TorchCall], tensors: dict[str, Tensor]) -> None:
    """Run calls one after another, and put what they make beside what they read."""
    for call in calls:
        tensors |= run_call(call, tensors)
