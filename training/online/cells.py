"""What the online runtime keeps account of: storages, how they were made, which one to evict.

A *cell* is one version of one storage: an in-place op ends one version and begins the next. The
cell of a tensor knows the op that made it, and an op its input cells, so that whatever can still
be needed is referred to, and the rest goes away by itself.
"""

from __future__ import annotations

import weakref
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rematbench.base.errors import ConfigError, ExecutionError
from rematbench.streams.eviction import HEURISTICS, Component
from rematbench.tracing.storages import storage_key
from rematbench.training.online.profiles import Form, Profile

# Of DTR's heuristics those that cost next to nothing per cell: no walk of e*.
HEURISTIC_NAMES = ("local", "eqclass", "lru", "largest")
_UNKNOWN = Profile(0, 0)
_INSTANT = 1e-9  # seconds: what was used just now is not infinitely dear


class Cell:
    """One version of one storage.

    Attributes:
        bytes: that it takes while resident.
        data: a tensor in the storage, or None while evicted.
        form: its geometry, also of the one that the op will make again; None: not known.
        views: other tensors in the storage by geometry, made when first asked for.
        op: what makes it again; None: it is never evicted.
        cost: seconds to make it again, earlier versions of the same storage included.
        locks: ops in progress that need it resident.
        doomed: its last tensor went away while it was locked.
        users: ops that read it, by id.
    """

    __slots__ = (
        "__weakref__",
        "bytes",
        "component",
        "cost",
        "data",
        "doomed",
        "form",
        "locks",
        "memory",
        "op",
        "slot",
        "users",
        "views",
    )

    def __init__(
        self,
        memory: CellPool,
        size: int,
        op: ExecutedOp | None,
        cost: float = 0.0,
        form: Form | None = None,
    ) -> None:
        self.memory, self.bytes, self.op, self.cost, self.form = memory, size, op, cost, form
        self.data: Tensor | None = None
        self.views: dict[Form, Tensor] | None = None
        self.locks = 0
        self.slot = -1
        self.doomed = False
        self.component: Component | None = None
        self.users: dict[int, weakref.ref[ExecutedOp]] = {}

    def __del__(self) -> None:
        if self.data is not None:
            self.memory.drop(self)

    @property
    def key(self) -> int:
        """Identity of the storage, which is resident."""
        assert self.data is not None
        return storage_key(self.data)

    def at(self, geometry: Form) -> Tensor:
        """The tensor of this geometry in the storage, which is resident."""
        assert self.data is not None
        if geometry is self.form:
            return self.data
        if self.views is None:
            self.views = {}
        found = self.views.get(geometry)
        if found is None:
            size, stride, offset = geometry.size, geometry.stride, geometry.offset
            if geometry.dtype is self.data.dtype:
                found = self.data.as_strided(size, stride, offset)
            else:
                storage = self.data.untyped_storage()
                found = torch.empty(0, dtype=geometry.dtype, device=self.data.device)
                found.set_(storage, offset, size, stride)
            self.views[geometry] = found
        return found

    def whole(self) -> Tensor:
        """The resident storage as a flat tensor."""
        assert self.data is not None
        flat = torch.empty(0, dtype=self.data.dtype, device=self.data.device)
        length = self.data.untyped_storage().nbytes() // flat.element_size()
        flat.set_(self.data.untyped_storage(), 0, (length,), (1,))
        return flat


@dataclass(slots=True, eq=False)
class At:
    """A tensor argument: a cell, and where in it the tensor lies."""

    cell: Cell
    geometry: Form


@dataclass(slots=True, eq=False)
class Scalar:
    """A tensor argument of one entry that is no cell's, with its version when it was read."""

    tensor: Tensor
    version: int

    def read(self) -> Tensor:
        """The tensor.

        Raises:
            ExecutionError: it has been changed since.
        """
        if self.tensor._version != self.version:
            raise ExecutionError("a scalar that an op had read was changed in place; clone it")
        return self.tensor


