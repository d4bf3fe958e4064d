"""Training under DtrRuntime: bitwise gradients, peak within the budget, clear refusals."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench.base.errors import ConfigError, ExecutionError
from rematbench.costmodel.device import peak_of
from rematbench.training.online.calls import FirstCall
from rematbench.training.online.cells import CellPool
from rematbench.training.online.constants import Constants
from rematbench.training.online.profiles import Profiles
from rematbench.training.online.quick import QuickCalls
from rematbench.training.online.runtime import DtrRuntime, OutOfBudget, Report
from rematbench.zoo import make_model

MODELS = {
    "tree_lstm": {"batch_size": 16, "depth": 4, "hidden": 32, "embedding": 32, "vocabulary": 50},
    "lstm_lm": {"batch_size": 32, "sequence_length": 8, "hidden": 64, "vocabulary": 50},
    "transformer_lm": {
        "batch_size": 4,
        "layers": 3,
        "width": 64,
        "heads": 4,
        "sequence_length": 64,
        "vocabulary": 100,
    },
}


@dataclass
class Outcome:
    loss: float
    gradients: list[Tensor | None]
    buffers: list[Tensor]
    draw: float  # the next random number


class Job:
    """A training step that can run eagerly or under the runtime, from the same state."""

    def __init__(self, module: nn.Module, loss: Callable[[], Tensor], batch: list[Tensor]) -> None:
        self.module, self.loss = module, loss
        self.residents = [*module.parameters(), *module.buffers(), *batch]
        self.resident_bytes = sum(t.untyped_storage().nbytes() for t in self.residents)
        self.start = {name: t.clone() for name, t in module.state_dict().items()}
        self.report: Report | None = None

    @classmethod
    def of_zoo(cls, name: str) -> Job:
        torch.manual_seed(0)
        workload = make_model(name, **MODELS[name])
        batch = workload.make_batch()
        return cls(workload.module, lambda: workload(*batch), list(batch))

    def reset(self) -> None:
        self.module.load_state_dict(self.start)
        self.module.zero_grad()
        torch.manual_seed(1)

    def eager(self) -> Outcome:
        self.reset()
        loss = self.loss()
        loss.backward()
        return self.outcome(loss)

    def outcome(self, loss: Tensor) -> Outcome:
        gradients = [p.grad for p in self.module.parameters()]
        buffers = [b.clone() for b in self.module.buffers()]
        return Outcome(loss.item(), gradients, buffers, torch.rand(()).item())

    def budget(self, fraction: float) -> int:
        self.eager()  # a warm-up
        self.reset()
        return self.resident_bytes + int(fraction * peak_of(self.eager, "cpu").peak_bytes)

    def online(self, budget: int, **options: object) -> Outcome:
        self.reset()
        options = {"costs": "modelled"} | options  # every run evicts the same
        with DtrRuntime(budget, residents=self.residents, **options) as runtime:
            loss = self.loss()
            loss.backward()
        self.report = runtime.report()
        return self.outcome(loss)


def assert_equal(found: Outcome, expected: Outcome) -> None:
    assert found.loss == expected.loss
    assert found.draw == expected.draw
    for ours, theirs in zip(found.gradients, expected.gradients, strict=True):
        assert type(ours) is Tensor or ours is theirs is None
        assert theirs is None or torch.equal(ours, theirs)
    for ours, theirs in zip(found.buffers, expected.buffers, strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.parametrize("name", MODELS)
def test_sixty_percent_of_the_peak(name: str) -> None:
    job = Job.of_zoo(name)
    expected = job.eager()
    budget = job.budget(0.6)
    assert_equal(job.online(budget), expected)
    assert job.report.rematerializations > 0
    job.module.zero_grad()
    measured = peak_of(lambda: job.online(budget), "cpu").peak_bytes + job.resident_bytes
    assert measured <= budget
    assert abs(job.report.peak_bytes - measured) < 0.01 * measured


@pytest.mark.parametrize("heuristic", ["local", "lru", "largest"])
def test_every_heuristic(heuristic: str) -> None:
    job = Job.of_zoo("tree_lstm")
    expected = job.eager()
    assert_equal(job.online(job.budget(0.8), heuristic=heuristic), expected)
    assert job.report.evictions > 0
    assert job.report.peak_bytes <= job.report.budget_bytes


def test_evicting_gradients_too() -> None:
    job = Job.of_zoo("transformer_lm")
    expected = job.eager()
    assert_equal(job.online(job.budget(0.6), evict_gradients=True), expected)
    assert job.report.rematerializations > 0


def test_without_pressure_it_takes_what_eager_takes() -> None:
    job = Job.of_zoo("tree_lstm")
    peak = job.budget(1.0)
    gc.disable()  # no reference cycle may keep memory
    try:
        job.online(2 * peak)
    finally:
        gc.enable()
    assert job.report.evictions == job.report.rematerializations == 0
    assert job.report.peak_bytes <= 1.01 * peak


def test_it_leaves_the_collector_as_it_was() -> None:
    before = gc.get_threshold()
    gc.set_threshold(before[0] + 1, *before[1:])
    try:
        with pytest.raises(OutOfBudget), DtrRuntime(64):
            torch.ones(100)
        assert gc.get_threshold() == (before[0] + 1, *before[1:])
    finally:
        gc.set_threshold(*before)


class _Odd(nn.Module):
    """In-place ops, writes through views, batch norm, dropout, several outputs, data-dependent
    control flow."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(6))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(6))
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            y = layer(x)
            y[:, 0].mul_(2.0)  # through a view
            y += torch.rand_like(y)
            y = F.dropout(F.relu_(norm(y)), 0.2)
            low, high = y.chunk(2, 1)
            if low.sum().item() > high.sum().item():
                self.count += 1
                low = torch.tanh(low)
            best, _ = torch.cat([low, high], 1).sort(-1)
            x = best + x
        return x.square().mean()


