"""Handing gradients over as ``backward()`` would: into ``.grad``, through hooks, through DDP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from rematbench.base.errors import NotApplicable

_MOVING = frozenset(("DataParallel", "FullyShardedDataParallel", "FSDPModule"))
"""Classes of modules that move parameters; the last one of what ``fully_shard`` was called on."""


def deliver(parameter: nn.Parameter, gradient: Tensor, *, shared: bool, hooked: bool) -> None:
    """Add ``gradient`` to ``parameter.grad``, bit for bit as autograd's accumulation does.

    Args:
        shared: somebody else holds the gradient's storage.
        hooked: somebody else listens to the parameter (DDP); its own hooks are seen without.
    """
    if hooked or parameter._backward_hooks or _after_hooks(parameter):
        # The engine copies what Python still holds: one gradient for a moment.
        torch.autograd.backward(parameter, gradient)
    elif parameter.grad is not None:
        parameter.grad += gradient
    elif shared or gradient.stride() != parameter.stride():
        parameter.grad = torch.empty_like(parameter).copy_(gradient)
    else:
        parameter.grad = gradient


def _after_hooks(parameter: nn.Parameter) -> Any:
    return getattr(parameter, "_post_accumulate_grad_hooks", None)


class _Reached(torch.autograd.Function):
    """A scalar that depends on every given tensor, for DDP's search of unused parameters."""

    @staticmethod
    def forward(ctx: Any, *parameters: Tensor) -> Tensor:
        return parameters[0].new_zeros(())

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        raise AssertionError("only reached for, never run backward")


class _StandIn(nn.Module):
    """Takes the model's place while DDP believes that a forward pass runs."""

    def __init__(self, model: nn.Module, reached: Sequence[nn.Parameter]) -> None:
        super().__init__()
        # Tuples, so that nothing is registered here.
        self.model, self.reached = (model,), tuple(reached)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Tensor]]:
        """The model's: DDP asks for them anew before each broadcast."""
        found: Iterator[tuple[str, Tensor]] = self.model[0].named_buffers(*args, **kwargs)
        return found

    def forward(self, device: Tensor) -> Tensor:
        out: Tensor = _Reached.apply(*self.reached)
        return out


def announce(parallel: DistributedDataParallel, reached: Sequence[nn.Parameter]) -> None:
    """What DDP does around a forward pass: broadcast buffers, make the reducer ready.

    Args:
        reached: the parameters that will get a gradient.
    """
    model = parallel.module
    parallel.module = _StandIn(model, reached)
    try:
        with torch.enable_grad():
            parallel(reached[0].new_zeros(()))
    finally:
        parallel.module = model


def unwrap(model: nn.Module) -> tuple[nn.Module, DistributedDataParallel | None]:
    """The model itself, and its DDP wrapper if it has one.

    Raises:
        NotApplicable: another wrapper that takes part in the backward pass.
    """
    if isinstance(model, DistributedDataParallel):
        if model.static_graph:
            raise NotApplicable(
                "DistributedDataParallel(static_graph=True) learns from a backward pass that a "
                "plan does not run; use static_graph=False"
            )
        return model.module, model
    for module in model.modules():
        found = _MOVING.intersection(base.__name__ for base in type(module).__mro__)
        if found:
            raise NotApplicable(
                f"{min(found)} moves parameters while the step runs, which its plan cannot see; "
                'compile its blocks: block.compile(backend="rematbench", options={"budget": ...}) '
                "for each; or use DistributedDataParallel, or the bare model"
            )
    return model, None
