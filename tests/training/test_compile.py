"""``torch.compile(model, backend="rematbench")``: eager's bits within a budget in bytes."""

from __future__ import annotations

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiling import compile_it, fresh, options
from processes import ended, side_by_side
from torch import Tensor, nn
from torch._dynamo import config as dynamo_config
from torch._inductor import config as inductor_config
from torch.nn.parallel import DistributedDataParallel

import rematbench
from rematbench.base.errors import (
    CaptureError,
    ConfigError,
    ExecutionError,
    Infeasible,
    NotApplicable,
)
from rematbench.graphs.plan import Plan
from rematbench.graphs.planning import Problem, Solution
from rematbench.strategies.chen import LinearizedGreedy
from rematbench.tracing.halves import BORDER
from rematbench.tracing.releases import RELEASE
from rematbench.training.compiled import (
    backend as compiled,
    beyond,
    inductor,
    meters,
    planning,
    sizes,
)
from rematbench.training.compiled.judging import all_again
from rematbench.training.compiled.outside import StepMeter
from rematbench.zoo.vision import import_torchvision

BATCH = 16


_fresh = pytest.fixture(autouse=True)(fresh)


def convolutions() -> nn.Module:
    """Batch norm and dropout: what goes wrong where recomputation is careless."""
    blocks = [
        layer
        for _ in range(3)
        for layer in (nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.2))
    ]
    return nn.Sequential(nn.Conv2d(3, 4, 3), *blocks, nn.Flatten(), nn.Linear(4 * 14 * 14, 10))


