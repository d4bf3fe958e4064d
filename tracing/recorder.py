"""A training step in, the stream of its operator events out: what an online runtime would see.

The step runs eagerly, once, and every operator below autograd is logged: dynamic control flow,
in-place ops and the backward pass included. The adapter to ``TorchDispatchMode``.

Names stand for storages and the views of them. All names of a storage are released when the
storage is freed, which is seen before the next operator.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from rematbench.base.errors import CaptureError, is_out_of_memory
from rematbench.streams.events import (
    Annotate,
    Call,
    Constant,
    Event,
    EventStream,
    Mutate,
    Release,
    Result,
)
from rematbench.tracing.devices import device_among
from rematbench.tracing.nested import tensors_in
from rematbench.tracing.storages import Geometry, geometry_of, storage_key, written_by
from rematbench.tracing.trouble import cannot, check_loss
from rematbench.tracing.workload import Workload

aten = torch.ops.aten

# Autograd makes these where it saves a result: the same tensor once more.
_SAME = {aten.detach.default, aten.alias.default, aten.lift_fresh.default}


@dataclass(slots=True)
class _LiveStorage:
    """A live storage: its names by geometry, and the one that stands for all of it."""

    weak: StorageWeakRef
    whole: str
    names: dict[Geometry, str]


class Recorder(TorchDispatchMode):
    """Logs every operator that runs under it.

    Attributes:
        events: so far; always a valid prefix.
    """

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Event] = []
        self._storages: dict[int, _LiveStorage] = {}
        self._names = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _SAME:
            return func(*args, **kwargs)
        self.release_dead()
        inputs = list(tensors_in(args, kwargs))
        names = [self.constant(tensor) for tensor in inputs]
        device = device_among(inputs)
        device.synchronize()
        began = time.perf_counter_ns()
        out = func(*args, **kwargs)
        device.synchronize()
        cost = time.perf_counter_ns() - began
        self._log(func, cost, inputs, names, written_by(func, args, kwargs), out)
        return out

    def release_dead(self) -> None:
        """Log the release of every storage that was freed since the last operator."""
        dead = [key for key, storage in self._storages.items() if storage.weak.expired()]
        for key in dead:
            storage = self._storages.pop(key)
            names = dict.fromkeys([*storage.names.values(), storage.whole])
            self.events += [Release(name) for name in names]

    def constant(self, tensor: Tensor) -> str:
        """The name of a tensor; one that no logged operator made is a constant."""
        storage = self._storages.get(storage_key(tensor))
        if storage is None:
            name = self._define(tensor)
            self.events.append(Constant(name, tensor.untyped_storage().nbytes()))
            return name
        return storage.names.get(geometry_of(tensor), storage.whole)

    def _define(self, tensor: Tensor) -> str:
        """A new name, of a new storage or of a new view."""
        name = f"x{self._names}"
        self._names += 1
        storage = self._storages.get(storage_key(tensor))
        if storage is None:
            weak = StorageWeakRef(tensor.untyped_storage())
            storage = self._storages[storage_key(tensor)] = _LiveStorage(weak, name, {})
        stale = storage.names.get(geometry_of(tensor))
        if stale is not None and stale != storage.whole:
            self.events.append(Release(stale))
        storage.names[geometry_of(tensor)] = name
        return name

    def _log(
        self,
        func: Any,
        cost: int,
        inputs: list[Tensor],
        names: list[str],
        written: list[Tensor],
        out: Any,
    ) -> None:
        op = func._schema.name.partition("::")[2]
        keys = [storage_key(tensor) for tensor in inputs]
        changed = list(dict.fromkeys(storage_key(tensor) for tensor in written))
        place = len(self.events)  # releases of names that the results replace come after the call
        results = tuple(self._results(out, keys, changed))
        if results:
            self.events.insert(place, Call(op, tuple(names), results, cost))
            cost = 0
        if changed:
            mutated = tuple(keys.index(key) for key in changed)
            self.events.append(Mutate(op, tuple(names), mutated, cost))
            for key, index in zip(changed, mutated, strict=True):
                self._rename(self._storages[key], names[index])
        elif not results and inputs:
            self._read(op, names, cost)

    def _results(self, out: Any, keys: list[int], changed: list[int]) -> Iterator[Result]:
        """What an operator made, given the storages of its arguments and those that it changed."""
        for tensor in tensors_in(out):
            key = storage_key(tensor)
            if key in keys and key not in changed:
                yield Result(self._define(tensor), 0, keys.index(key))
            elif key not in keys and key not in self._storages:  # else a second one in one storage
                yield Result(self._define(tensor), tensor.untyped_storage().nbytes())

    def _rename(self, storage: _LiveStorage, name: str) -> None:
        """After a mutation ``name`` stands for the whole storage; its other views are old."""
        stale = dict.fromkeys([*storage.names.values(), storage.whole])
        self.events += [Release(other) for other in stale if other != name]
        storage.whole, storage.names = name, {}

    def _read(self, op: str, names: list[str], cost: int) -> None:
        """An operator that returns no tensor, such as ``item``: its result dies at once."""
        name = f"x{self._names}"
        self._names += 1
        self.events += [Call(op, tuple(names), (Result(name, 0),), cost), Release(name)]


def record(
    module: nn.Module,
    batch: Sequence[Tensor],
    loss: Callable[..., Tensor] | None = None,
    *,
    name: str = "",
    warmup: bool = True,
) -> EventStream:
    """Run one training step (forward, loss, backward) and log it; costs are nanoseconds.

    Parameters, buffers and batch are constants; the loss and the parameter gradients are what
    is left at the end. The module is left as it was: gradients, buffers and random state.

    Args:
        module: on the device where the step shall run, in the mode in which it shall run.
        batch: arguments of ``loss`` after the module; tensors are logged as constants.
        loss: ``loss(module, *batch)`` returns a scalar; None: ``module(*batch)`` does.
        name: of the stream, for people.
        warmup: run the step once before, so that times are not those of first calls.

    Raises:
        CaptureError: there is no scalar loss, or a tensor has no storage.
    """

    def step(recorder: Recorder | None) -> None:
        found = module(*batch) if loss is None else loss(module, *batch)
        check_loss(name or type(module).__name__, found)
        if recorder is not None:
            recorder.events.append(Annotate("BACKWARD"))
        found.backward()
        if recorder is not None:
            recorder.release_dead()  # while the loss is still there

    if warmup:
        with _undone(module, batch):
            step(None)
    recorder = Recorder()
    with _undone(module, batch):
        for tensor in tensors_in(list(module.parameters()), list(module.buffers()), list(batch)):
            recorder.constant(tensor)
        with recorder:
            step(recorder)
    return EventStream(tuple(recorder.events), name)


def record_workload(workload: Workload, device: str = "cpu", seed: int = 0) -> EventStream:
    """:func:`record` for a model of the zoo, in training mode, on ``device``.

    Raises:
        CaptureError: the step fails; says why.
    """
    workload.module.to(device).train()
    torch.manual_seed(seed)
    batch = tuple(tensor.to(device) for tensor in workload.make_batch())
    try:
        return record(workload.module, batch, workload.loss, name=workload.name)
    except CaptureError:
        raise
    except (Exception, SystemExit) as error:
        if is_out_of_memory(error):
            raise
        raise cannot("recorded", workload.name, error) from error


@contextmanager
def _undone(module: nn.Module, batch: Sequence[Any]) -> Iterator[None]:
    """Without gradients to begin with; afterwards they, buffers and random state are as before."""
    leaves = [*module.parameters(), *(t for t in tensors_in(list(batch)) if t.is_leaf)]
    gradients = [leaf.grad for leaf in leaves]
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    with device_among(leaves).forked_random():
        try:
            for leaf in leaves:
                leaf.grad = None
            yield
        finally:
            for leaf, gradient in zip(leaves, gradients, strict=True):
                leaf.grad = gradient
            with torch.no_grad():
                for buffer, before in buffers:
                    buffer.copy_(before)
