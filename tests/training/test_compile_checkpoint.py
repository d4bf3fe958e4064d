"""``torch.utils.checkpoint`` inside what ``backend="rematbench"`` compiles."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import compiling
import pytest
import torch
import torch.nn.functional as F
from compiling import compile_it
from torch import Tensor, nn
from torch._inductor import config as inductor_config
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from rematbench.base.errors import ConfigError
from rematbench.costmodel.device import peak_of
from rematbench.training.compiled import backend as compiled
from rematbench.training.compiled.planning import Planned
from rematbench.training.compiled.told import recomputed

_fresh = pytest.fixture(autouse=True)(compiling.fresh)
Checkpoint = Callable[..., Tensor]
checkpointed: Checkpoint = partial(checkpoint, use_reentrant=False)


class Block(nn.Module):
    """Attention to itself, and to a context where one is given, as CoCa's and MaMMUT's have it."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query, self.keys = nn.Linear(width, width), nn.Linear(width, 2 * width)
        self.cross, self.drop = nn.Linear(width, 2 * width), nn.Dropout(0.1)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        keys, values = self.keys(self.first(x)).chunk(2, -1)
        x = x + torch.softmax(self.query(x) @ keys.transpose(1, 2), -1) @ values
        if context is not None:
            keys, values = self.cross(context).chunk(2, -1)
            x = x + torch.softmax(self.query(x) @ keys.transpose(1, 2), -1) @ values
        found: Tensor = x + self.drop(self.narrow(F.gelu(self.wide(self.second(x)))))
        return found


class Stack(nn.Module):
    """Checkpointed blocks, passed once, or a second time with a context."""

    def __init__(self, depth: int = 3, use: Checkpoint = checkpointed) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.use = use

    def once(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        for block in self.blocks:
            x = self.use(block, x, context)
        return x.square().mean()

    def forward(self, x: Tensor, context: Tensor | None = None) -> Tensor:
        first = self.once(x)
        return first if context is None else first + self.once(x, context)


def step(run: Any, *batch: Tensor) -> None:
    torch.manual_seed(0)
    run(*batch).backward()


def peak(model: nn.Module, run: Any, *batch: Tensor) -> int:
    """Bytes of the second step, parameters and batch included; its gradients stay."""
    for _ in range(2):
        model.zero_grad()
        taken = peak_of(lambda: step(run, *batch), "cpu").peak_bytes
    return taken + sum(t.nbytes for t in (*model.parameters(), *batch))


def planned() -> Planned:
    """Of the only graph that trains."""
    (found,) = (each.planned for each in compiled.regions if each.planned is not None)
    return found


def assert_same(model: nn.Module, twin: nn.Module) -> None:
    for (name, one), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.equal(one.grad, other.grad), name


def test_regions_are_kept_or_planned(caplog: pytest.LogCaptureFixture) -> None:
    """By default what the user asked to compute again is; ordinary training has its peak."""
    model, x = Stack(), torch.randn(4, 64, 32)
    twin = copy.deepcopy(model)
    eager, peaks = peak(twin, twin, x), {}
    for how, again in (("keep", True), ("plan", False)):
        run = compile_it(model, budget=1.0, checkpoint=how)
        peaks[how] = peak(model, run, x)
        assert_same(model, twin)
        assert (planned().trace.recomputations > 0) == again
        assert planned().overhead == 0
        torch._dynamo.reset()
        compiled.regions.clear()
    assert peaks["keep"] <= 1.05 * eager
    assert peaks["plan"] > 2 * eager
    assert "measured peak" not in caplog.text


def test_planned_regions_keep_to_a_budget() -> None:
    """Of what eager training takes with its regions, by a plan that knows nothing of them."""
    model, x = Stack(), torch.randn(4, 64, 32)
    twin = copy.deepcopy(model)
    eager = peak(twin, twin, x)
    assert peak(model, compile_it(model, budget=eager, checkpoint="plan"), x) <= eager
    assert_same(model, twin)


def test_kept_regions_within_less_than_they_take() -> None:
    """The rest of the step is planned around them."""
    model, x = Stack(use=lambda block, *args: block(*args)), torch.randn(4, 64, 32)
    model.blocks[0].forward = partial(checkpointed, model.blocks[0].forward)  # type: ignore[method-assign]
    twin = copy.deepcopy(model)
    ordinary = peak(twin, twin, x)
    assert peak(model, compile_it(model, budget=0.7), x) <= 0.7 * ordinary
    assert_same(model, twin)
    assert planned().overhead > 0


def test_graph_that_passes_checkpointed_blocks_twice() -> None:
    """The peak is eager training's (pytorch#193193: Inductor's was 2.3 to 3.5 times that)."""
    model, batch = Stack(4), (torch.randn(4, 64, 32), torch.randn(4, 32, 32))
    twin = copy.deepcopy(model)
    eager = peak(twin, twin, *batch)
    assert peak(model, compile_it(model, budget=1.0), *batch) <= 1.05 * eager
    assert_same(model, twin)
    assert planned().trace.recomputations > 0


class Within(nn.Module):
    """A block that checkpoints itself."""

    def __init__(self, block: nn.Module) -> None:
        super().__init__()
        self.block = block

    def forward(self, *args: Any) -> Tensor:
        return checkpointed(self.block, *args)


@pytest.mark.parametrize("inside", [True, False], ids=["inside", "around"])
def test_blocks_that_are_compiled_one_by_one(inside: bool) -> None:
    """With a region in each compiled block, or one around it, which runs it twice."""
    model = Stack(2, (lambda block, *args: block(*args)) if inside else checkpointed)
    if inside:
        model.blocks = nn.ModuleList(map(Within, model.blocks))
    twin, x = copy.deepcopy(model), torch.randn(4, 64, 32, requires_grad=True)
    for block in model.blocks:
        block.compile(backend="rematbench", options=compiling.options(1.0))
    for _ in range(3):
        for each in (model, twin):
            each.zero_grad()
            step(each, x)
        assert_same(model, twin)
    plans = [plan for each in compiled.regions for plan in each.plans]
    assert plans
    assert all((plan.trace.recomputations > 0) == inside for plan in plans)


def products(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    kept = op in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE


def test_what_a_policy_saves_is_not_computed_again() -> None:
    contexts = partial(create_selective_checkpoint_contexts, products)
    model, x = Stack(2, partial(checkpointed, context_fn=contexts)), torch.randn(4, 64, 32)
    twin = copy.deepcopy(model)
    step(twin, x)
    step(compile_it(model, budget=1.0), x)
    assert_same(model, twin)
    again = {name.partition("_")[0] for name in recomputed(planned().graph, planned().plan)}
    assert again >= {"gelu"}
    assert not again & {"mm", "addmm"}


@inductor_config.patch(fallback_random=True)
def test_regions_in_inductors_kernels() -> None:
    model, x = Stack(1), torch.randn(2, 32, 32)
    twin = copy.deepcopy(model)
    step(twin, x)
    step(compile_it(model, budget=1.0, lower="inductor"), x)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert planned().trace.recomputations > 0


def test_no_other_ways() -> None:
    with pytest.raises(ConfigError, match="option checkpoint=drop"):
        compile_it(Stack(), checkpoint="drop")(torch.randn(1, 4, 32))