def layers(depth: int = 5) -> nn.Module:
    parts = [m for _ in range(depth) for m in (nn.Linear(16, 16), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*parts, nn.Flatten(), nn.Linear(768, 10))


def images() -> tuple[Tensor, Tensor]:
    return torch.randn(BATCH, 3, 16, 16), torch.randint(10, (BATCH,))


class WithLoss(nn.Module):
    """A model that returns its loss, beside its logits."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        logits = self.body(x)
        return F.cross_entropy(logits, y), logits


def region() -> compiled.Region:
    """The only graph that trains."""
    (found,) = (each for each in compiled.regions if each.planned is not None)
    return found


Step = Callable[[Any], Tensor]


def assert_same(model: nn.Module, twin: nn.Module) -> None:
    """Every gradient and buffer, bit for bit."""
    for (name, one), other in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.equal(one.grad, other.grad), name
    for (name, one), other in zip(model.named_buffers(), twin.buffers(), strict=True):
        assert torch.equal(one, other), name


def train(model: nn.Module, run: Any, step: Step, steps: int = 3) -> list[Tensor]:
    """Losses of a few steps of an ordinary loop."""
    optimizer = torch.optim.Adam(model.parameters())
    losses = []
    for number in range(steps):
        torch.manual_seed(number)
        optimizer.zero_grad()
        loss = step(run)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return losses


def outside(run: Any) -> Tensor:
    x, y = images()
    return F.cross_entropy(run(x), y)


def inside(run: Any) -> Tensor:
    loss: Tensor = run(*images())[0]
    return loss


@pytest.mark.parametrize(
    ("make", "step"),
    [(convolutions, outside), (lambda: WithLoss(convolutions()), inside)],
    ids=["loss outside", "loss inside"],
)
def test_trains_with_eagers_bits(make: Callable[[], nn.Module], step: Step) -> None:
    """With batch norm and dropout computed again, in a loop that knows nothing of plans."""
    model = make()
    twin = copy.deepcopy(model)
    expected = train(twin, twin, step)
    found = train(model, compile_it(model), step)
    assert all(map(torch.equal, found, expected))
    assert_same(model, twin)
    planned = region().planned
    assert planned is not None
    assert planned.trace.recomputations > 0
    assert planned.share.peak <= 0.7 * planned.base.peak_bytes


def test_measured_peak_is_the_plans(tmp_path: Path) -> None:
    """Saved tensors really go while the backward half runs, in AOTAutograd's hands."""
    model = WithLoss(layers())
    run = compile_it(model, costmodel="profiled", cache=tmp_path)
    held = images()  # or the labels, which nothing reads again, would go before the peak
    train(model, run, lambda run: run(*held)[0], 2)
    planned, meter, programs = region().planned, region().meter, region().programs
    assert planned is not None
    assert programs is not None
    assert meter.peak_bytes is not None
    assert planned.trace.recomputations > 0
    assert meter.peak_bytes <= 0.7 * planned.base.peak_bytes
    states = 5056 * len(programs.states)  # of the random generator, which the budget allows for
    # A backward half lets go of results, a counter of eight bytes here, which the caller may hold.
    assert -8 <= meter.peak_bytes - planned.share.peak <= states + 1024


@pytest.mark.parametrize("kept", [False, True], ids=["let go", "kept by the caller"])
def test_measured_peak_knows_when_tangents_go(kept: bool) -> None:
    """The logits' gradient is the first to go; later, memory is short."""
    parts = [nn.Linear(16, 16), nn.Linear(16, 1024), nn.Tanh(), nn.Linear(1024, 16)]
    model = nn.Sequential(*parts, nn.Linear(16, 256))
    run = compile_it(model, budget="1GiB")
    logits = run(torch.randn(256, 16))
    held: list[Tensor] = []
    if kept:
        logits.register_hook(held.append)
    logits.logsumexp(-1).sum().backward()
    planned, meter = region().planned, region().meter
    assert planned is not None
    assert meter.peak_bytes is not None
    others = 0 if RELEASE.holds_tangents else sum(each.nbytes for each in held)
    expected = planned.share.peak + others
    assert 0 <= meter.peak_bytes - expected <= 1024


@pytest.mark.parametrize("how", ["retain_graph", "create_graph"])
def test_backward_that_keeps_its_graph_is_refused(how: str) -> None:
    model = convolutions()
    loss = outside(compile_it(model))
    with pytest.raises(ExecutionError, match="retain_graph=True"):
        loss.backward(**{how: True})
    outside(model).backward()  # uncompiled it still trains


def test_second_backward_is_refused() -> None:
    loss = outside(compile_it(convolutions()))
    loss.backward()
    with pytest.raises(RuntimeError, match="second time"):
        loss.backward()


def test_budget_below_the_floor_names_one_that_would_do() -> None:
    model = convolutions()
    with pytest.raises(Infeasible, match=r"budget=\d+ would do") as failed:
        outside(compile_it(model, budget=0.05))
    enough = failed.value.smallest_peak_found
    assert enough is not None
    outside(compile_it(model, budget=enough)).backward()


def test_budget_below_the_reserve_names_the_reserve() -> None:
    """No optimizer was seen whose step would take it."""
    with pytest.raises(Infeasible, match="below 2097152 there is none, because of reserve=2097152"):
        outside(compile_it(convolutions(), budget="1MiB", reserve="2MiB"))


def test_strategy_that_had_no_time_gives_its_leanest_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, calls = LinearizedGreedy.plan, []

    def hurried(strategy: LinearizedGreedy, problem: Problem) -> Solution:
        calls.append(problem.budget)
        if len(calls) == 1:
            raise Infeasible("no time for a second", smallest_peak_found=10**9)
        return real(strategy, problem)

    monkeypatch.setattr(LinearizedGreedy, "plan", hurried)
    outside(compile_it(convolutions())).backward()
    planned = region().planned
    assert planned is not None
    assert planned.share.peak <= 0.7 * planned.base.peak_bytes


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"bugdet": "8GiB"}, "did you mean budget?"),
        ({"strategy": "anytimes"}, "did you mean anytime?"),
        ({"lower": "aot"}, "eager, inductor"),
        ({"graphs": 0}, "1 or more"),
        ({"costmodel": "given"}, "flops"),
        ({"time_limit": -1}, "above 0"),
    ],
)
def test_bad_options(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace("?", r"\?")):
        outside(torch.compile(convolutions(), backend="rematbench", options=options() | given))


