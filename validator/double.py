"""A step in double precision, where rounding does not reach the kinks of ReLU and max-pool.

The same generated code and the same eager training run; only the numbers have more bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from rematbench.validator.codegen import Program
from rematbench.validator.compare import StepResult
from rematbench.validator.execute import Bench

_DOUBLE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex32: torch.complex128,
    torch.complex64: torch.complex128,
}


class _InDouble(TorchDispatchMode):
    """Below autograd and composite operations, so that eager training and plans are treated alike.

    A conversion to half precision keeps every bit: a lossy encoding loses nothing.
    """

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        return func(*doubled(args), **doubled(dict(kwargs or {})))


def doubled(arguments: Any) -> Any:
    """Arguments with all their floating-point tensors and types in double precision."""
    return tree_map(_leaf_doubled, arguments)


def _leaf_doubled(leaf: Any) -> Any:
    if isinstance(leaf, torch.dtype):
        return _DOUBLE.get(leaf, leaf)
    if isinstance(leaf, Tensor) and leaf.dtype in _DOUBLE:
        return leaf.to(_DOUBLE[leaf.dtype])
    return leaf


@contextmanager
def in_double() -> Iterator[None]:
    """Whatever runs inside computes in double precision, conversions to less included."""
    kept = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _InDouble():
            yield
    finally:
        torch.set_default_dtype(kept)


@contextmanager
def _module_in_double(bench: Bench) -> Iterator[None]:
    """The bench's module and batch in double precision; they are their old selves afterwards."""
    named = [*bench.module.parameters(), *bench.module.buffers()]
    kept = [(tensor, tensor.data) for tensor in named if tensor.dtype in _DOUBLE]
    batch = bench.batch
    try:
        for tensor, data in kept:
            tensor.data = _leaf_doubled(data)
        bench.batch = doubled(batch)
        yield
    finally:
        bench.batch = batch
        for tensor, data in kept:
            tensor.data = data


def double_reference(bench: Bench) -> StepResult:
    """Eager training's results in double precision, from the same parameters, batch and seed."""
    with _module_in_double(bench), in_double():
        return bench.reference()


def double_result(bench: Bench, program: Program) -> StepResult:
    """A plan's results in double precision: the same statements on wider numbers."""
    residents = doubled(bench.residents)
    with in_double():
        return bench.result_of(bench.run(program, residents))
