"""What a new user of ``backend="rematbench"`` ran into, case by case."""

from __future__ import annotations

import copy
import gc
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import compiling
import pytest
import torch
from torch import Tensor, nn

import rematbench
from rematbench.base.errors import ConfigError, ExecutionError, Infeasible
from rematbench.costmodel.device import peak_of
from rematbench.graphs.planning import Problem, Solution
from rematbench.strategies.chen import LinearizedGreedy
from rematbench.training.choice import plan_or_strategy
from rematbench.training.compiled import backend as compiled

_fresh = pytest.fixture(autouse=True)(compiling.fresh)
options = partial(compiling.options, budget=0.8)
compile_it = partial(compiling.compile_it, budget=0.8)


def layers(*last: nn.Module, depth: int = 6) -> nn.Sequential:
    parts = [m for _ in range(depth) for m in (nn.Linear(16, 16), nn.GELU())]
    return nn.Sequential(*parts, nn.Linear(16, 16), *last)


def assert_same(model: nn.Module, twin: nn.Module) -> None:
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert one.grad.layout == other.grad.layout
        assert torch.equal(one.grad.to_dense(), other.grad.to_dense())


@pytest.mark.parametrize("end", [nn.Tanh(), nn.ReLU(), nn.Softmax(-1)], ids=lambda e: repr(e))
def test_predictions_that_are_kept_are_no_pending_calls(end: nn.Module) -> None:
    """What the caller collects is saved, too: its life says nothing about the call's."""
    model = layers(end)
    twin, predictions = copy.deepcopy(model), []
    run = compile_it(model)
    for _ in range(3):
        x = torch.randn(256, 16)
        for each in (twin, run):
            out = each(x)
            out.square().sum().backward()
            predictions.append(out.detach())
        assert_same(model, twin)
    assert torch.equal(predictions[-1], predictions[-2])


def test_everything_saved_is_the_callers() -> None:
    model = nn.Sequential(nn.Linear(16, 16), nn.Tanh())
    run, kept = compile_it(model, budget=1.0), []
    for _ in range(3):
        out = run(torch.randn(256, 16))
        kept.append(out)  # with its graph, which has gone backward
        out.square().sum().backward()


def test_step_without_a_backward_pass_ends_with_its_loss() -> None:
    model = layers(nn.Tanh())
    compile_it(model)(torch.randn(256, 16)).sum().backward()
    (region,) = compiled.regions
    assert region.planned is not None
    torch._dynamo.reset()
    run = compile_it(model, budget=region.planned.share.peak)
    loss = run(torch.randn(256, 16)).sum()
    with pytest.raises(ExecutionError, match=r"2 compiled calls.*until you let go of it"):
        run(torch.randn(256, 16))
    kept = loss.detach()
    del loss
    run(torch.randn(256, 16)).sum().backward()
    assert kept.isfinite()


def test_loss_in_a_circle_that_nobody_reaches_holds_nothing() -> None:
    """As an exception that was caught holds it, until Python looks for circles."""
    run, circle = compile_it(layers(nn.Tanh())), list[Any]()
    gc.disable()
    try:
        circle += [circle, run(torch.randn(256, 16)).sum()]
        del circle
        run(torch.randn(256, 16)).sum().backward()
    finally:
        gc.enable()


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.recurrent, self.head = kind(8, 8, batch_first=True), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.head(self.recurrent(x)[0][:, -1])
        return found


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
def test_model_of_which_nothing_is_planned_says_so(
    kind: type[nn.RNNBase], caplog: pytest.LogCaptureFixture
) -> None:
    model = Recurrent(kind)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            compile_it(model)(torch.randn(2, 3, 8)).sum().backward()
    found = [r.getMessage() for r in caplog.records if "budget is not kept" in r.getMessage()]
    left = f"left Recurrent.forward as it is, since it does not compile nn.{kind.__name__}"
    piece = "Recurrent: the rest of its model is not compiled"  # later releases compile the head
    assert found
    assert left in found[0] or piece in found[0]
    assert sum(left in said for said in found) <= 1