def test_mutations_randomness_and_dynamic_control_flow() -> None:
    torch.manual_seed(0)
    module, x = _Odd(), torch.randn(4, 4, 24, 24)
    job = Job(module, lambda: module(x), [x])
    expected = job.eager()
    assert_equal(job.online(job.budget(0.6)), expected)
    assert job.report.rematerializations > 0
    assert module.norms[0].num_batches_tracked == 1
    assert 0 < module.count <= 6


def test_measured_costs() -> None:
    job = Job.of_zoo("transformer_lm")
    expected = job.eager()
    assert_equal(job.online(job.budget(0.8), costs="measured"), expected)


def test_gradients_accumulate_over_steps_and_the_optimizer_follows() -> None:
    job = Job.of_zoo("tree_lstm")
    budget = job.budget(0.8)
    job.eager()
    twice = [2 * p.grad for p in job.module.parameters()]
    job.online(budget)
    with DtrRuntime(budget, residents=job.residents):
        job.loss().backward()
    for p, expected in zip(job.module.parameters(), twice, strict=True):
        assert torch.equal(p.grad, expected)
    torch.optim.SGD(job.module.parameters(), lr=0.1).step()


def test_a_constant_that_changes_keeps_its_old_content_for_its_readers() -> None:
    weight, x = torch.ones(256), torch.randn(256)
    with DtrRuntime(12 * 1024) as runtime, torch.no_grad():
        before = weight * x
        weight.mul_(3.0)
        fillers = [torch.full_like(before, i) for i in range(16)]
        assert runtime.report().evictions > 0
        after = weight * x
        assert torch.equal(before + 0, x)
        del fillers
    assert torch.equal(after + 0, 3 * x)


def test_a_long_evicted_chain_comes_back() -> None:
    x = torch.randn(256)
    with DtrRuntime(16 * 1024, heuristic="lru") as runtime, torch.no_grad():
        y = x
        for _ in range(1500):
            y = y.sin()
        fillers = [torch.zeros(256) + i for i in range(20)]
        assert runtime.report().rematerializations == 0
        expected = x
        found = y.sum().item()
        del fillers
    for _ in range(1500):
        expected = expected.sin()
    assert found == expected.sum().item()
    assert runtime.report().rematerializations >= 1500