def assert_close(model: nn.Module, twin: nn.Module) -> None:
    """Gradients within what fused kernels change: a few units of the largest one's last places."""
    largest = max(float(p.grad.abs().max()) for p in twin.parameters() if p.grad is not None)
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad, rtol=1e-4, atol=1e-5 * largest)


def test_inductor_replays_dropout_and_learns_what_it_takes(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A plan whose measured peak is above the budget is followed by a leaner one, and a warning."""
    model = WithLoss(layers(4))
    twin = copy.deepcopy(model)
    run = compile_it(model, lower="inductor", budget=0.9)
    measured = meters.Meter.backward
    peaks: list[int] = []

    def too_much(meter: meters.Meter, *args: Any) -> Any:
        result = measured(meter, *args)
        assert meter.peak_bytes is not None
        peaks.append(meter.peak_bytes)
        if len(peaks) == 1:
            meter.peak_bytes = int(1.05 * region().planned.limit)  # type: ignore[union-attr, operator]
            meter.peaks = (0, meter.peak_bytes)
        return result

    monkeypatch.setattr(meters.Meter, "backward", too_much)
    shares = []
    with inductor_config.patch(fallback_random=True):
        for number in range(2):
            for each, runs in ((twin, twin), (model, run)):
                each.zero_grad()
                torch.manual_seed(number)
                inside(runs).backward()
            assert_close(model, twin)
            planned = region().planned
            assert planned is not None
            assert planned.trace.recomputations > 0
            shares.append(planned.share.peak)
    assert shares[1] < shares[0]
    assert caplog.text.count("what Inductor takes is left to it from now on") == 1


@pytest.mark.parametrize(("depth", "excess"), [(4, 1.005), (2, 10.0)], ids=["three", "none"])
def test_plans_for_what_inductor_takes_come_to_an_end(
    depth: int, excess: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where every peak is above the budget: after three more plans, or once there is none, the
    last one stays; training goes on, and nothing is compiled or said again."""
    model = WithLoss(layers(depth))
    twin = copy.deepcopy(model)
    measured = meters.Meter.backward

    def too_much(meter: meters.Meter, *args: Any) -> Any:
        result = measured(meter, *args)
        meter.peak_bytes = int(excess * region().planned.limit)  # type: ignore[union-attr, operator]
        meter.peaks = (0, meter.peak_bytes)
        return result

    monkeypatch.setattr(meters.Meter, "backward", too_much)
    monkeypatch.setattr(StepMeter, "can_start", lambda *_: False)  # as with another profiler
    run = compile_it(model, lower="inductor", budget=0.9)
    shares, said = [], []
    with inductor_config.patch(fallback_random=True):
        for number in range(6):
            caplog.clear()
            for each, runs in ((twin, twin), (model, run)):
                each.zero_grad()
                torch.manual_seed(number)
                inside(runs).backward()
            assert_close(model, twin)
            shares.append(region().planned.share.peak)  # type: ignore[union-attr]
            said.append(" ".join(record.getMessage() for record in caplog.records))
    more = "what Inductor takes is left to it from now on"
    if depth == 2:
        assert len({*shares}) == 1
        expected = [more, "the plan stays", "", "", "", ""]
    else:
        assert shares[0] > shares[1] > shares[2] > shares[3] == shares[4] == shares[5]
        expected = [more, more, more, "the plan stays", "", ""]
    for words, found in zip(expected, said, strict=True):
        assert words in found
        assert bool(words) == bool(found)


class Bottlenecks(nn.Module):
    """Residual additions, which Inductor would make again for each reader, and buffers of sizes
    that come back."""

    def __init__(self, depth: int = 4) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(16, 8, 3, padding=1), nn.Sigmoid(), nn.Conv2d(8, 16, 1))
            for _ in range(depth)
        )

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(F.relu(x))
        return x.square().mean()