class ExecutedOp:
    """One executed call, and how to repeat it.

    Attributes:
        function: the ATen operator.
        args, kwargs: its arguments, with :class:`At` for tensors.
        cells: that it reads, each once.
        written: of those, the ones that it changes in place.
        made: position among the flat outputs, and the new cell, if still there.
        becomes: a written cell, and its next version, if still there.
        random: each generator that it may draw from, and its state before.
        profile: what it takes; ``cost``: seconds, as far as eviction is concerned.
    """

    __slots__ = (
        "__weakref__",
        "args",
        "becomes",
        "cells",
        "cost",
        "function",
        "kwargs",
        "made",
        "memory",
        "profile",
        "random",
        "random_bytes",
        "written",
    )

    def __init__(self, memory: CellPool, function: Any, args: Any, kwargs: Any) -> None:
        self.memory, self.function, self.args, self.kwargs = memory, function, args, kwargs
        self.cells: Sequence[Cell] = ()
        self.written: tuple[Cell, ...] = ()
        self.made: Sequence[tuple[int, weakref.ref[Cell]]] = ()
        self.becomes: Sequence[tuple[Cell, weakref.ref[Cell]]] = ()
        self.random: Sequence[tuple[torch.Generator, Tensor]] = ()
        self.random_bytes = 0
        self.profile = _UNKNOWN
        self.cost = 0.0

    def enrol(self, cells: Sequence[Cell]) -> None:
        """It reads these cells."""
        self.cells = tuple(cells if len(cells) < 2 else dict.fromkeys(cells))
        number, known = id(self), weakref.ref(self)
        for cell in self.cells:
            cell.users[number] = known

    def __del__(self) -> None:
        self.memory.live -= self.random_bytes
        for cell in self.cells:
            cell.users.pop(id(self), None)


class PlainOp(ExecutedOp):
    """One that writes to none of its arguments, draws no random numbers, and has none by name.

    Attributes:
        key: its arguments by their kinds, with geometries in place of tensors: the key of its
            profile, which says what ``args`` of another op does.
        cells: those of its tensors in the order of ``key``, each as often as it is read.
        scalars: its tensors of one entry that are no cell's.
    """

    __slots__ = ("key", "scalars")
    cells: Sequence[Cell]
    written, becomes, random, random_bytes = (), (), (), 0

    def __init__(
        self,
        function: Any,
        key: tuple[Any, ...],
        cells: Sequence[Cell],
        scalars: Sequence[Scalar],
        profile: Profile,
        cost: float,
    ) -> None:
        self.function, self.key, self.scalars = function, key, scalars
        self.profile, self.cost, self.made, self.cells = profile, cost, (), cells
        number = id(self)
        known: weakref.ref[ExecutedOp] = weakref.ref(self)
        for cell in cells:  # from here on, cells that go away ask what it has made
            cell.users[number] = known

    def __del__(self) -> None:
        number = id(self)
        for cell in self.cells:
            cell.users.pop(number, None)


