"""The first execution of an operator under the online runtime."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rematbench.base.errors import ExecutionError
from rematbench.tracing.nested import mapped
from rematbench.tracing.storages import (
    may_write,
    storage_key,
    written_by,
)
from rematbench.training.online.cells import At, Cell, CellPool, ExecutedOp, Scalar
from rematbench.training.online.constants import Constants
from rematbench.training.online.engine import PLAIN, Engine, fill, generators
from rematbench.training.online.profiles import Form, Profile, foretell, form_of, rounded, stand_in
from rematbench.training.online.tensor import Buffer, Remat

_DATA_DEPENDENT = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_STATE = 2**13  # bytes: more than a generator's state takes
_NOTHING: Set[int] = frozenset()
aten = torch.ops.aten


def kept_size(device: str) -> int:
    """Bytes: a storage this small is never evicted, which ends the past of a loss."""
    return 64 if device == "cpu" else 512


@dataclass(frozen=True, slots=True, eq=False)
class Schema:
    """What an operator's schema tells: may it return new storages, is one new tensor all that it
    returns, does it draw random numbers, does it write to an argument, does it reshape one in
    place? ``plain``: it returns one new tensor, whose geometry its arguments tell, and does no
    more; ``view``: it returns views of its first argument; ``same``: this argument itself."""

    makes_new: bool
    makes_one: bool
    random: bool
    writes: bool
    reshapes: bool
    plain: bool
    view: bool
    same: bool


_SAME = {aten.detach.default, aten.alias.default, aten.lift_fresh.default}


_schemas: dict[int, tuple[Schema, Any]] = {}  # by id, with the operator, whose hash is Python's


def schema_of(func: Any) -> Schema:
    """What an operator's schema tells."""
    known = _schemas.get(id(func))
    if known is None:
        known = _schemas[id(func)] = _schema_of(func), func
    return known[0]


def _schema_of(func: Any) -> Schema:
    returns = func._schema.returns
    new = [value.alias_info is None and "Tensor" in str(value.type) for value in returns]
    one = new == [True] and str(returns[0].type) == "Tensor" and not may_write(func)
    random = torch.Tag.nondeterministic_seeded in func.tags
    return Schema(
        makes_new=any(new),
        makes_one=one,
        random=random,
        writes=may_write(func),
        reshapes=torch.Tag.inplace_view in func.tags,
        plain=one and not random and _DATA_DEPENDENT.isdisjoint(func.tags),
        view=bool(func.is_view),
        same=func in _SAME,
    )


