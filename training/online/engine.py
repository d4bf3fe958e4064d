"""The online runtime's engine: makes room, brings evicted cells back, runs ops again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from operator import or_
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from rematbench.base.errors import ConfigError, ExecutionError
from rematbench.tracing.devices import Accelerator, accelerator_of
from rematbench.tracing.nested import tensors_in
from rematbench.training.online.cells import At, Cell, CellPool, ExecutedOp, PlainOp, Scalar
from rematbench.training.online.profiles import Form, Profile, run

COSTS = ("measured", "modelled")
_FEW_RUNS = 100  # thrashing is not judged by fewer
_REPEATING = 3e-5  # seconds: what it takes to repeat an op, besides its own


class OutOfBudget(ExecutionError):
    """The step does not fit into the budget, whatever is evicted.

    Attributes:
        budget_bytes: the budget.
        needed_bytes: what the failing op would have taken, everything evictable evicted.
    """

    def __init__(self, message: str, budget_bytes: int, needed_bytes: int) -> None:
        super().__init__(message)
        self.budget_bytes, self.needed_bytes = budget_bytes, needed_bytes


_ABOVE = reduce(
    or_,
    (
        torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
        for name in (
            *("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor"),
            *("Python", "PythonTLSSnapshot", "PreDispatch"),
        )
    ),
)
below_autograd = partial(torch._C._ExcludeDispatchKeyGuard, _ABOVE)
"""``with below_autograd():`` operators inside see neither autograd nor any dispatch mode."""


PLAIN = frozenset({int, float, bool, str, type(None), torch.dtype})
"""Of arguments that are what they are, wherever they stand."""
_NO_NAMES: Mapping[str, Any] = MappingProxyType({})


def fill(spec: Any, tensor_at: Callable[[Cell, Any], Tensor]) -> Any:
    """Arguments with their tensors in place of :class:`At` and :class:`Scalar`.

    Raises:
        ExecutionError: a scalar has been changed since.
    """
    kind = spec.__class__
    if kind is At:
        return tensor_at(spec.cell, spec.geometry)
    if kind is list or kind is tuple:
        filled = [item if item.__class__ in PLAIN else fill(item, tensor_at) for item in spec]
        return filled if kind is list else tuple(filled)
    if kind is dict:
        return {name: fill(item, tensor_at) for name, item in spec.items()}
    return spec.read() if kind is Scalar else spec


def _fill_again(
    count: int,
    parts: Iterator[Any],
    cells: Iterator[Cell],
    scalars: Iterator[Scalar],
    tensor_at: Callable[[Cell, Any], Tensor],
) -> list[Any]:
    """The next ``count`` arguments of a :class:`PlainOp`, from its key, cells and scalars."""
    filled: list[Any] = []
    for _ in range(count):
        part = next(parts)
        if part.__class__ is Form:
            filled.append(tensor_at(next(cells), part))
        elif part is list:
            filled.append(_fill_again(next(parts), parts, cells, scalars, tensor_at))
        elif part in PLAIN:
            filled.append(next(parts))
        else:  # a scalar's type
            filled.append(next(scalars).read())
    return filled


def _arguments(op: ExecutedOp, tensor_at: Callable[[Cell, Any], Tensor]) -> tuple[Any, Any]:
    """Those of an op that runs again."""
    if op.__class__ is not PlainOp:
        return fill(op.args, tensor_at), op.kwargs and fill(op.kwargs, tensor_at)
    _, _, count, *parts = op.key
    again = _fill_again(count, iter(parts), iter(op.cells), iter(op.scalars), tensor_at)
    return again, _NO_NAMES


class _Frame:
    """An op that waits for its cells; ``op`` is None for the request itself."""

    __slots__ = ("cells", "locked", "op")

    def __init__(self, op: ExecutedOp | None, cells: Sequence[Cell]) -> None:
        self.op, self.cells, self.locked = op, cells, 0

    def advance(self, memory: CellPool) -> Cell | None:
        """Lock resident cells up to the first evicted one, which is returned."""
        while self.locked < len(self.cells):
            cell = self.cells[self.locked]
            if cell.data is None:
                return cell
            memory.lock(cell)
            self.locked += 1
        return None

    def release(self, memory: CellPool) -> None:
        for cell in self.cells[: self.locked]:
            memory.unlock(cell)


class Engine:
    """Runs ops within the budget.

    Attributes:
        runs, repeats, evictions: first executions, repeated ones, and evictions so far.
        seconds, repeat_seconds: inside operators: first executions, repeated ones.
        sweep: called when nothing can be evicted; True when that freed something.
    """

    def __init__(
        self,
        memory: CellPool,
        device: str,
        costs: str,
        thrash_limit: float,
        sweep: Callable[[], bool],
    ) -> None:
        if costs not in COSTS:
            raise ConfigError(f"costs={costs}: unknown; use one of {', '.join(COSTS)}")
        self.memory, self.device, self.sweep = memory, device, sweep
        self._measures = costs == "measured"
        self.thrash_limit = thrash_limit
        self.runs = self.evictions = self.repeats = 0
        self.seconds = self.repeat_seconds = 0.0

    def make_room(self, need: int, what: Any) -> None:
        """Evict until ``need`` more bytes fit.

        Raises:
            OutOfBudget: they never will.
        """
        memory = self.memory
        while memory.live + need > memory.budget:
            victim = memory.choose()
            if victim is not None:
                memory.drop(victim)
                self.evictions += 1
            elif not self.sweep():
                total = memory.live + need
                raise OutOfBudget(
                    f"out of memory: {what} needs {need} bytes beside {memory.live} that cannot be "
                    f"evicted now, {total} in all, but the budget is {memory.budget}; give at "
                    "least that, or a smaller batch",
                    memory.budget,
                    total,
                )

    def acquire(self, cells: Sequence[Cell]) -> None:
        """Make every cell resident and lock it, running ops again where needed.

        Ancestors wait on a stack of their own, so that chains may be of any length.

        Raises:
            OutOfBudget: they do not fit together.
        """
        for cell in cells:
            if cell.data is None:
                break
        else:  # mostly
            for cell in cells:
                self.memory.lock(cell)
            return
        frames = [_Frame(None, cells)]
        try:
            while True:
                frame = frames[-1]
                missing = frame.advance(self.memory)
                if missing is not None:
                    if missing.op is None:
                        raise ExecutionError(
                            "a tensor of an aborted DtrRuntime was evicted; it cannot be read"
                        )
                    frames.append(_Frame(missing.op, missing.op.cells))
                elif frame.op is None:
                    return
                else:
                    self._repeat(frame.op)
                    frames.pop().release(self.memory)
        except BaseException:
            for frame in reversed(frames):
                frame.release(self.memory)
            raise

    def release(self, cells: Sequence[Cell]) -> None:
        """Unlock what :meth:`acquire` locked."""
        for cell in cells:
            self.memory.unlock(cell)

    def execute(self, op: ExecutedOp, args: Any, kwargs: Any) -> Any:
        """Run an op for the first time, room being made."""
        profile = op.profile
        start = self.memory.live
        out, seconds = run(op.function, args, kwargs, profile, self.device)
        op.cost = self._cost(op.cells, profile)
        self._account(start, profile, op.cost)
        self.runs += 1
        self.seconds += seconds
        return out

    def ran(self, profile: Profile, cells: Sequence[Cell], seconds: float) -> float:
        """A call has run for the first time, by itself; returns its cost.

        Args:
            cells: that it has read.
        """
        memory = self.memory
        if seconds < profile.seconds and self.device == "cpu":  # elsewhere it is that to launch
            profile.seconds = seconds
        cost = _REPEATING + profile.seconds if self._measures else self._cost(cells, profile)
        memory.used(cells, profile.output_bytes + profile.workspace_bytes, cost)
        self.runs += 1
        self.seconds += seconds
        return cost

    def _cost(self, cells: Sequence[Cell], profile: Profile) -> float:
        """Of a call, as far as eviction is concerned: seconds."""
        if self._measures:
            return _REPEATING + profile.seconds
        # As of memory traffic at 10 GB/s and a launch: the same in every run.
        traffic = profile.output_bytes
        for cell in cells if len(cells) < 2 else dict.fromkeys(cells):
            traffic += cell.bytes
        return 5e-6 + traffic / 1e10

    def _account(self, start: int, profile: Profile, cost: float) -> None:
        memory = self.memory
        taken = start + profile.output_bytes + profile.workspace_bytes
        if taken > memory.peak:
            memory.peak = taken
        memory.clock += cost

    def _repeat(self, op: ExecutedOp) -> None:
        """Run an op again, its cells being resident and locked."""
        copies = self._make_room_again(op)
        start = self.memory.live

        def copied(cell: Cell, geometry: Any) -> Tensor:
            return copies.get(cell, cell).at(geometry)

        at = copied if copies else Cell.at
        args, kwargs = _arguments(op, at)
        if op.random:
            with _replayed(op):
                out, seconds = run(op.function, args, kwargs, op.profile, self.device)
        else:
            out, seconds = run(op.function, args, kwargs, op.profile, self.device)
        self._account(start, op.profile, op.cost)
        self.repeats += 1
        self.repeat_seconds += seconds
        if self.repeats > self.thrash_limit * max(self.runs, _FEW_RUNS):
            raise ExecutionError(
                f"thrashing: {self.repeats} ops repeated for {self.runs} that ran (thrash_limit "
                f"{self.thrash_limit:g}); give a larger budget or heuristic='eqclass'"
            )
        self._place(op, [out] if isinstance(out, Tensor) else list(tensors_in(out)), copies)

    def _make_room_again(self, op: ExecutedOp) -> dict[Cell, Cell]:
        """For a repetition; copies of what it changes and others need."""
        need = op.profile.output_bytes + op.profile.workspace_bytes + op.random_bytes
        memory = self.memory
        if not op.written:  # mostly
            if memory.live + need > memory.budget:
                self.make_room(need, op.function)
            return {}
        # A version of a storage is given up to its successor, unless somebody needs it too.
        shared = [cell for cell in op.written if cell.op is None or cell.locks > 1]
        self.make_room(need + sum([cell.bytes for cell in shared]), op.function)
        copies = {}
        for cell in shared:
            copies[cell] = Cell(memory, cell.bytes, None)
            memory.hold(copies[cell], cell.whole().clone())
        return copies

    def _place(self, op: ExecutedOp, out: list[Tensor], copies: dict[Cell, Cell]) -> None:
        """Give the results of a repeated op to the cells that miss them."""
        for position, known in op.made:
            cell = known()
            if cell is not None and cell.data is None:
                self.memory.hold(cell, out[position])
        for before, known in op.becomes:
            after = known()
            source = copies.get(before, before)
            if after is not None and after.data is None:
                self.memory.take_over(source, after)
            elif source is before:
                self.memory.drop(before)  # it has been changed


def generators(op: ExecutedOp, device: str) -> list[torch.Generator | Accelerator]:
    """Those that a random op may draw from."""
    given = op.kwargs.get("generator")
    if given is not None:
        return [given]
    accelerator = accelerator_of(device)
    return [torch.default_generator, *([] if accelerator is None else [accelerator])]


@contextmanager
def _replayed(op: ExecutedOp) -> Iterator[None]:
    """The generators as they were when ``op`` ran first; afterwards as they are now."""
    now = [(generator, generator.get_state()) for generator, _ in op.random]
    try:
        for generator, state in op.random:
            generator.set_state(state)
        yield
    finally:
        for generator, state in now:
            generator.set_state(state)