def test_inductor_lets_go_what_the_plan_lets_go(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Bottlenecks(), torch.randn(8, 16, 32, 32)
    peaks = []
    for settings in (inductor.LEAN, {}):
        monkeypatch.setattr(inductor, "LEAN", settings)
        compile_it(model, lower="inductor", budget=0.7)(x).backward()
        planned = region().planned
        assert planned is not None
        assert planned.trace.recomputations > 0
        peaks.append(region().meter.peak_bytes)
        torch._dynamo.reset()
        compiled.regions.clear()
        beyond.forget()
    lean, own = peaks
    assert lean <= (0.95 if RELEASE.keeps_layouts else 1.0) * own


def test_what_inductor_takes_is_left_to_it_after_one_step(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The first step alone is above the budget; what it took is kept for the next run."""
    x = torch.randn(8, 16, 32, 32)
    above = []
    for _ in range(2):
        model = Bottlenecks()
        twin = copy.deepcopy(model)
        run = compile_it(model, lower="inductor", budget=0.95, cache=tmp_path)
        twin(x).backward()
        for _ in range(3):
            model.zero_grad()
            run(x).backward()
            assert_close(model, twin)
            planned, measured = region().planned, region().meter.peak_bytes
            assert planned is not None
            assert planned.limit is not None
            # The second step is counted as a whole.
            above.append(None if measured is None else measured > planned.limit)
        torch._dynamo.reset()
        compiled.regions.clear()
        beyond.forget()
    assert above == [True, None, False, False, False, False]
    assert caplog.text.count("what Inductor takes is left to it from now on") == 1
    assert "the plan stays" not in caplog.text


def test_explain_tells_and_draws(tmp_path: Path) -> None:
    model = WithLoss(layers())
    with pytest.raises(ConfigError, match="run a step"):
        rematbench.explain(model)
    train(model, compile_it(model), inside, 1)
    text = rematbench.explain(model)
    (graph,) = text.graphs
    assert graph.simulated_peak_bytes <= 0.7 * graph.ordinary_peak_bytes
    assert graph.measured_peak_bytes is not None
    assert sum(count for count, _ in graph.recomputed.values()) == graph.trace.recomputations
    assert sum(share for _, share in graph.recomputed.values()) == pytest.approx(graph.overhead)
    assert {scope.partition(".")[0] for scope in graph.recomputed} == {"body"}
    assert "recomputed in body." in str(text)
    (page,) = text.write(tmp_path)
    assert "linearized_greedy" in page.read_text()


class Broken(nn.Module):
    """Two graphs: Python prints between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = layers(), nn.Sequential(nn.Linear(10, 10), nn.Tanh())

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        found: Tensor = self.second(x)
        return found


def test_graph_breaks_share_the_budget() -> None:
    """The second graph's plan leaves room for what the first one holds meanwhile."""
    model = Broken()
    twin = copy.deepcopy(model)
    expected = train(twin, twin, outside)
    run = compile_it(model, budget=2_000_000)
    assert all(map(torch.equal, train(model, run, outside), expected))
    assert_same(model, twin)
    text = rematbench.explain(model)
    assert len(text.graphs) == 2
    (step,) = text.steps
    assert step.peak_bytes <= 2_000_000
    assert "2 calls planned as one" in str(text)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.parts = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(16, 16), nn.GELU())])

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.parts(x)
        return found