def test_an_impossible_budget_is_told_with_numbers() -> None:
    job = Job.of_zoo("transformer_lm")
    with pytest.raises(OutOfBudget, match=r"out of memory.*budget is \d+.*smaller batch") as caught:
        job.online(job.budget(0.1))
    assert caught.value.needed_bytes > caught.value.budget_bytes > 0
    with pytest.raises(OutOfBudget, match="what is resident"):
        job.online(job.resident_bytes // 2)
    assert math.isfinite(job.eager().loss)


def _overfill(kept: list[Tensor]) -> None:
    with DtrRuntime(4 * 1024), torch.no_grad():
        kept += [torch.zeros(256) for _ in range(12)]
        torch.cat(kept)


def test_after_an_error_evicted_tensors_say_so() -> None:
    kept = []
    with pytest.raises(OutOfBudget):
        _overfill(kept)
    with pytest.raises(ExecutionError, match="ended with an error"):
        sum(kept)
    assert any("evicted" in repr(tensor) for tensor in kept)


def test_thrashing_is_an_error() -> None:
    job = Job.of_zoo("tree_lstm")
    with pytest.raises(ExecutionError, match=r"thrashing: \d+ ops.*larger budget"):
        job.online(job.budget(0.5), thrash_limit=0.1)


def test_bad_arguments() -> None:
    for budget in (0, -1, 0.5, True):
        with pytest.raises(ConfigError, match="whole number of bytes"):
            DtrRuntime(budget)
    with pytest.raises(ConfigError, match="eqclass"):
        DtrRuntime(2**20, heuristic="best")
    with pytest.raises(ConfigError, match="measured, modelled"):
        DtrRuntime(2**20, costs="none")
    with pytest.raises(ConfigError, match="unknown"):
        DtrRuntime(2**20, device="tpu")
    with pytest.raises(ExecutionError, match="shape in place"), DtrRuntime(2**20):
        torch.rand(4, 4).t_()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("name", MODELS)
def test_on_cuda(name: str) -> None:
    torch.manual_seed(0)
    workload = make_model(name, **MODELS[name])
    module = workload.module.cuda()
    batch = [t.cuda() for t in workload.make_batch()]
    job = Job(module, lambda: workload(*batch), batch)
    expected = job.eager()
    before = torch.cuda.memory_allocated()
    budget = job.resident_bytes + int(0.6 * peak_of(job.eager, "cuda").peak_bytes)
    found = job.online(budget, device="cuda")
    for ours, theirs in zip(found.gradients, expected.gradients, strict=True):
        torch.testing.assert_close(ours, theirs)
    module.zero_grad()
    del found, expected
    reading = peak_of(lambda: job.online(budget, device="cuda"), "cuda")
    assert reading.peak_bytes <= budget - job.resident_bytes + before // 50


def test_runs_share_what_they_learn_of_calls_or_not() -> None:
    x = torch.randn(64, 64)

    def learnt(profiles: Profiles) -> list[bool]:
        with DtrRuntime(2**30, profiles=profiles):
            x.mm(x)
        return [profile.measured for profile in profiles.of("cpu").values()]

    own = Profiles()
    assert learnt(own) == [True]
    assert learnt(own) == [True]
    assert Profiles().of("cpu") == {}


def test_constants_that_died_are_swept() -> None:
    memory = CellPool(2**30, "lru")
    constants = Constants(memory, "cpu", lambda leaf: None)
    tensors = [torch.zeros(4) for _ in range(1025)]
    for tensor in tensors:
        constants.cell(tensor)
    assert tensors[0][1:] in constants  # a view: the same storage
    assert (memory.live, constants.due) == (1025 * 16, True)
    kept = tensors.pop()
    del tensor, tensors
    assert constants.sweep(owned=())
    assert memory.live == 16
    constants.rest()
    assert not constants.due
    assert constants.cell(kept).data is kept  # its bytes were never let go
    assert not constants.sweep(owned=())


def test_results_whose_size_the_data_tells_are_never_foretold() -> None:
    with DtrRuntime(2**20), torch.no_grad():
        found = [torch.tensor(row).nonzero() + 0 for row in ([1, 0, 1, 1], [0, 0, 1, 0])]
        assert [len(each) for each in found] == [3, 1]
        x = torch.tensor([1.0, -1.0, 2.0])
        kept = [y[y > 0] * 1 for y in (x, -x, x)]
        assert [len(each) for each in kept] == [2, 1, 2]


@pytest.mark.parametrize("heuristic", ["eqclass", "lru"])
def test_the_short_way_keeps_the_same_account(
    heuristic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Calls like earlier ones evict, repeat and take what they would the long way."""
    job = Job.of_zoo("tree_lstm")
    expected, budget = job.eager(), job.budget(0.7)
    job.online(budget, heuristic=heuristic)  # every kind of call is known from here on
    longer: list[Any] = []
    run = FirstCall.run
    monkeypatch.setattr(FirstCall, "run", lambda call: longer.append(None) or run(call))
    accounts = []
    for _ in range(2):
        assert_equal(job.online(budget, heuristic=heuristic), expected)
        report = job.report
        accounts.append(
            (report.peak_bytes, report.ops, report.evictions, report.rematerializations)
        )
        if len(accounts) == 1:
            assert len(longer) < 0.02 * report.ops
            monkeypatch.setattr(QuickCalls, "run", lambda *_: None)
            longer.clear()
    assert len(longer) == report.ops
    assert accounts[0] == accounts[1]
    assert report.evictions > 0


def test_ops_of_the_short_way_run_again_with_their_own_arguments() -> None:
    """Lists, values read twice, numbers that are equal as keys (0.0 and -0.0), scalar tensors."""
    torch.manual_seed(0)
    x, half = torch.randn(256), torch.tensor(0.5)

    def made(number: int) -> list[Tensor]:
        y = torch.ops.aten.add.Scalar(x, number)
        return [
            torch.cat([y, x, x]),
            y * y,
            y * half,
            torch.ops.aten.full_like(y, -0.0),
            torch.ops.aten.full_like(y, 0.0),
            y.view(16, 16).sum([1, 0], keepdim=True) + y,
        ]

    def entries(tensor: Tensor) -> list[float]:
        return [each.item() for each in tensor.reshape(-1)[::37].unbind()]

    expected = [made(number) for number in range(12)]
    with DtrRuntime(48 * 1024, residents=[x], heuristic="lru") as runtime, torch.no_grad():
        found = [made(number) for number in range(12)]
        values = [[entries(each) for each in several] for several in found]
        assert runtime.report().rematerializations > 30
        found.clear()
    told = [[entries(each) for each in several] for several in expected]
    assert repr(values) == repr(told)  # which has the signs of zeros, too