class CellPool:
    """Live bytes, and the pool of cells that may be evicted.

    Scores follow Kirisame et al., "Dynamic Tensor Rematerialization", section 4.1: cost / (size x
    staleness), where ``local`` takes a cell's own cost and ``eqclass`` adds that of the sets of
    evicted cells next to it; ``lru`` evicts the stalest, ``largest`` the largest. The clock is
    the summed cost of what has run.

    Attributes:
        budget: bytes.
        live, peak: bytes now, and the most so far, workspace included.
        clock: seconds of ops run.
    """

    def __init__(self, budget: int, heuristic: str) -> None:
        if heuristic not in HEURISTIC_NAMES:
            known = ", ".join(HEURISTIC_NAMES)
            raise ConfigError(f"heuristic={heuristic}: unknown; use one of {known}")
        self.budget, self.heuristic = budget, HEURISTICS[heuristic]
        self._by_component = self.heuristic.cost == "eqclass"
        self.live = self.peak = 0
        self.clock = 0.0
        self._owners: list[weakref.ref[Cell] | None] = []
        self._free: list[int] = []
        # By slot, in arrays whose single entries are quicker than numpy's. What is shut, such as a
        # slot that nobody has, is infinitely dear besides its score, which is a number.
        self._bytes, self._cost = array("d", [1.0] * 256), array("d", [1.0] * 256)
        self._used, self._shut = array("d", [-1.0] * 256), array("d", [inf] * 256)
        self._columns = self._seen()

    def _seen(self) -> list[np.ndarray[Any, Any]]:
        """Bytes, costs, last uses and shut ones as arrays of numpy's, which share their memory."""
        return [np.frombuffer(a) for a in (self._bytes, self._cost, self._used, self._shut)]

    def hold(self, cell: Cell, data: Tensor) -> None:
        """``cell`` becomes resident in the storage of ``data``, whose geometry is its form."""
        cell.data = data
        self.live += cell.bytes
        if self.live > self.peak:
            self.peak = self.live
        if cell.op is not None or cell.component is not None:
            self._enter(cell)

    def drop(self, cell: Cell) -> None:
        """``cell`` is evicted."""
        cell.data = cell.views = None
        self.live -= cell.bytes
        if cell.slot >= 0:
            self._leave(cell)

    def take_over(self, old: Cell, new: Cell) -> None:
        """The storage of ``old``, which is evicted by that, becomes that of ``new``."""
        new.data, new.form, new.views = old.data, old.form, old.views
        old.data = old.views = None
        if old.slot >= 0:
            self._leave(old)
        self._enter(new)

    def keep(self, cell: Cell) -> None:
        """A resident cell is never evicted from now on, and needs no past."""
        if cell.slot >= 0:
            self._release_slot(cell)
        cell.op = None

    def lock(self, cell: Cell) -> None:
        """Keep a resident cell until it is unlocked as often."""
        cell.locks += 1
        if cell.slot >= 0:
            self._shut[cell.slot] = inf

    def unlock(self, cell: Cell) -> None:
        cell.locks -= 1
        if cell.locks == 0 and cell.slot >= 0:
            self._shut[cell.slot] = 0.0
            self._used[cell.slot] = self.clock
            if cell.doomed:
                self.drop(cell)
        if cell.locks == 0:
            cell.doomed = False

    def used(self, cells: Iterable[Cell], need: int, cost: float) -> None:
        """An op has read these cells, taken ``need`` bytes more than are live, and cost that."""
        if self.live + need > self.peak:
            self.peak = self.live + need
        self.clock = clock = self.clock + cost
        for cell in cells:
            if cell.slot >= 0:
                self._used[cell.slot] = clock

    def bury(self, cell: Cell) -> None:
        """No tensor is left in ``cell``: free it now, keep how it was made."""
        if cell.data is not None and cell.op is not None:
            if cell.locks:
                cell.doomed = True
                return
            if not cell.users:  # nor will anything be made from it again: it is no neighbour
                self.keep(cell)
            self.drop(cell)

    def choose(self) -> Cell | None:
        """The cell to evict next, or None when every resident cell is locked or kept."""
        size, cost, used, shut = self._columns
        now = self.clock + _INSTANT
        score = self.heuristic.score(cost, size, used, now - used) + shut
        slot = int(score.argmin())
        if self._shut[slot]:
            return None
        while self._by_component and self._refresh(slot):
            last = self._used[slot]
            score[slot] = self.heuristic.score(
                self._cost[slot], self._bytes[slot], last, now - last
            )
            slot = int(score.argmin())
        return self._owner(slot)

    def _refresh(self, slot: int) -> bool:
        """Bring a cell's cost up to date with the evicted cells around it; did it rise?

        They join ever larger sets, so that costs mostly rise, and only what looks cheapest is
        looked at again; beside a cell that comes back, what cells cost alone is noted.
        """
        owner, known = self._owners[slot], self._cost[slot]
        cell = None if owner is None else owner()
        assert cell is not None
        cost = cell.cost
        for root in _components_beside(cell):
            cost += root.cost
        if cost != known:
            self._cost[slot] = cost
        return cost > known * 1.0001

    def _owner(self, slot: int) -> Cell | None:
        known = self._owners[slot]
        return None if known is None else known()

    def _enter(self, cell: Cell) -> None:
        if cell.component is not None:
            cell.component.root().cost -= cell.cost
            cell.component = None
            self._fall(cell)
        if cell.op is None:
            return
        slot = self._free.pop() if self._free else len(self._owners)
        if slot == len(self._owners):
            self._owners.append(None)
            if slot == len(self._shut):
                self._bytes, self._cost = self._bytes * 2, self._cost * 2
                self._used, self._shut = self._used * 2, self._shut + array("d", [inf] * slot)
                self._columns = self._seen()
        cell.slot = slot
        self._owners[slot] = weakref.ref(cell)
        self._bytes[slot] = cell.bytes
        self._cost[slot] = cell.cost  # which rises when looked at
        self._used[slot] = self.clock
        self._shut[slot] = inf if cell.locks else 0.0

    def _fall(self, cell: Cell) -> None:
        """``cell`` has come back: the resident ones beside it cost no more than they do alone."""
        for other in _beside(cell):
            if other.slot >= 0:
                self._cost[other.slot] = other.cost

    def _leave(self, cell: Cell) -> None:
        self._release_slot(cell)
        if self._by_component:
            own = cell.component = Component(cell.cost)
            for root in _components_beside(cell) - {own}:
                own.absorb(root)

    def _release_slot(self, cell: Cell) -> None:
        self._shut[cell.slot] = inf
        self._owners[cell.slot] = None
        self._free.append(cell.slot)
        cell.slot = -1


def _beside(cell: Cell) -> list[Cell]:
    """The cells that ``cell`` was made from and those that were made from it."""
    found = [] if cell.op is None else [*cell.op.cells]
    for known in tuple(cell.users.values()):
        op = known()
        if op is None:
            continue
        for _, made in (*op.made, *op.becomes) if op.becomes else op.made:
            if (after := made()) is not None:
                found.append(after)
    return found


def _components_beside(cell: Cell) -> set[Component]:
    """Those of the evicted ones of :func:`_beside`."""
    return {other.component.root() for other in _beside(cell) if other.component is not None}
