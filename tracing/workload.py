"""What a model of the zoo is: a module, a batch and a scalar loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from rematbench.base.sizes import image_size as image_size


@dataclass(frozen=True, eq=False)
class Workload:
    """One training step, before it is captured.

    Attributes:
        name: for people and files.
        module: in training mode, with real parameters, on the CPU.
        make_batch: returns the batch, a tuple of tensors (inputs, then targets). Called under
            ``FakeTensorMode`` to capture, and for real after ``torch.manual_seed`` to execute,
            so that it may only use factory functions such as ``torch.randn`` and
            ``torch.randint``.
        loss: ``loss(module, *batch)`` returns a scalar tensor.
    """

    name: str
    module: nn.Module
    make_batch: Callable[[], tuple[Tensor, ...]]
    loss: Callable[..., Tensor]

    def __call__(self, *batch: Tensor) -> Tensor:
        return self.loss(self.module, *batch)

    def cast(self, dtype: torch.dtype) -> Workload:
        """The same step with every floating-point parameter, buffer and input in ``dtype``."""

        def make_batch() -> tuple[Tensor, ...]:
            batch = self.make_batch()
            return tuple(t.to(dtype) if t.is_floating_point() else t for t in batch)

        return replace(self, module=self.module.to(dtype), make_batch=make_batch)


ModelFactory = Callable[..., Workload]
"""A function of keyword options (batch_size, resolution, ...) that makes a workload."""
