"""Where tensors lie: storages, geometries, and what a call changes in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from rematbench.base.errors import CaptureError
from rematbench.tracing.nested import tensors_in

aten = torch.ops.aten

# These update running statistics (arguments 3 and 4, when training), which their schemas hide.
_HIDE_WRITES = {
    packet.default
    for name in ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm")
    if (packet := getattr(aten, name, None)) is not None
}

Geometry = tuple[tuple[int, ...], tuple[int, ...], int, torch.dtype]


def may_write(func: Any) -> bool:
    """Are there calls of the operator that change a tensor in place?"""
    return func in _HIDE_WRITES or bool(func._schema.is_mutable)


def written_by(func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    """The tensors that a call changes in place."""
    if func in _HIDE_WRITES:
        return list(tensors_in(*args[3:5])) if args[5] else []
    if not func._schema.is_mutable:
        return []
    found: list[Tensor] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[position] if position < len(args) else kwargs.get(argument.name)
            found.extend(tensors_in(given))
    return found


def geometry_of(tensor: Tensor) -> Geometry:
    """Where in its storage a tensor lies."""
    return tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset(), tensor.dtype


def storage_key(tensor: Tensor) -> int:
    """Identity of a tensor's storage while it lives.

    Raises:
        CaptureError: the tensor has no storage (sparse and nested layouts).
    """
    if tensor.layout is not torch.strided:
        raise CaptureError(
            f"a tensor is of layout {tensor.layout}; only strided tensors have a storage to track"
        )
    return int(tensor.untyped_storage()._cdata)
