"""The tensor that the online runtime hands out: a place in a storage that may be evicted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from rematbench.base.errors import ExecutionError
from rematbench.tracing.nested import mapped, tensors_in
from rematbench.training.online.cells import Cell
from rematbench.training.online.profiles import Form

_wrapper, _strided = torch.Tensor._make_wrapper_subclass, torch.strided


class Runtime(Protocol):
    """What a :class:`Remat` needs of its runtime.

    Attributes:
        cells: of the storages that a tensor is in, by the ids of their buffers.
    """

    cells: dict[int, Cell]

    def dispatch(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any: ...


class Buffer:
    """One storage over time, whichever cell is its present version; it dies with the last tensor
    in it."""

    __slots__ = ("cell", "device", "runtime")

    def __init__(self, runtime: Runtime, cell: Cell, device: torch.device) -> None:
        self.runtime, self.device = runtime, device
        self.cell = runtime.cells[id(self)] = cell

    def move(self, cell: Cell) -> None:
        """``cell`` is the storage's present version from now on."""
        self.cell = self.runtime.cells[id(self)] = cell

    def __del__(self) -> None:
        del self.runtime.cells[id(self)]
        self.cell.memory.bury(self.cell)


class Remat(Tensor):
    """A tensor without memory of its own; ops on it make its storage resident while they run."""

    __slots__ = ("buffer", "geometry")  # made for every result: quicker than in its dictionary
    buffer: Buffer
    geometry: Form
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def wrap(buffer: Buffer, geometry: Form) -> Remat:
        """The tensor of this geometry in ``buffer``."""
        # By position, without a memory format: names take a third of the time.
        made: Remat = _wrapper(
            Remat,
            geometry.size,
            geometry.stride,
            geometry.offset,
            None,
            geometry.dtype,
            _strided,
            buffer.device,
        )
        made.buffer, made.geometry = buffer, geometry
        return made

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        first = next(t for t in tensors_in(args, kwargs) if isinstance(t, Remat))
        return first.buffer.runtime.dispatch(func, args, kwargs)

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        place = "resident" if self.buffer.cell.data is not None else "evicted"
        return f"Remat({tuple(self.shape)}, {self.dtype}, {place})"


def ordinary(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Run an operator outside any runtime: on the tensors themselves, for an ordinary result."""
    given: dict[int, Remat] = {}

    def inner(argument: Any) -> Any:
        if not isinstance(argument, Remat):
            return argument
        cell = argument.buffer.cell
        if cell.data is None:
            raise ExecutionError("this tensor was evicted when its DtrRuntime ended with an error")
        found = cell.at(argument.geometry)
        given[id(found)] = argument
        return found

    out = func(*mapped(args, inner), **mapped(kwargs, inner))
    return given.get(id(out), out)  # an in-place op returns its argument
