"""The first execution of an operator under the online runtime."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rematbench.graphs.errors import ExecutionError
from rematbench.tracing.nested import mapped
from rematbench.tracing.storages import geometry_of, storage_key, written_by
from rematbench.training.online.cells import At, Cell, CellPool, ExecutedOp, Scalar
from rematbench.training.online.constants import Constants
from rematbench.training.online.engine import Engine, fill, generators
from rematbench.training.online.profiles import Profile, foretell, rounded, stand_in
from rematbench.training.online.tensor import Buffer, Remat

_SMALL = 64  # bytes: a storage this small is never evicted, which ends the past of a loss
_STATE = 2**13  # bytes: more than a generator's state takes


@dataclass(frozen=True, slots=True)
class _Schema:
    """What an operator's schema tells: may it return new storages, does it draw random numbers,
    does it reshape its argument in place?"""

    makes_new: bool
    random: bool
    reshapes: bool


@functools.cache
def _schema_of(func: Any) -> _Schema:
    returns = func._schema.returns
    return _Schema(
        any(value.alias_info is None and "Tensor" in str(value.type) for value in returns),
        torch.Tag.nondeterministic_seeded in func.tags,
        torch.Tag.inplace_view in func.tags,
    )


def key_of(spec: Any) -> Any:
    """What a call's costs depend on, geometries and options, as something hashable."""
    if isinstance(spec, At):
        return spec.geometry
    if isinstance(spec, Scalar):
        return spec.tensor.dtype
    if isinstance(spec, (tuple, list)):
        return tuple(key_of(item) for item in spec)
    if isinstance(spec, dict):
        return tuple((name, key_of(item)) for name, item in spec.items())
    return repr(spec) if isinstance(spec, torch.Generator) else spec


@dataclass(frozen=True, slots=True)
class Session:
    """What the calls of one runtime share.

    Attributes:
        device: whose memory is counted.
        memory, engine: the account of cells, and what runs ops within it.
        profiles: what kinds of calls take, by operator, geometries and options.
        constants: the ordinary tensors that were read so far.
        new_buffer: makes the buffer of a new storage.
        evict_gradients: may what the backward pass makes be evicted?
    """

    device: str
    memory: CellPool
    engine: Engine
    profiles: dict[Hashable, Profile]
    constants: Constants
    new_buffer: Callable[[Cell, torch.device], Buffer]
    evict_gradients: bool


