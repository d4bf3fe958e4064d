"""``backend="rematbench"`` where a step has several compiled calls: one budget, found by itself."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import compiling
import pytest
import torch
import torch.nn.functional as F
from compiling import compile_it, options
from torch import Tensor, nn
from torch._inductor import config as inductor_config

import rematbench
from rematbench.base.errors import ExecutionError
from rematbench.costmodel.device import peak_of
from rematbench.training.compiled import backend as compiled, beyond, together
from rematbench.training.compiled.beyond import beyond_of
from rematbench.training.compiled.together import Together

_fresh = pytest.fixture(autouse=True)(compiling.fresh)
SLACK = 8192  # scalars, and states of the random generator, which the budget allows for


class Block(nn.Module):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(0.1)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.drop(self.narrow(F.gelu(self.wide(self.norm(x)))))
        return found


class Stack(nn.Module):
    """Blocks and a head; Dynamo leaves the loop, or the head, or nothing.

    Args:
        breaks: where the graph breaks: after each block, before the head, or nowhere.
    """

    def __init__(self, breaks: str = "", depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.head, self.breaks, self.skipped = nn.Linear(32, 4), breaks, -1

    def forward(self, x: Tensor) -> Tensor:
        for number, block in enumerate(self.blocks):
            if number != self.skipped:
                x = block(x)
            if self.breaks == "blocks":
                torch._dynamo.graph_break()
        if self.breaks == "head":
            torch._dynamo.graph_break()
        found: Tensor = self.head(x)
        return found


def step(run: Any, x: Tensor, seed: int = 0) -> None:
    torch.manual_seed(seed)
    run(x).square().mean().backward()


def peak(model: nn.Module, run: Any, x: Tensor) -> int:
    """Bytes of a step, parameters and batch included; gradients stay."""
    model.zero_grad()
    held = sum(p.nbytes for p in model.parameters()) + x.nbytes
    return peak_of(lambda: step(run, x), "cpu").peak_bytes + held


def assert_same(model: nn.Module, twin: nn.Module) -> None:
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None)
        assert one.grad is None or (other.grad is not None and torch.equal(one.grad, other.grad))


def by_blocks(model: Stack, **others: Any) -> Stack:
    for block in model.blocks:
        block.compile(backend="rematbench", options=options(**others))
    return model


def planned_step(model: nn.Module) -> Together:
    (found,) = rematbench.explain(model).steps
    return found


@pytest.mark.parametrize("share", [0.8, 0.5])
@pytest.mark.parametrize("how", ["one by one", "blocks", "head"])
def test_a_step_of_several_calls_keeps_to_one_budget(how: str, share: float) -> None:
    """Bitwise, within the budget in each step, and planned as the whole is."""
    model = Stack("" if how == "one by one" else how)
    twin, x = copy.deepcopy(model), torch.randn(256, 32)
    ordinary = peak(twin, twin, x)
    budget = int(share * ordinary)
    run = by_blocks(model, budget=budget) if how == "one by one" else compile_it(model, budget)
    eager = x.nbytes if how != "head" else 0  # the batch that the uncompiled code holds
    for _ in range(3):
        assert peak(model, run, x) <= budget + eager + SLACK
        assert_same(model, twin)
    found = planned_step(model)
    assert len(found.parts) == (2 if how == "head" else 4)
    assert 0 < found.overhead < 0.4
    assert found.peak_bytes <= budget


def test_equal_blocks_get_plans_of_their_own() -> None:
    model = by_blocks(Stack(depth=6), budget=0.7, strategy="anytime", time_limit=2.0)
    for seed in range(3):
        step(model, torch.randn(256, 32), seed)
    found = planned_step(model)
    assert found.peak_bytes <= 0.7 * found.ordinary_peak_bytes
    assert len(set(found.parts)) > 2  # the first block's graph is another: its input is no result


def test_a_small_head_after_a_break_is_no_reason_to_refuse() -> None:
    """A fraction is one of the whole step, however little of it one graph is."""
    model = Stack("head")
    twin, x = copy.deepcopy(model), torch.randn(256, 32)
    run = compile_it(model, budget=0.6)
    for each in (twin, run, run, run):
        step(each, x)
    model.zero_grad()
    step(run, x)
    assert_same(model, twin)
    found = planned_step(model)
    assert found.budget_bytes == int(0.6 * found.ordinary_peak_bytes)


def test_a_changed_step_keeps_little_and_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """More calls than were planned, in another order; fewer are no news."""
    model = by_blocks(Stack(), budget=0.7)
    twin, x = Stack(), torch.randn(256, 32)
    twin.load_state_dict(model.state_dict())
    with caplog.at_level(logging.WARNING):
        for skipped, said in ((-1, 0), (-1, 0), (2, 0), (-1, 0)):
            for each in (model, twin):
                each.skipped = skipped
                each.zero_grad()
                step(each, x)
            assert_same(model, twin)
            assert caplog.text.count("other calls") == said
        for _ in range(5):  # twice through the model, where once was planned
            for each in (model, twin):
                each.zero_grad()
                torch.manual_seed(0)
                (each(x).square().mean() + each(2 * x).square().mean()).backward()
            assert_same(model, twin)
    assert caplog.text.count("other calls") == 1
    assert len(planned_step(model).parts) == 8  # planned anew, when it was there twice


def test_evaluation_and_steps_without_a_backward_pass_change_no_plan(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model, x = by_blocks(Stack(), budget=0.7), torch.randn(256, 32)
    for _ in range(3):
        step(model, x)
    before = planned_step(model)
    with torch.no_grad():
        model(x)
    loss = model(x).sum()  # kept, and never goes backward
    for _ in range(3):
        step(model, x)
    assert loss.isfinite()
    assert planned_step(model).parts is before.parts
    assert caplog.text.count("other calls") == 1  # of the first of these steps


def test_gradients_that_add_up() -> None:
    """Two batches for each step of the optimizer."""
    model = by_blocks(Stack(), budget=0.7)
    twin = Stack()
    twin.load_state_dict(model.state_dict())
    for each in (model, twin):
        optimizer = torch.optim.Adam(each.parameters())
        for number in range(6):
            torch.manual_seed(number)
            each(torch.randn(256, 32)).square().mean().backward()
            if number % 2:
                optimizer.step()
                optimizer.zero_grad()
    assert all(map(torch.equal, model.state_dict().values(), twin.state_dict().values()))


def test_two_models_of_one_step() -> None:
    """A generator and what judges it, in bytes: each is whole, and both wait at once."""
    first, second, x = Stack(), Stack(), torch.randn(256, 4)
    grow = nn.Linear(4, 32)
    twins = copy.deepcopy((first, second))

    def both(one: Any, other: Any) -> None:
        torch.manual_seed(0)
        other(grow(one(grow(x).detach())).detach() + grow(one(grow(x)))).square().mean().backward()

    both(*twins)
    runs = [compile_it(each, budget="3MB") for each in (first, second)]
    for _ in range(3):
        first.zero_grad()
        second.zero_grad()
        both(*runs)
        assert_same(first, twins[0])
        assert_same(second, twins[1])
    assert max(each.peak_bytes for each in rematbench.explain(first).steps) <= 3_000_000


def test_an_error_amid_the_first_step_changes_nothing() -> None:
    model = by_blocks(Stack(), budget=0.7)
    twin, x = Stack(), torch.randn(256, 32)
    twin.load_state_dict(model.state_dict())
    head, model.head = model.head, nn.Linear(7, 7)
    with pytest.raises(RuntimeError, match="shapes"):
        step(model, x)
    model.head = head
    for _ in range(3):
        model.zero_grad()
        twin.zero_grad()
        step(model, x)
        step(twin, x)
        assert_same(model, twin)
    assert len(planned_step(model).parts) == 4


def test_a_tensor_changed_in_between_is_refused() -> None:
    """As autograd does, which sees nothing of what a call keeps."""
    model = Stack()
    out = compile_it(model, budget=0.9)(torch.randn(256, 32, requires_grad=True))
    with torch.no_grad():
        model.head.weight.mul_(2)
    with pytest.raises(ExecutionError, match="modified by an inplace operation"):
        out.sum().backward()


def test_saved_tensors_that_are_copied_are_refused() -> None:
    model, x = compile_it(Stack(), budget=0.9), torch.randn(64, 32)
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, lambda copy: copy):
        out = model(x)
    with pytest.raises(ExecutionError, match="saved_tensors_hooks copied"):
        out.sum().backward()


def test_graphs_is_no_option_any_more(caplog: pytest.LogCaptureFixture) -> None:
    compile_it(Stack(), budget=0.9, graphs=3)(torch.randn(64, 32)).sum().backward()
    assert caplog.text.count("option graphs is not read") == 1


@inductor_config.patch(fallback_random=True)
def test_inductor_gets_few_plans_of_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """And what it takes beyond them is left to it."""
    monkeypatch.setattr(together, "VARIANTS", 2)
    model = by_blocks(Stack(), budget=0.7, lower="inductor")
    twin, x = Stack(), torch.randn(256, 32)
    twin.load_state_dict(model.state_dict())
    for _ in range(5):
        for each in (model, twin):
            each.zero_grad()
            step(each, x)
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    found = planned_step(model)
    assert found.overhead > 0
    assert len(set(found.parts[1:])) <= 2  # the first block's graph is another
    step(model, x)  # ends the count
    measured = planned_step(model).measured_peak_bytes
    assert measured is not None
    assert found.budget_bytes is not None
    assert found.most_beyond is not None
    assert measured <= found.budget_bytes


class Conv(nn.Module):
    """Of which Inductor saves nothing but what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(8, 4, 3, padding=1), nn.Sigmoid(), nn.Conv2d(4, 8, 1))

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.body(torch.relu(x))
        return found