class Blocks(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.stem = nn.Linear(16, 16)  # every block's input needs a gradient
        self.blocks = nn.ModuleList(Block() for _ in range(count))
        self.head = nn.Linear(768, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        found: Tensor = self.head(x.flatten(1))
        return found


def test_blocks_share_one_budget_and_one_plan() -> None:
    model = Blocks(3)
    twin = copy.deepcopy(model)
    expected = train(twin, twin, outside)
    for block in model.blocks:
        block.compile(backend="rematbench", options=options(budget=0.8))
    assert all(map(torch.equal, train(model, model, outside), expected))
    assert_same(model, twin)
    assert len({each.planned.graph.hash for each in compiled.regions if each.planned}) == 1
    (step,) = rematbench.explain(model).steps
    assert step.overhead > 0
    assert step.peak_bytes <= 0.8 * step.ordinary_peak_bytes


def test_more_calls_than_the_budget_holds_are_refused() -> None:
    """Before anything is breached."""
    model = Blocks(3)
    for block in model.blocks:
        block.compile(backend="rematbench", options=options(budget=400_000))
    with pytest.raises(ExecutionError, match="compiled calls wait"):
        train(model, model, outside, 1)


def test_two_forward_passes_before_a_backward_pass() -> None:
    model = layers()
    twin = copy.deepcopy(model)

    def both(run: Any) -> Tensor:
        return outside(run) + outside(run)

    expected = train(twin, twin, both)
    assert all(map(torch.equal, train(model, compile_it(model), both), expected))
    assert_same(model, twin)
    (step,) = rematbench.explain(model).steps
    assert step.overhead > 0
    assert step.peak_bytes <= 0.7 * step.ordinary_peak_bytes


def test_other_batch_sizes_get_plans_of_their_own() -> None:
    model = convolutions()
    twin = copy.deepcopy(model)
    run = compile_it(model, budget=0.8)
    for size in (16, 24, 16, 12):
        images_of_size = torch.randn(size, 3, 16, 16)
        for each in (twin, run):
            torch.manual_seed(size)
            each(images_of_size).square().mean().backward()
        assert_same(model, twin)
    plans = {each.planned.graph.hash for each in compiled.regions if each.planned is not None}
    assert 3 <= len(plans) <= 4  # one may be made twice: for its size, and for one of any size


def test_evaluation_needs_no_plan() -> None:
    model = convolutions()
    run = compile_it(model, budget=0.01)  # too small for any step
    x, _ = images()
    model.eval()
    with torch.no_grad():
        assert torch.equal(run(x), model(x))
    assert [each.planned for each in compiled.regions] == [None]


def test_evaluation_mode_with_gradients_trains() -> None:
    model = convolutions().eval()
    twin = copy.deepcopy(model)
    train(twin, twin, outside, 1)
    train(model, compile_it(model, budget=0.8), outside, 1)
    assert_same(model, twin)


def test_ample_budget_is_ordinary_training(capsys: pytest.CaptureFixture[str]) -> None:
    model = convolutions()
    train(model, compile_it(model, budget="1GiB", progress=True), outside, 3)
    assert capsys.readouterr().err.count("no plan is needed") == 1
    assert region().planned.trace.recomputations == 0  # type: ignore[union-attr]


def test_strategy_that_does_not_apply() -> None:
    with pytest.raises(NotApplicable):
        outside(compile_it(convolutions(), strategy="join_dp"))


def autocast(run: Any) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return inside(run)


def accumulated(run: Any) -> Tensor:
    (inside(run) / 2).backward()
    return inside(run) / 2


def scaled(run: Any) -> Tensor:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    found: Tensor = scaler.scale(inside(run))
    return found


@pytest.mark.parametrize("step", [autocast, accumulated, scaled])
def test_the_loop_stays_as_it_is(step: Step) -> None:
    model = WithLoss(convolutions())
    twin = copy.deepcopy(model)
    expected = train(twin, twin, step, 2)
    assert all(map(torch.equal, train(model, compile_it(model), step, 2), expected))
    assert_same(model, twin)


def test_hooks_of_activations_and_gradients() -> None:
    model = WithLoss(convolutions())
    model.body[0].register_forward_hook(lambda module, given, made: made * 1.5)  # type: ignore[index, operator]
    twin = copy.deepcopy(model)
    for each in (model, twin):
        next(each.parameters()).register_hook(lambda gradient: gradient * 2)
    expected = train(twin, twin, inside, 2)
    assert all(map(torch.equal, train(model, compile_it(model), inside, 2), expected))
    assert_same(model, twin)


def test_data_dependent_branches_break_the_graph_or_say_so() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[x.sum(-1) > 0]

    with dynamo_config.patch(capture_dynamic_output_shape_ops=True):
        run = compile_it(Picky(), budget="1GiB")
        with pytest.raises(CaptureError, match="only a run tells"):
            run(torch.randn(8, 16))


def test_result_that_is_a_copy_of_an_input_is_the_callers_own() -> None:
    class Copies(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.layer(x), x.clone()

    x = torch.randn(2, 4)
    _, twin = compile_it(Copies(), budget="1GiB")(x)
    before = x.clone()
    twin.zero_()
    assert torch.equal(x, before)


class Remembers(nn.Module):
    """A buffer that the step reads, changes, and reads again while it goes back."""

    def __init__(self) -> None:
        super().__init__()
        self.body = layers(4)
        self.register_buffer("mean", torch.ones(16))

    def forward(self, x: Tensor) -> Tensor:
        x = x * torch.tanh(self.mean * x)
        with torch.no_grad():
            self.mean.mul_(0.5).add_(x.mean((0, 1, 2)))
        found: Tensor = self.body(x)
        return found


def test_changed_buffers_are_read_as_they_were() -> None:
    model = Remembers()
    twin = copy.deepcopy(model)
    expected = train(twin, twin, outside)
    assert all(map(torch.equal, train(model, compile_it(model), outside), expected))
    assert_same(model, twin)


SCRIPT = """
import sys, torch
from torch import nn
torch.manual_seed(0)
parts = [m for _ in range(6) for m in (nn.Linear(16, 16), nn.GELU())]
model = nn.Sequential(*parts)
given = {"budget": 0.7, "strategy": "linearized_greedy", "cache": sys.argv[1], "costmodel": "flops"}
run = torch.compile(model, backend="rematbench", options=given)
run(torch.randn(512, 16)).square().mean().backward()
print(sum(float(p.grad.abs().sum()) for p in model.parameters()))
"""


def test_processes_share_the_plan_cache(tmp_path: Path) -> None:
    """Two at once, then a fresh one that plans nothing."""
    script, cache = tmp_path / "script.py", tmp_path / "cache"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(cache)]

    def begin() -> subprocess.Popen[str]:
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path
        )

    both = [begin(), begin()]
    text = [ended(process) for process in both]
    later = ended(begin())
    assert [process.returncode for process in both] == [0, 0]
    assert len({out for out, _ in (*text, later)}) == 1
    assert "plans by" in text[0][1] + text[1][1]
    assert "plans by" not in later[1]
    assert "(cache)" in later[1]


def test_a_plan_for_less_is_a_plan_for_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a larger budget finds nothing cheaper, what is kept for a smaller one serves."""
    model = convolutions()
    outside(compile_it(model, 0.75, cache=tmp_path)).backward()
    expected = region().planned.overhead  # type: ignore[union-attr]
    torch._dynamo.reset()
    compiled.regions.clear()
    sizes.forget()
    dearest = lambda judge, *_: judge.judged(all_again(judge.halves[0]))  # noqa: E731
    monkeypatch.setattr(planning, "_searched", dearest)
    outside(compile_it(model, 0.8, cache=tmp_path)).backward()
    assert region().planned.overhead == expected  # type: ignore[union-attr]


def test_damaged_plan_of_the_cache_is_planned_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = convolutions()
    outside(compile_it(model, cache=tmp_path))
    (plan,) = (tmp_path / "plans").glob("*.json")
    for content in ("{", plan.read_text().replace('"compute"', '"free"', 1)):
        plan.write_text(content)
        torch._dynamo.reset()
        compiled.regions.clear()
        sizes.forget()
        outside(compile_it(model, cache=tmp_path)).backward()
        assert region().planned.source == "planned"  # type: ignore[union-attr]
        assert "planned again" in caplog.text
        caplog.clear()


def parallel(rank: int) -> None:
    torch.manual_seed(0)
    model = Blocks(2)
    twin = copy.deepcopy(model)
    wrapped, other = DistributedDataParallel(model), DistributedDataParallel(twin)
    run = torch.compile(wrapped, backend="rematbench", options=options(budget=0.8))
    for number in range(2):
        for each in (run, other):
            torch.manual_seed(10 * rank + number)
            outside(each).backward()
        assert_same(model, twin)
    assert any(each.planned.trace.recomputations for each in compiled.regions if each.planned)


def test_distributed_data_parallel(tmp_path: Path) -> None:
    side_by_side(parallel, tmp_path)


def test_twenty_steps_of_a_network_with_batch_norm() -> None:
    model = convolutions()
    twin = copy.deepcopy(model)
    expected = train(twin, twin, outside, 20)
    assert all(map(torch.equal, train(model, compile_it(model), outside, 20), expected))
    assert_same(model, twin)


@pytest.mark.parametrize(("attention", "backend"), [("eager", None), (None, "aot_eager")])
def test_twenty_steps_of_gpt2(attention: str | None, backend: str | None) -> None:
    """With the attention that is written out: eager training's bits. With the default (``sdpa``),
    which is given a mask once it is compiled: those of the trace, as ``aot_eager`` runs it."""
    import_torchvision()
    transformers = pytest.importorskip("transformers", reason="its models; extra: models")
    config = transformers.GPT2Config(
        **{"vocab_size": 64, "n_positions": 32, "n_embd": 32, "n_layer": 2, "n_head": 2},
        use_cache=False,
        attn_implementation=attention,
    )
    model = transformers.GPT2LMHeadModel(config)
    twin = copy.deepcopy(model)

    def step(run: Any) -> Tensor:
        tokens = torch.randint(64, (8, 32))
        logits = run(tokens).logits
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    expected = train(
        twin, twin if backend is None else torch.compile(twin, backend=backend), step, 20
    )
    torch._dynamo.reset()
    found = train(model, compile_it(model, budget=0.9), step, 20)
    assert all(map(torch.equal, found, expected))
    assert_same(model, twin)
    planned = region().planned
    assert planned is not None
    assert planned.trace.recomputations > 0
    assert model.config._attn_implementation == (attention or "sdpa")


@pytest.mark.parametrize("lower", ["eager", "inductor"])
@inductor_config.patch(fallback_random=True)
def test_plans_that_recompute_during_the_forward_pass(lower: str) -> None:
    """Every op that draws nothing runs twice before the results are there."""
    model = WithLoss(layers(2))
    twin = copy.deepcopy(model)
    train(twin, twin, inside, 1)
    # Its ops depend on the lowering: the plan is made of one that recomputes nothing.
    inside(compile_it(model, budget="1GiB", lower=lower))
    planned, halves = region().planned, region().halves
    assert planned is not None
    assert halves is not None
    graph, order = planned.graph, planned.plan.codes(planned.graph)
    codes = order[order >= 0].tolist()
    border = codes.index(graph.tables.op_first[graph.op_index[BORDER]])
    draws = {graph.op_index[name] for name in halves.captured.random_ops}
    twice = [c for c in codes[:border] if int(graph.tables.op_of[c]) not in draws]
    doubled = [each for c in codes for each in [c] * (1 + (c in twice))]
    plan = Plan.of_computes(graph, np.array(doubled, dtype=np.int64))
    compiled.regions.clear()
    torch._dynamo.reset()
    train(model, compile_it(model, budget="1GiB", strategy=plan, lower=lower), inside, 1)
    assert region().planned.trace.recomputations > 4  # type: ignore[union-attr]
    (assert_same if lower == "eager" else assert_close)(model, twin)


@pytest.mark.parametrize("strategy", ["torch_budget", "torch_checkpoint", "xla_remat"])
def test_plans_of_other_strategies(strategy: str) -> None:
    """PyTorch's own planners, and one over a fixed schedule."""
    model = WithLoss(layers(4))
    twin = copy.deepcopy(model)
    train(twin, twin, inside, 1)
    train(model, compile_it(model, strategy=strategy, budget=0.9), inside, 1)
    assert_same(model, twin)
    assert region().planned.trace.recomputations > 0  # type: ignore[union-attr]
