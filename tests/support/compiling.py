"""What tests of ``torch.compile(model, backend="rematbench")`` begin with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from rematbench.training.compiled import backend as compiled, beyond, calls, dynamo, sizes


def options(budget: Any = 0.7, **others: Any) -> dict[str, Any]:
    """Options of the backend that measure nothing and plan at once, and others."""
    quick = {"strategy": "linearized_greedy", "costmodel": "flops", "cache": False}
    return {"budget": budget, "progress": False} | quick | others


def compile_it(model: nn.Module, budget: Any = 0.7, **others: Any) -> Any:
    """The model compiled with such options."""
    return torch.compile(model, backend="rematbench", options=options(budget, **others))


def fresh() -> Iterator[None]:
    """Around a test, as a fixture: nothing is compiled or known, and draws begin anew."""
    torch._dynamo.reset()
    dynamo.listen()
    dynamo.LISTENER._said.clear()
    compiled.regions.clear()
    sizes.forget()
    beyond.forget()
    calls.forget()
    torch.manual_seed(0)
    yield
    torch._dynamo.reset()
