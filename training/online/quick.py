"""Calls like one that ran before: a short way through the runtime for what most of a step is.

It makes the same account, and remembers the same of each op, as :class:`FirstCall`, which is asked
to do whatever is not plain: an op that writes, draws random numbers or returns anything but one
new tensor, the first call of its kind, and one whose inputs are evicted.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from rematbench.tracing.nested import tensors_in
from rematbench.training.online.calls import Schema, Session, kept_size, ordinary_argument
from rematbench.training.online.cells import At, Cell, ExecutedOp, PlainOp, Scalar
from rematbench.training.online.engine import PLAIN
from rematbench.training.online.profiles import Profile
from rematbench.training.online.tensor import Remat

_in_backward = torch._C._current_graph_task_id


class QuickCalls:
    """Runs the calls of one runtime that are like earlier ones."""

    __slots__ = (
        "_device",
        "_evicted",
        "_keeps",
        "_memory",
        "_new_buffer",
        "_profiles",
        "_session",
        "_small",
    )

    def __init__(self, session: Session) -> None:
        self._session, self._memory = session, session.memory
        self._profiles, self._new_buffer = session.profiles, session.new_buffer
        self._keeps = not session.evict_gradients
        self._small = kept_size(session.device)
        self._device = torch.device("cpu") if session.device == "cpu" else None
        self._evicted = False  # is that why the arguments could not be read?

    def run(self, func: Any, schema: Schema, args: Sequence[Any]) -> Remat | None:
        """What autograd shall see of the result; None: nothing has been done.

        Args:
            func, schema: an operator that does no more than return one new tensor.

        Raises:
            OutOfBudget: inputs, outputs and workspace do not fit together.
        """
        parts: list[Any] = [schema, tuple, len(args)]
        cells: list[Cell] = []
        given: list[Any] = []
        scalars: list[Scalar] = []
        if not self._read(args, parts, cells, given, scalars):
            return self._run_again(func, schema, args) if self._evicted else None
        key = tuple(parts)
        profile = self._profiles.get(key)
        if profile is None or profile.geometry is None:
            return None
        memory = self._memory
        need = profile.output_bytes + profile.workspace_bytes
        if memory.live + need > memory.budget:
            self._make_room(cells, need, func)
        began = time.perf_counter()
        out = func(*given)
        seconds = time.perf_counter() - began
        cost = self._session.engine.ran(profile, cells, seconds)
        past = None
        if profile.size > self._small and not (self._keeps and _in_backward() != -1):
            past = PlainOp(func, key, cells, scalars, profile, cost)
        return self._wrapped(out, past, profile, cost)

    def _run_again(self, func: Any, schema: Schema, args: Sequence[Any]) -> Remat | None:
        """With the evicted ones of its inputs brought back. What runs next locks them."""
        self._evicted = False
        cells = [tensor.buffer.cell for tensor in tensors_in(args) if isinstance(tensor, Remat)]
        self._session.engine.acquire(cells)
        self._session.engine.release(cells)
        return self.run(func, schema, args)

    def _read(
        self,
        args: Sequence[Any],
        key: list[Any],
        cells: list[Cell],
        given: list[Any],
        scalars: list[Scalar],
    ) -> bool:
        """Sort the arguments: key and cells, as the operator takes them, and scalars.

        Returns:
            Are all of them there, and of kinds that are known here?
        """
        for item in args:
            kind = item.__class__
            if kind is Remat:
                cell, geometry = item.buffer.cell, item.geometry
                tensor = cell.data
                if tensor is None:
                    self._evicted = True
                    return False
                if geometry is not cell.form:
                    tensor = cell.at(geometry)
                key.append(geometry)
                cells.append(cell)
                given.append(tensor)
            elif kind in PLAIN:
                key += kind, item
                given.append(item)
            elif kind is list:
                key += kind, len(item)
                inner: list[Any] = []
                given.append(inner)
                if not self._read(item, key, cells, inner, scalars):
                    return False
            elif isinstance(item, Tensor):
                at, part = ordinary_argument(self._session.constants, item)
                key.append(part)
                given.append(item)
                if isinstance(at, At):
                    cells.append(at.cell)
                else:
                    scalars.append(at)
            else:
                return False
        return True

    def _make_room(self, cells: Sequence[Cell], need: int, func: Any) -> None:
        engine = self._session.engine
        engine.acquire(cells)  # they are there: nothing runs
        try:
            engine.make_room(need, func)
        finally:
            engine.release(cells)

    def _wrapped(
        self, out: Tensor, past: ExecutedOp | None, profile: Profile, cost: float
    ) -> Remat:
        geometry = profile.geometry
        assert geometry is not None
        cell = Cell(self._memory, profile.size, past, cost, geometry)
        if past is not None:
            past.made = ((0, weakref.ref(cell)),)
        self._memory.hold(cell, out)
        return Remat.wrap(self._new_buffer(cell, self._device or out.device), geometry)
