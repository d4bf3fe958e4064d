"""Modules without data: parameters that have a shape and a type, and take no memory.

A step that is only planned and simulated is captured from shapes. While :func:`costless_parameters`
lasts, each parameter that a module registers goes to the meta device, where what initialises it
computes nothing. Vectors (biases, scales of normalisation), buffers and whatever else a constructor
makes stay real: they weigh next to nothing, and Python looks at their data, as MONeT's rules do at
scales. To be traced as on a device, parameters without data become fake tensors there.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor, empty_strided, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.parameter import is_lazy
from torch.utils.weak import WeakIdKeyDictionary

_ASKED = ContextVar("costless", default=False)
_LONGEST = 1 << 16  # elements of a vector that stays real


@contextmanager
def costless_parameters() -> Iterator[None]:
    """While it lasts, in this process, parameters that modules register are on the meta device.

    One that is registered under several names stays one. Nothing random is drawn for them.
    """
    register = nn.Module.register_parameter
    made: Any = WeakIdKeyDictionary()  # by what was registered, for its other names

    @functools.wraps(register)
    def costless(module: nn.Module, name: str, param: nn.Parameter | None) -> None:
        if isinstance(param, nn.Parameter) and _weighs(param):
            if param not in made:
                made[param] = nn.Parameter(param.detach().to("meta"), param.requires_grad)
            param = made[param]
        register(module, name, param)

    nn.Module.register_parameter = costless
    token = _ASKED.set(True)
    try:
        yield
    finally:
        _ASKED.reset(token)
        nn.Module.register_parameter = register


def _weighs(param: nn.Parameter) -> bool:
    if is_lazy(param) or param.is_meta:
        return False
    return bool(param.dim() > 1 or param.numel() > _LONGEST)


def asked_for() -> bool:
    """Does :func:`costless_parameters` last?"""
    return _ASKED.get()


def is_costless(module: nn.Module) -> bool:
    """Has a module tensors without data, so that it can be traced and not run?"""
    return any(t.is_meta or isinstance(t, FakeTensor) for t in _tensors(module))


def named(module: nn.Module) -> list[tuple[nn.Module, str, Tensor]]:
    """Parameters and buffers, once for each name: of which module, the name there, the tensor."""
    return [
        (part, name, tensor)
        for part in module.modules()
        for tensors in (part._parameters, part._buffers)
        for name, tensor in tensors.items()
        if tensor is not None
    ]


def in_place_of(tensor: Tensor, data: Tensor) -> Tensor:
    """Data for a module: a parameter where the tensor that it replaces is one."""
    return nn.Parameter(data, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else data


def place(module: nn.Module, device: str) -> None:
    """Put a module on a device; its tensors without data become fake ones there."""
    if not is_costless(module):
        module.to(device)
        return
    mode, made = mode_of(module), dict[int, Any]()

    def there(tensor: Tensor) -> Tensor:
        if isinstance(tensor, FakeTensor):
            return tensor
        if not tensor.is_meta:
            return tensor.to(device)
        with mode:
            return empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)

    for part, name, tensor in named(module):
        if id(tensor) not in made:  # it may have several names
            made[id(tensor)] = tensor, in_place_of(tensor, there(tensor.detach()))
        setattr(part, name, made[id(tensor)][1])  # recurrent layers listen


def mode_of(module: nn.Module) -> FakeTensorMode:
    """The mode of a module's fake tensors, or a new one."""
    found = (t.fake_mode for t in _tensors(module) if isinstance(t, FakeTensor))
    return next(found, None) or FakeTensorMode(allow_non_fake_inputs=True)


def _tensors(module: nn.Module) -> Iterator[Tensor]:
    yield from module.parameters()
    yield from module.buffers()
