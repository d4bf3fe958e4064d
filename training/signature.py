"""What a plan was made for, and whether a model and a batch still are that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from rematbench.base.errors import ConfigError, ExecutionError

_REMEDY = "call apply() again for it"


@dataclass(frozen=True, slots=True)
class Look:
    """What a plan takes for granted about a tensor."""

    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: str
    needs_gradient: bool

    @classmethod
    def of(cls, tensor: Tensor) -> Look:
        """Strides of dimensions of one element say nothing, and are left out."""
        shape = tuple(tensor.shape)
        stride = tuple(s for s, n in zip(tensor.stride(), shape, strict=True) if n > 1)
        return cls(shape, stride, tensor.dtype, tensor.device.type, tensor.requires_grad)

    def change(self, other: Look) -> str | None:
        """The first difference, in words."""
        for name in ("shape", "dtype", "device", "stride", "needs_gradient"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine != theirs:
                words = "requires_grad" if name == "needs_gradient" else name
                return f"{words} was {_word(mine)} when the plan was made and is {_word(theirs)}"
        return None


def _word(thing: object) -> str:
    return str(thing).removeprefix("torch.")


class Place:
    """A parameter or buffer by its owner and attribute: it may be another tensor tomorrow."""

    __slots__ = ("_table", "_what", "key", "look", "name")

    def __init__(self, module: nn.Module, name: str, what: str) -> None:
        path, _, self.key = name.rpartition(".")
        owner = module.get_submodule(path)
        self.name, self._what = name, what
        self._table: dict[str, Any] = owner._parameters if what == "parameter" else owner._buffers
        self.look = Look.of(self._table[self.key])

    def tensor(self) -> Tensor:
        """What is there now.

        Raises:
            ExecutionError: it is gone, or another kind of tensor.
        """
        found = self._table.get(self.key)
        if not isinstance(found, Tensor):
            raise ExecutionError(f"{self._what} {self.name} of the model is gone; {_REMEDY}")
        look = self.look
        change = look.change(Look.of(found))
        if change is not None:
            raise ExecutionError(f"{self._what} {self.name}: {change}; {_REMEDY}")
        return found


class Ties:
    """Which names of parameters are one tensor: a plan sees each tensor once."""

    def __init__(self, module: nn.Module) -> None:
        first: dict[int, str] = {}
        places = {
            name: Place(module, name, "parameter")
            for name, tensor in module.named_parameters(remove_duplicate=False)
            if first.setdefault(id(tensor), name) != name
        }
        names = dict(module.named_parameters(remove_duplicate=False))
        self.pairs = [
            (place, Place(module, first[id(names[name])], "parameter"))
            for name, place in places.items()
        ]

    def check(self) -> None:
        """Raises ExecutionError when two names are no longer one tensor."""
        for place, first in self.pairs:
            if place.tensor() is not first.tensor():
                raise ExecutionError(
                    f"parameters {first.name} and {place.name} were one tensor when the plan was "
                    f"made and are two (load_state_dict(assign=True)?); tie them, or {_REMEDY}"
                )


class Conditions:
    """The modes under which a step was captured: training flags and autocast."""

    def __init__(self, module: nn.Module, device: str) -> None:
        self.device = device
        self.modules = list(module.named_modules())
        self.training = [module.training for _, module in self.modules]
        self.autocast = _autocast(device)
        self.ties = Ties(module)

    def check(self) -> None:
        """Raises ExecutionError when one of them has changed."""
        if [module.training for _, module in self.modules] != self.training:
            pairs = zip(self.modules, self.training, strict=True)
            name, now = next((n, m.training) for (n, m), was in pairs if m.training is not was)
            words = ("eval", "train")
            raise ExecutionError(
                f"{name or 'the model'} was in {words[not now]} mode when the plan was made and is "
                f"in {words[now]} mode; call model.{words[not now]}(), or apply() again in this one"
            )
        self.ties.check()
        if (now := _autocast(self.device)) != self.autocast:
            raise ExecutionError(
                f"autocast was {_word(self.autocast or 'off')} when the plan was made and is "
                f"{_word(now or 'off')}; enter autocast inside the loss function, or {_REMEDY}"
            )


def _autocast(device: str) -> torch.dtype | None:
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None


def batch_looks(example: Any) -> tuple[Look, ...]:
    """What the items of a batch look like.

    Raises:
        ConfigError: an item is no tensor, or needs a gradient.
    """
    batch = (example,) if isinstance(example, Tensor) else tuple(example)
    for position, item in enumerate(batch):
        if not isinstance(item, Tensor):
            raise ConfigError(
                f"item {position} of the example batch is {type(item).__name__}; give tensors, "
                "and keep what does not change in the loss function"
            )
        if item.requires_grad:
            raise ConfigError(
                f"item {position} of the example batch needs a gradient; a plan fills those of "
                "parameters only: detach it, or make it a parameter"
            )
    return tuple(Look.of(item) for item in batch)


def check_batch(batch: Sequence[Any], looks: Sequence[Look]) -> None:
    """Raises ExecutionError when ``batch`` is not like the example."""
    if len(batch) != len(looks):
        raise ExecutionError(
            f"the batch has {len(batch)} items, the example had {len(looks)}; call the step with "
            "as many"
        )
    for position, (item, look) in enumerate(zip(batch, looks, strict=True)):
        if not isinstance(item, Tensor):
            raise ExecutionError(f"item {position} of the batch is {type(item).__name__}")
        change = look.change(Look.of(item))
        if change is None:
            continue
        remedy = "call apply() with an example of this batch"
        if item.shape != look.shape:
            remedy += " (and drop_last=True in the DataLoader for a smaller last one)"
        elif item.dtype == look.dtype and item.device.type == look.device:
            remedy = "make it like the example (detach(), contiguous())"
        raise ExecutionError(f"item {position} of the batch: {change}; {remedy}")
