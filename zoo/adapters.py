"""LoRA (Hu et al., 2021, section 4.1): a frozen model with small matrices to train beside it."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError


class Adapted(nn.Module):
    """A linear layer W with an adapter: W x + (2r / r) B A x, where A and B are of rank r.

    Args:
        base: keeps its weights, which are not trained.
        inputs, outputs: its features.
        rank: r.
    """

    def __init__(self, base: nn.Module, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        weight = base.weight
        assert isinstance(weight, Tensor)
        facts: dict[str, Any] = {"device": weight.device, "dtype": weight.dtype}
        self.base = base
        self.down = nn.Parameter(torch.empty(rank, inputs, **facts))
        self.up = nn.Parameter(torch.zeros(outputs, rank, **facts))
        nn.init.kaiming_uniform_(self.down, a=math.sqrt(5))

    @property
    def weight(self) -> Any:
        """The layer's own: some models look at its type."""
        return self.base.weight

    def forward(self, x: Tensor) -> Tensor:
        """The sum of both paths."""
        result: Tensor = self.base(x) + 2.0 * F.linear(F.linear(x, self.down), self.up)
        return result


def adapt(where: str, module: nn.Module, rank: int) -> None:
    """Freeze ``module`` and put adapters beside its linear layers, but not beside its last scores.

    Args:
        where: names the model in errors.
        rank: of the adapters.

    Raises:
        ConfigError: no rank, or the module has no linear layers.
    """
    if type(rank) is not int or rank < 1:
        raise ConfigError(f"{where} model.options.lora={rank}: give a rank, 1 or more")
    module.requires_grad_(False)
    scores = getattr(module, "get_output_embeddings", lambda: None)()
    found = [
        (parent, name, child, features)
        for parent in module.modules()
        for name, child in parent.named_children()
        if child is not scores and (features := _features(child))
    ]
    if not found:
        raise ConfigError(
            f"{where} model.options.lora={rank}: the model has no linear layers to adapt"
        )
    adapters: dict[nn.Module, Adapted] = {}  # a layer that is used twice has one
    for parent, name, child, features in found:
        if child not in adapters:
            adapters[child] = Adapted(child, *features, rank)
        setattr(parent, name, adapters[child])


def _features(module: nn.Module) -> tuple[int, int] | None:
    """Inputs and outputs of a linear layer; None for other modules."""
    if type(module) is nn.Linear:
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D":  # transformers' linear layer with W turned, in GPT-2
        weight: Any = module.weight
        return int(weight.shape[0]), int(weight.shape[1])
    return None
