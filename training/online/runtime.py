"""Dynamic tensor rematerialization over stock PyTorch: training under a memory budget, online.

After Kirisame et al., "Dynamic Tensor Rematerialization" (ICLR 2021). Below autograd, every
operator under a :class:`DtrRuntime` returns a :class:`Remat`, a tensor without memory of its own
that stands for a place in a storage. Autograd saves these like any tensor. A storage is evicted
when memory is short, and its op runs again when a tensor in it is next read. Views cost nothing:
they are geometry. An in-place op passes the storage on to its next version, and the previous one
counts as evicted, so that nothing is ever recomputed from a changed input.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from rematbench.base.errors import ConfigError, ExecutionError
from rematbench.costmodel.device import require
from rematbench.tracing.nested import tensors_in
from rematbench.training.online.calls import FirstCall, Schema, Session, schema_of
from rematbench.training.online.cells import Cell, CellPool
from rematbench.training.online.constants import Constants
from rematbench.training.online.engine import Engine, OutOfBudget, below_autograd
from rematbench.training.online.profiles import SHARED, Profiles, form_of, stand_in
from rematbench.training.online.quick import QuickCalls
from rematbench.training.online.tensor import Buffer, Remat, ordinary

__all__ = ["DtrRuntime", "OutOfBudget", "Remat", "Report"]

_COLLECT = 50_000  # objects between two searches for cyclic garbage; 700 by default


@dataclass(frozen=True, slots=True)
class Report:
    """What a runtime did so far.

    Attributes:
        budget_bytes: allowed; ``peak_bytes``: used at most, by the runtime's own account.
        ops: first executions; ``rematerializations``: repeated ones; ``evictions``.
        op_seconds, rematerialization_seconds: inside operators, by kind of execution.
        bookkeeping_seconds: in the runtime itself.
    """

    budget_bytes: int
    peak_bytes: int
    ops: int
    rematerializations: int
    evictions: int
    op_seconds: float
    rematerialization_seconds: float
    bookkeeping_seconds: float


class DtrRuntime(TorchDispatchMode):
    """Trains whatever runs inside it within ``budget_bytes``::

        with DtrRuntime(budget_bytes=2 * 2**30, residents=model.parameters()) as runtime:
            loss(model, batch).backward()
        print(runtime.report())

    Inside, run forward and backward; the optimizer comes after. Gradients of leaf tensors end up
    as ordinary tensors in ``.grad``, bit for bit those of eager training: random ops are
    repeated from the same state of the generator, in-place ops from the same inputs. What is
    still alive at the end is brought back and stays.

    The account holds every storage that an op of the step reads or makes, and the workspace of
    each op. Where the first call of its kind needs more workspace than output bytes, it can
    exceed the budget that once; later calls know (:mod:`rematbench.training.online.profiles`).

    Args:
        budget_bytes: the allowed peak, constants included.
        heuristic: ``eqclass``, ``local``, ``lru`` or ``largest``.
        residents: tensors that take memory from the start (parameters, buffers, the batch).
            Others are counted when an op first reads them.
        device: ``cpu`` or ``cuda``: whose memory.
        costs: of an op, for the heuristic: its ``measured`` seconds, or ``modelled`` ones (memory
            traffic), with which every run evicts the same.
        evict_gradients: evict what the backward pass makes, too. To repeat an op of it takes
            much of the forward pass, whose saved tensors autograd has let go by then.
        thrash_limit: give up when so many ops were repeated for each one that ran.
        profiles: what is known of calls from earlier runs, and where this one adds to it; a new
            :class:`Profiles` knows nothing.

    Raises:
        ConfigError: an unknown heuristic, device or costs, or a budget that is no positive integer.
        OutOfBudget: from any op inside that cannot be made to fit.
        ExecutionError: an op cannot be tracked (it changes a tensor's shape in place), or the
            step thrashes.
    """

    def __init__(
        self,
        budget_bytes: int,
        *,
        heuristic: str = "eqclass",
        residents: Iterable[Tensor] = (),
        device: str = "cpu",
        costs: str = "measured",
        evict_gradients: bool = False,
        thrash_limit: float = 50.0,
        profiles: Profiles = SHARED,
    ) -> None:
        super().__init__()
        require(device)
        if type(budget_bytes) is not int or budget_bytes < 1:
            raise ConfigError(f"budget_bytes={budget_bytes}: give a whole number of bytes above 0")
        self.device = device
        self.memory = CellPool(budget_bytes, heuristic)
        self.engine = Engine(self.memory, device, costs, thrash_limit, self._sweep)
        self.constants = Constants(self.memory, device, self._settle_gradient)
        self._session = Session(
            device=device,
            memory=self.memory,
            engine=self.engine,
            profiles=profiles.of(device),
            constants=self.constants,
            new_buffer=partial(Buffer, self),
            evict_gradients=evict_gradients,
        )
        self._quick = QuickCalls(self._session)
        self._residents = list(residents)
        self._views: dict[Any, Any] = {}
        self.cells: dict[int, Cell] = {}
        self._active = False
        self._below = below_autograd()  # no operator is dispatched inside of another
        self._seconds = 0.0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # which torch._dynamo would look at with each operator

    def __enter__(self) -> DtrRuntime:
        for tensor in self._residents:
            self.constants.cell(tensor)
        self.engine.make_room(0, "what is resident")
        self._active = True
        # The account's many small objects are in no cycles, and would be looked through in vain.
        self._collection = gc.get_threshold()
        first = self._collection[0]  # 0: the collector is off
        gc.set_threshold(first and max(_COLLECT, first), *self._collection[1:])
        super().__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        gc.set_threshold(*self._collection)
        try:
            if kind is None:
                self._settle()
        finally:
            self._active = False
            self.constants.clear()

    def report(self) -> Report:
        """What happened so far."""
        engine = self.engine
        inside = engine.seconds + engine.repeat_seconds
        return Report(
            budget_bytes=self.memory.budget,
            peak_bytes=self.memory.peak,
            ops=engine.runs,
            rematerializations=engine.repeats,
            evictions=engine.evictions,
            op_seconds=engine.seconds,
            rematerialization_seconds=engine.repeat_seconds,
            bookkeeping_seconds=max(0.0, self._seconds - inside),
        )

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        return self.dispatch(func, args, kwargs)

    def dispatch(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any] | None) -> Any:
        """Run one operator below autograd; returns what autograd shall see of its result."""
        began = time.perf_counter()
        schema = schema_of(func)
        try:
            if schema.same and args[0].__class__ is Remat:
                return Remat.wrap(args[0].buffer, args[0].geometry)
            if schema.view and self._active and args[0].__class__ is Remat:
                return self._view(func, schema, args, kwargs or {})
            with self._below:
                return self._run(func, args, kwargs or {}, schema)
        finally:
            self._seconds += time.perf_counter() - began

    def _run(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any], schema: Schema) -> Any:
        if not self._active:
            return ordinary(func, args, kwargs)
        if schema.plain and not kwargs and not self.constants.due:
            found = self._quick.run(func, schema, args)
            if found is not None:
                return found
        if schema.same or schema.view:  # of an ordinary tensor
            return func(*args, **kwargs)
        if self.constants.due:
            self._sweep()
            self.constants.rest()
        return FirstCall(self._session, func, args, kwargs).run()

    def _view(self, func: Any, schema: Schema, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """A view needs no data: its geometry follows from its argument's."""
        tensor: Remat = args[0]
        key: tuple[Any, ...] = schema, tensor.geometry
        for option in args[1:] if not kwargs else (*args[1:], *kwargs, *kwargs.values()):
            key += (tuple(option) if option.__class__ is list else option,)
        buffer, found = tensor.buffer, self._views.get(key)
        if found is None:
            with below_autograd():
                out = func(stand_in(tensor.geometry, buffer.cell.bytes), *args[1:], **kwargs)
            if any(view.is_conj() or view.is_neg() for view in tensors_in(out)):
                raise ExecutionError(f"{func}: lazily conjugated tensors cannot be tracked")
            single = isinstance(out, Tensor)
            found = form_of(out) if single else [form_of(view) for view in out]
            self._views[key] = found
        if isinstance(found, list):
            return [Remat.wrap(buffer, geometry) for geometry in found]
        return Remat.wrap(buffer, found)

    def _sweep(self) -> bool:
        """Let go of constants that no op would need again; True when that freed memory."""
        return self.constants.sweep(set(self.cells.values()))

    def _settle_gradient(self, leaf: Tensor) -> None:
        """A finished gradient becomes an ordinary tensor, and its past can go."""
        gradient = leaf.grad
        if not isinstance(gradient, Remat):
            return
        began = time.perf_counter()
        with below_autograd():
            cell = gradient.buffer.cell
            self.engine.acquire((cell,))
            self.memory.keep(cell)
            self.engine.release((cell,))
            found = cell.at(gradient.geometry)
            self.constants.adopt(cell, found)
            leaf.grad = found
        self._seconds += time.perf_counter() - began

    def _settle(self) -> None:
        """Bring back what is still alive, for good."""
        with below_autograd():
            for cell in list(self.cells.values()):
                self.engine.acquire((cell,))
                self.memory.keep(cell)
                self.engine.release((cell,))