def test_recurrent_network_itself(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        compile_it(nn.GRU(8, 8))(torch.randn(3, 2, 8))[0].sum().backward()
    assert "nn.GRU" in caplog.text


def test_nothing_is_said_of_planned_models(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        compile_it(layers())(torch.randn(64, 16)).sum().backward()
        torch.compile(Recurrent(nn.LSTM), backend="aot_eager")(torch.randn(2, 3, 8)).sum()
    assert "as it is" not in caplog.text


class Changes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = layers(nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        x.mul_(2)
        found: Tensor = self.body(x)
        return found.sum()


@pytest.mark.parametrize("share", [0.95, 0.9])
def test_batch_that_the_forward_pass_changes(
    share: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Within the budget, and the measured peak is that of the whole step."""
    model = Changes()
    twin, x = copy.deepcopy(model), torch.randn(512, 16)
    run = compile_it(model, budget=share, costmodel="profiled", cache=tmp_path)
    mine, theirs = x.clone(), x.clone()
    run(mine).backward()
    twin(theirs).backward()
    assert torch.equal(mine, theirs)
    assert_same(model, twin)
    (region,) = compiled.regions
    assert region.planned is not None
    assert region.planned.limit is not None
    model.zero_grad()
    held = sum(p.nbytes for p in model.parameters()) + mine.nbytes
    whole = peak_of(lambda: run(mine).backward(), "cpu").peak_bytes + held
    assert region.meter.peak_bytes is not None
    assert abs(whole - region.meter.peak_bytes) <= 64
    assert whole <= region.planned.limit
    assert "measured peak" not in caplog.text


@pytest.mark.parametrize("costmodel", ["flops", "profiled"])
def test_sparse_embeddings(costmodel: str) -> None:
    model = nn.Sequential(nn.Embedding(50, 16, sparse=True), *layers())
    twin, x = copy.deepcopy(model), torch.randint(50, (64, 7))
    compile_it(model, costmodel=costmodel)(x).sum().backward()
    twin(x).sum().backward()
    assert model[0].weight.grad.is_sparse  # type: ignore[union-attr]
    assert_same(model, twin)


class FindsNothing(LinearizedGreedy):
    def plan(self, problem: Problem) -> Solution:
        raise Infeasible("no schedule of this kind", smallest_peak_found=10**9)


def test_whatever_fits_is_better_than_a_refusal() -> None:
    """A strategy that finds nothing is helped out by the quick ones, under their own name."""
    model = layers()
    twin, x = copy.deepcopy(model), torch.randn(512, 16)
    compile_it(model, strategy=FindsNothing())(x).sum().backward()
    twin(x).sum().backward()
    assert_same(model, twin)
    (region,) = compiled.regions
    assert region.planned is not None
    assert region.planned.plan.strategy in ("ap_greedy", "linearized_greedy")
    assert region.planned.trace.recomputations > 0
    assert region.planned.allowed is not None
    assert region.planned.share.peak <= region.planned.allowed


def test_four_bytes_are_no_news(caplog: pytest.LogCaptureFixture) -> None:
    model = layers()
    run = compile_it(model)
    run(torch.randn(64, 16)).sum().backward()
    (region,) = compiled.regions
    assert region.planned is not None
    assert region.planned.limit is not None
    caplog.clear()
    region.meter.peak_bytes = region.planned.limit + 4
    region._judge(region.planned, region.meter)
    assert not caplog.records
    region.meter.peak_bytes = int(1.05 * region.planned.limit) + 2 * compiled.NEWS
    region._judge(region.planned, region.meter)
    assert "the plan stays" in caplog.text


def test_folder_of_a_strategys_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "linearized_greedy").mkdir()
    monkeypatch.chdir(tmp_path)
    assert isinstance(plan_or_strategy("linearized_greedy"), LinearizedGreedy)


@pytest.mark.parametrize(
    ("given", "kind"), [({"budget": 0.01}, Infeasible), ({"bugdet": 1.0}, ConfigError)]
)
def test_errors_end_with_our_own_words(given: dict[str, Any], kind: type[Exception]) -> None:
    with pytest.raises(kind) as failed:
        compile_it(layers(), **given)(torch.randn(512, 16))
    assert "TORCHDYNAMO_VERBOSE" not in str(failed.value)
    assert "\n" not in str(failed.value)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.body = nn.LayerNorm(16), layers(depth=1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.body(self.norm(x))
        return found


class Wrapper(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.base_model = inner

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base_model(x)
        return found


def called(model: nn.Module) -> Callable[[Tensor], Tensor]:
    def step(*args: Any) -> Tensor:
        found: Tensor = args[0](args[1])
        return found

    run = torch.compile(step, backend="rematbench", options=options())
    return lambda x: run(model, x)


def test_graphs_bear_the_name_of_what_was_compiled() -> None:
    """Not of the first module inside; and of a function that is given a model."""
    compile_it(Block(), budget=1.0)(torch.randn(512, 16)).sum().backward()
    assert [each.name for each in compiled.regions] == ["Block"]


def test_modules_are_told_by_their_paths() -> None:
    model = Wrapper(Wrapper(nn.Sequential(Block(), Block())))
    called(model)(torch.randn(512, 16)).sum().backward()
    text = str(rematbench.explain(model))
    assert "recomputed in base_model.base_model." in text
    assert "__dict__" not in text
    assert "_modules" not in text
