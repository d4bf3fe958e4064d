"""Loops that go wrong under ``backend="rematbench"``: a clear word, and training goes on."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import compiling
import pytest
import torch
from compiling import compile_it
from torch import Tensor, nn

from rematbench.base.errors import ConfigError
from rematbench.graphs.planning import Problem, Solution
from rematbench.strategies.chen import LinearizedGreedy
from rematbench.training.compiled import backend as compiled

_fresh = pytest.fixture(autouse=True)(compiling.fresh)


class Words(nn.Module):
    """An embedding, layers and a head; they are one graph, or three.

    Args:
        breaks: does the graph break around the layers?
    """

    def __init__(self, breaks: bool = False) -> None:
        super().__init__()
        parts = [m for _ in range(6) for m in (nn.Linear(16, 16), nn.GELU())]
        self.table, self.head, self.breaks = nn.Embedding(9, 16), nn.Linear(16, 4), breaks
        self.body = nn.Sequential(*parts)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        if self.breaks:
            torch._dynamo.graph_break()
        x = self.body(x)
        if self.breaks:
            torch._dynamo.graph_break()
        found: Tensor = self.head(x)
        return found


def step(run: Any, tokens: Tensor) -> None:
    run(tokens).square().mean().backward()


def assert_trains_alike(model: nn.Module, run: Any, steps: int = 3) -> None:
    """As an uncompiled copy does, bit for bit."""
    twin, tokens = copy.deepcopy(model), torch.randint(9, (512,))
    for _ in range(steps):
        for each in (model, twin):
            each.zero_grad()
        step(run, tokens)
        step(twin, tokens)
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            assert torch.equal(one.grad, other.grad)


def recomputations() -> int:
    plans = [plan for each in compiled.regions for plan in each.plans]
    return sum(plan.trace.recomputations for plan in plans)


@pytest.mark.parametrize("breaks", [False, True], ids=["one graph", "three graphs"])
def test_forward_passes_without_a_backward_pass(breaks: bool) -> None:
    model = Words(breaks)
    run, tokens = compile_it(model, budget=0.8), torch.randint(9, (512,))
    for _ in range(3):
        run(tokens)
    assert_trains_alike(model, run)
    kept = run(tokens)
    assert_trains_alike(model, run)
    assert kept.isfinite().all()
    assert recomputations() > 0


@pytest.mark.parametrize("breaks", [False, True], ids=["one graph", "three graphs"])
@pytest.mark.parametrize("first", [True, False], ids=["first step", "later"])
def test_error_in_a_forward_half(breaks: bool, first: bool) -> None:
    """A token that the table does not have; afterwards compiled and uncompiled train on."""
    model = Words(breaks)
    run = compile_it(model, budget=0.8)
    if not first:
        assert_trains_alike(model, run, 2)
    with pytest.raises(IndexError, match="index out of range"):
        step(run, torch.full((512,), 99))
    step(model, torch.randint(9, (512,)))
    assert_trains_alike(model, run)
    assert recomputations() > 0


def refuses(gradient: Tensor) -> Tensor:
    raise ValueError("a hook of the user's")


@pytest.mark.parametrize("breaks", [False, True], ids=["one graph", "three graphs"])
def test_error_in_a_backward_pass(breaks: bool) -> None:
    model = Words(breaks)
    run = compile_it(model, budget=0.8)
    handle = model.head.weight.register_hook(refuses)
    with pytest.raises(ValueError, match="a hook of the user's"):
        step(run, torch.randint(9, (512,)))
    handle.remove()
    assert_trains_alike(model, run)
    assert recomputations() > 0


class Trips(LinearizedGreedy):
    def plan(self, problem: Problem) -> Solution:
        raise ZeroDivisionError("a strategy of the user's")


def test_error_in_a_strategy() -> None:
    """Dynamo says whose it is; the model trains on uncompiled."""
    model = Words()
    run, tokens = compile_it(model, budget=0.8, strategy=Trips()), torch.randint(9, (512,))
    with pytest.raises(Exception, match="ZeroDivisionError: a strategy of the user's"):
        step(run, tokens)
    assert_trains_alike(model, model)


@pytest.mark.parametrize("costmodel", ["flops", "profiled"])
def test_model_that_is_moved_after_its_first_step(costmodel: str, tmp_path: Path) -> None:
    """To a device without memory, and back: each device is planned for itself, if it can be."""
    model = Words(breaks=True)
    run = compile_it(model, budget=0.8, costmodel=costmodel, cache=tmp_path)
    step(run, torch.randint(9, (512,)))
    model.to("meta")
    tokens = torch.empty(512, dtype=torch.long, device="meta")
    if costmodel == "flops":
        step(run, tokens)
    else:
        with pytest.raises(ConfigError, match=r"device meta; give costmodel='flops'"):
            step(run, tokens)
        step(model, tokens)
    model.to_empty(device="cpu")
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    model.zero_grad()
    assert_trains_alike(model, run)
    assert recomputations() > 0