def ordinary_argument(constants: Constants, tensor: Tensor) -> tuple[At | Scalar, Any]:
    """What stands for a tensor that is no :class:`Remat`, and its part of the key."""
    # Mostly Python numbers: such a tensor must stay itself, or it changes other tensors' types.
    if tensor.dim() == 0 and tensor not in constants:
        return Scalar(tensor, tensor._version), tensor.dtype
    at = At(constants.cell(tensor), form_of(tensor))
    return at, at.geometry


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

    __slots__ = (
        *("changed", "kept", "key", "memory", "op", "outer", "position", "returned", "schema"),
        *("session", "storages"),
    )
    returned: dict[int, Tensor]
    storages: dict[int, Buffer | None]
    position: int

    def __init__(
        self, session: Session, func: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> None:
        self.session, self.memory = session, session.memory
        self.schema = schema = schema_of(func)
        self.kept = not session.evict_gradients and torch._C._current_graph_task_id() != -1
        self.changed = set(map(id, written_by(func, args, kwargs))) if schema.writes else _NOTHING
        self.outer: list[tuple[Tensor, At]] = []  # tensor arguments, and their places
        self.key: list[Any] = [schema]  # what its costs depend on: geometries and options
        self.op = op = ExecutedOp(
            self.memory, func, self._spec(args), self._spec(kwargs) if kwargs else kwargs
        )
        if schema.writes:
            changed = [at.cell for tensor, at in self.outer if id(tensor) in self.changed]
            op.written = tuple(dict.fromkeys(changed))
        if schema.reshapes and any(isinstance(tensor, Remat) for tensor, _ in self.outer):
            raise ExecutionError(f"{func} changes a tensor's shape in place; use its other form")

    def _spec(self, given: Any) -> Any:
        """:class:`At` or :class:`Scalar` in place of tensors; the key grows by the rest."""
        kind = given.__class__
        if kind is Remat:
            at = At(given.buffer.cell, given.geometry)
            self.outer.append((given, at))
            self.key.append(at.geometry)
            return at
        if kind in PLAIN:
            self.key += kind, given
        elif kind is list or kind is tuple:
            self.key += kind, len(given)
            return kind([self._spec(item) for item in given])
        elif kind is dict:
            self.key += given
            return {name: self._spec(item) for name, item in given.items()}
        elif isinstance(given, Tensor):
            return self._ordinary(given)
        else:
            self.key.append(repr(given) if isinstance(given, torch.Generator) else given)
        return given

    def _ordinary(self, tensor: Tensor) -> At | Scalar:
        """Of a tensor that is no :class:`Remat`."""
        constants = self.session.constants
        if id(tensor) in self.changed:
            constants.cell(tensor)  # it is none of Python's numbers
        at, part = ordinary_argument(constants, tensor)
        self.key.append(part)
        if isinstance(at, At):
            self.outer.append((tensor, at))
        return at

    def run(self) -> Any:
        """Execute; returns what autograd shall see of the result.

        Raises:
            OutOfBudget: its inputs, outputs and workspace do not fit together.
        """
        engine, op = self.session.engine, self.op
        op.enrol([at.cell for _, at in self.outer])
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
        if not self.schema.makes_one:
            self._remember_arguments()
        self._prepare()
        out = self.session.engine.execute(op, args, kwargs)
        if self.schema.makes_one:
            if isinstance(out, Tensor) and out.device.type == self.session.device:
                key, geometry = storage_key(out), form_of(out)
                if key not in [at.cell.key for _, at in self.outer]:
                    return Remat.wrap(self._only_buffer(out, geometry), geometry)
            self._remember_arguments()
        result = self._wrap(out) if isinstance(out, Tensor) else mapped(out, self._wrap)
        if op.written:
            self._pass_on()
        return result

    def _only_buffer(self, out: Tensor, geometry: Form) -> Buffer:
        """Of the only result; calls like this one are quicker from here on."""
        buffer, profile = self._new_buffer(out, geometry, 0), self.op.profile
        if self.schema.plain and profile.measured:
            profile.geometry, profile.size = geometry, buffer.cell.bytes
        return buffer

    def _remember_arguments(self) -> None:
        """What tells new storages of its results from those of its arguments."""
        self.returned = {}  # by what the operator sees, arguments that it may return
        self.storages = {}  # None: a constant's
        self.position = -1  # among the tensors that the operator returned
        for tensor, at in self.outer:
            self.storages[at.cell.key] = tensor.buffer if tensor.__class__ is Remat else None
            if self.schema.writes:
                self.returned[id(at.cell.at(at.geometry))] = tensor

    def _buffers(self) -> dict[Cell, Buffer]:
        """Those of its arguments' cells that have one."""
        given = self.outer
        return {at.cell: tensor.buffer for tensor, at in given if isinstance(tensor, Remat)}

    def _pass_on(self) -> None:
        """What was written becomes the next version of its storage."""
        op, buffers = self.op, self._buffers()
        for cell in op.written:
            if cell.op is not None:
                after = Cell(self.memory, cell.bytes, op, cell.cost + op.cost)
                op.becomes = [*op.becomes, (cell, weakref.ref(after))]
                self.memory.take_over(cell, after)
                buffers[cell].move(after)

    def _prepare(self) -> None:
        """Make room, and save what the call destroys and a repetition needs."""
        op, engine = self.op, self.session.engine
        op.profile = profile = self._foretold()
        states = generators(op, self.session.device) if self.schema.random else []
        saved = self._destroyed() if op.written else []
        need = profile.output_bytes + profile.workspace_bytes + _STATE * len(states)
        engine.make_room(need + sum([cell.bytes for cell in saved]), op.function)
        for cell in saved:
            self._save(cell)
        if states:
            op.random = [(generator, generator.get_state()) for generator in states]
            if self.session.device == "cpu":
                op.random_bytes = sum(state.nbytes for _, state in op.random)
                self.memory.live += op.random_bytes

    def _destroyed(self) -> list[Cell]:
        """Constants that it writes to, and that a repetition reads."""
        written = self.op.written
        lasting = (self.schema.makes_new and not self.kept) or any(
            cell.op is not None for cell in written
        )
        return [c for c in written if c.op is None and (lasting or len(c.users) > 1)]

    def _foretold(self) -> Profile:
        op, profiles, key = self.op, self.session.profiles, tuple(self.key)
        known = profiles.get(key)
        if known is not None:
            return known
        inputs: list[Tensor] = []

        def pretend(cell: Cell, geometry: Any) -> Tensor:
            inputs.append(stand_in(geometry, cell.bytes))
            return inputs[-1]

        args, kwargs = fill(op.args, pretend), fill(op.kwargs, pretend)
        if "device" in kwargs:
            kwargs["device"] = "meta"
        fallback = sum(cell.bytes for cell in op.cells)
        profiles[key] = foretell(lambda: op.function(*args, **kwargs), inputs, fallback)
        return profiles[key]

    def _save(self, cell: Cell) -> None:
        """What a constant held so far moves to a copy, which ``cell`` keeps."""
        now, buffers = Cell(self.memory, cell.bytes, None), self._buffers()
        self.memory.take_over(cell, now)
        cell.form = None
        self.memory.hold(cell, now.whole().clone())
        if cell in buffers:
            buffers[cell].move(now)
        else:
            self.session.constants.replace(now)

    def _wrap(self, item: Any) -> Any:
        """What autograd shall see in place of one result; a new storage becomes a cell."""
        if not isinstance(item, Tensor):
            return item
        self.position += 1
        given = self.returned.get(id(item))
        if given is not None:
            return given
        if item.device.type != self.session.device:
            return item
        key, geometry = storage_key(item), form_of(item)
        if key not in self.storages:
            self.storages[key] = self._new_buffer(item, geometry, self.position)
        buffer = self.storages[key]
        return item if buffer is None else Remat.wrap(buffer, geometry)

    def _new_buffer(self, item: Tensor, geometry: Form, position: int) -> Buffer:
        op, session = self.op, self.session
        size = rounded(item.untyped_storage().nbytes(), session.device)
        kept = self.kept or size <= kept_size(session.device)
        cell = Cell(self.memory, size, None if kept else op, op.cost, geometry)
        if not kept:
            op.made = [*op.made, (position, weakref.ref(cell))]
        self.memory.hold(cell, item)
        return session.new_buffer(cell, item.device)
