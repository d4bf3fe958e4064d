"""Parameters that are there only while they are needed: what FSDP2 gathers, and frees again.

FSDP2 has one storage for each gathered parameter for good, and resizes it to nothing in between.
So storages are looked at when a half begins and ends, and when an optimizer begins.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Set

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook
from torch.utils._python_dispatch import is_traceable_wrapper_subclass


class Watched:
    """Storages of tensors, and their bytes as they were first seen.

    Args:
        tensors: of a DTensor, the part that is here counts.
    """

    def __init__(self, tensors: Iterable[Tensor] = ()) -> None:
        self._weak: dict[int, StorageWeakRef] = {}
        self.sizes: dict[int, int] = {}
        self.add(tensors)

    def add(self, tensors: Iterable[Tensor]) -> None:
        """More of them."""
        for part in (part for each in tensors for part in parts_of(each)):
            if (weak := weak_of(part)) is not None:
                self._weak.setdefault(weak.cdata, weak)
                self.sizes.setdefault(weak.cdata, part.untyped_storage().nbytes())

    def now(self) -> dict[int, int]:
        """Bytes that they have just now: 0 of what was freed."""
        found = {key: self.storage(key) for key in self._weak}
        return {key: 0 if each is None else each.nbytes() for key, each in found.items()}

    def storage(self, key: int) -> torch.UntypedStorage | None:
        """One of them; None: it is gone for good."""
        weak = self._weak[key]
        # The weak reference keeps the address from another storage.
        return torch.UntypedStorage._new_with_weak_ptr(weak.cdata)


class Gathered:
    """Looks at the parameters of a sequence of calls while it runs.

    Args:
        before: looked at the sequence's last time.
        modules: that the graphs come from.

    Attributes:
        watched: the storages of parameters.
    """

    def __init__(self, before: Gathered | None = None, modules: Iterable[nn.Module] = ()) -> None:
        self._on = dist.is_available() and dist.is_initialized()
        self.watched: Watched = Watched() if before is None else before.watched
        self._modules = [weakref.ref(each) for each in modules]
        self._empty: set[int] = set()
        self._looks: list[dict[int, int]] = []
        self._shards: dict[int, int] = {}
        self._hook = register_optimizer_step_pre_hook(lambda it, *_: self._steps(it))

    @property
    def keys(self) -> frozenset[int]:
        """The storages that were empty at some time, of those that calls read."""
        return frozenset(self._empty)

    @property
    def held(self) -> tuple[int, ...]:
        """Their bytes when each half began."""
        return tuple(sum(each.get(key, 0) for key in self._empty) for each in self._looks)

    @property
    def shards(self) -> int:
        """Bytes of the shards that the optimizer of the modules steps."""
        others = self._shards.keys() - self.watched.sizes.keys()
        return sum(self._shards[key] for key in others)

    def look(self, begins: bool, given: Iterable[Tensor] = ()) -> None:
        """A half begins, or has ended.

        Args:
            given: parameters that it reads.
        """
        if not self._on:
            return
        self.watched.add(given)
        now = self.watched.now()
        self._empty.update(key for key, size in now.items() if not size)
        if begins:
            self._looks.append(now)

    def trained_by(self, optimizer: Optimizer) -> bool:
        """Does it step parameters of the modules, as they are just now?"""
        modules = (module for weak in self._modules if (module := weak()) is not None)
        own = {id(each) for module in modules for each in module.parameters()}
        groups = optimizer.param_groups
        return any(id(each) in own for group in groups for each in group["params"])

    def come_again(self, keys: Set[int]) -> None:
        """Allocate these anew where they are, so that a profiler that has begun sees them go."""
        for key in keys & self.watched.sizes.keys():
            storage = self.watched.storage(key)
            if storage is not None and storage.nbytes():
                kept = storage.clone()
                storage.resize_(0)
                storage.resize_(kept.nbytes())
                storage.copy_(kept)

    def _steps(self, optimizer: Optimizer) -> None:
        self.look(begins=False)
        if self._empty and self.trained_by(optimizer):
            steps = (each for group in optimizer.param_groups for each in group["params"])
            shards = (each for each in steps if is_traceable_wrapper_subclass(each))
            self._shards |= Watched(shards).sizes

    def close(self) -> None:
        """The sequence is over."""
        self._hook.remove()


def parts_of(tensor: Tensor) -> Iterator[Tensor]:
    """The plain tensors that a tensor of another kind consists of; or itself."""
    if not is_traceable_wrapper_subclass(tensor):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        if isinstance(part := getattr(tensor, name), Tensor):
            yield from parts_of(part)


def weak_of(tensor: Tensor) -> StorageWeakRef | None:
    """A sign of life of a tensor's storage; None of one without (sparse tensors)."""
    try:
        return StorageWeakRef(tensor.untyped_storage())
    except (NotImplementedError, RuntimeError):
        return None