class FirstCall:
    """One call: describes it as an :class:`ExecutedOp`, runs it, wraps what it returns."""

    def __init__(
        self, session: Session, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self.session, self.memory = session, session.memory
        self.schema = _schema_of(func)
        backward = torch._C._current_graph_task_id() != -1
        self.kept = backward and not session.evict_gradients
        self.outer: dict[int, tuple[Tensor, At]] = {}  # tensor arguments by id, and their places
        written = written_by(func, args, kwargs)
        self.changed = {id(tensor) for tensor in written}
        self.op = op = ExecutedOp(
            self.memory, func, mapped(args, self._spec), mapped(kwargs, self._spec)
        )
        op.cells = tuple({at.cell: None for _, at in self.outer.values()})
        op.written = tuple({self.outer[id(tensor)][1].cell: None for tensor in written})
        self.buffers = {
            at.cell: tensor.buffer
            for tensor, at in self.outer.values()
            if isinstance(tensor, Remat)
        }
        self.returned: dict[int, Tensor] = {}  # arguments, by the tensors that the operator sees
        self.storages: dict[int, Buffer | None] = {}  # None: a constant's
        self.position = -1  # among the tensors that the operator returned
        if self.schema.reshapes and self.buffers:
            raise ExecutionError(f"{func} changes a tensor's shape in place; use its other form")

    def _spec(self, argument: Any) -> Any:
        """:class:`At` or :class:`Scalar` in place of a tensor."""
        if not isinstance(argument, Tensor):
            return argument
        if isinstance(argument, Remat):
            at = At(argument.buffer.cell, argument.geometry)
        elif self._is_number(argument):
            return Scalar(argument, argument._version)
        else:
            at = At(self.session.constants.cell(argument), geometry_of(argument))
        self.outer[id(argument)] = argument, at
        return at

    def _is_number(self, tensor: Tensor) -> bool:
        # Mostly Python numbers: such a tensor must stay itself, or it changes other tensors' types.
        return (
            tensor.dim() == 0
            and id(tensor) not in self.changed
            and tensor not in self.session.constants
        )

    def run(self) -> Any:
        """Execute; returns what autograd shall see of the result.

        Raises:
            OutOfBudget: its inputs, outputs and workspace do not fit together.
        """
        engine, op = self.session.engine, self.op
        op.enrol()
        engine.acquire(op.cells)
        try:
            result = self._execute()
        finally:
            engine.release(op.cells)
        if self.memory.live > self.memory.budget:
            engine.make_room(0, op.function)  # it made more than foretold
        return result

    def _execute(self) -> Any:
        op = self.op
        args, kwargs = fill(op.args, Cell.at), fill(op.kwargs, Cell.at)
        for tensor, at in self.outer.values():
            self.returned[id(at.cell.at(at.geometry))] = tensor
            self.storages[at.cell.key] = self.buffers.get(at.cell)
        self._prepare()
        out = self.session.engine.execute(op, args, kwargs)
        result = mapped(out, self._wrap)
        for cell in op.written:
            if cell.op is not None:
                after = Cell(self.memory, cell.bytes, op, cell.cost + op.cost)
                op.becomes.append((cell, weakref.ref(after)))
                self.memory.take_over(cell, after)
                self.buffers[cell].cell = after
        return result

    def _prepare(self) -> None:
        """Make room, and save what the call destroys and a repetition needs."""
        op, device = self.op, self.session.device
        self._foretell()
        lasting = (self.schema.makes_new and not self.kept) or any(
            cell.op is not None for cell in op.written
        )
        saved = [c for c in op.written if c.op is None and (lasting or len(c.users) > 1)]
        states = generators(op, device) if self.schema.random else []
        need = op.profile.output_bytes + op.profile.workspace_bytes + _STATE * len(states)
        self.session.engine.make_room(need + sum(cell.bytes for cell in saved), op.function)
        for cell in saved:
            self._save(cell)
        op.random = [(generator, generator.get_state()) for generator in states]
        if device == "cpu":
            op.random_bytes = sum(state.nbytes for _, state in op.random)
            self.memory.live += op.random_bytes

    def _foretell(self) -> None:
        op, profiles = self.op, self.session.profiles
        key = op.function, key_of(op.args), key_of(op.kwargs)
        if key not in profiles:
            inputs: list[Tensor] = []

            def pretend(cell: Cell, geometry: Any) -> Tensor:
                inputs.append(stand_in(geometry, cell.bytes))
                return inputs[-1]

            args, kwargs = fill(op.args, pretend), fill(op.kwargs, pretend)
            if "device" in kwargs:
                kwargs["device"] = "meta"
            fallback = sum(cell.bytes for cell in op.cells)
            profiles[key] = foretell(lambda: op.function(*args, **kwargs), inputs, fallback)
        op.profile = profiles[key]

    def _save(self, cell: Cell) -> None:
        """What a constant held so far moves to a copy, which ``cell`` keeps."""
        now = Cell(self.memory, cell.bytes, None)
        self.memory.take_over(cell, now)
        self.memory.hold(cell, now.whole().clone())
        if cell in self.buffers:
            self.buffers[cell].cell = now
        else:
            self.session.constants.replace(now)

    def _wrap(self, item: Any) -> Any:
        """What autograd shall see in place of one result; a new storage becomes a cell."""
        if not isinstance(item, Tensor):
            return item
        self.position += 1
        if id(item) in self.returned:
            return self.returned[id(item)]
        if item.device.type != self.session.device:
            return item
        key = storage_key(item)
        if key not in self.storages:
            self.storages[key] = self._new_buffer(item)
        buffer = self.storages[key]
        return item if buffer is None else Remat.wrap(buffer, geometry_of(item))

    def _new_buffer(self, item: Tensor) -> Buffer:
        op = self.op
        size = rounded(item.untyped_storage().nbytes(), self.session.device)
        kept = self.kept or size <= (512 if self.session.device == "cuda" else _SMALL)
        cell = Cell(self.memory, size, None if kept else op, op.cost)
        if not kept:
            op.made.append((self.position, weakref.ref(cell)))
        self.memory.hold(cell, item)
        cell.views[geometry_of(item)] = item
        return self.session.new_buffer(cell, item.device)