def test_inductors_calls_are_known_by_what_they_hand_over(tmp_path: Path) -> None:
    """Each graph's first step tells what Inductor takes; the next run's plans leave it."""
    x, told = torch.randn(4, 8, 16, 16), []
    for _ in range(2):
        model = nn.Sequential(*(Conv() for _ in range(3)))
        twin = copy.deepcopy(model)
        step(twin, x)
        for block in model:
            given = options(budget=0.95, lower="inductor", cache=tmp_path)
            block.compile(backend="rematbench", options=given)
        for _ in range(7):
            model.zero_grad()
            step(model, x)
            for one, other in zip(model.parameters(), twin.parameters(), strict=True):
                torch.testing.assert_close(one.grad, other.grad)
        found = planned_step(model)
        assert found.measured_peak_bytes is not None
        assert found.budget_bytes is not None
        assert found.measured_peak_bytes <= found.budget_bytes
        graphs = {each.number: each for each in compiled.regions if each.planned is not None}
        told.append([beyond_of(e.halves, e.options) for _, e in sorted(graphs.items())])
        torch._dynamo.reset()
        compiled.regions.clear()
        beyond.forget()
        told.append([beyond_of(e.halves, e.options) for _, e in sorted(graphs.items())])
    assert max(told[0]) > 0
    assert told[1] == told[0]
    assert told[3] == told[2] >= told[1]
