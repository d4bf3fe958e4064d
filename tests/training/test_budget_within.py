"""``with rematbench.budget("8GiB"):``, the budget of what trains within."""

from __future__ import annotations

import copy
from typing import Any

import compiling
import pytest
import torch
from compiling import options
from torch import Tensor, nn

import rematbench
from rematbench.base.errors import BudgetError, ConfigError, Infeasible
from rematbench.costmodel import device
from rematbench.costmodel.device import NotedPeaks, peak_of
from rematbench.tracing.devices import Accelerator, MemoryStatistics

_fresh = pytest.fixture(autouse=True)(compiling.fresh)
LEAST = 100_000


def layers(depth: int = 8) -> nn.Module:
    parts = [m for _ in range(depth) for m in (nn.Linear(32, 32), nn.GELU(), nn.Dropout(0.1))]
    return nn.Sequential(*parts, nn.Linear(32, 8))


def compile_it(model: nn.Module, **others: Any) -> Any:
    """Without a budget of its own."""
    given = {name: value for name, value in options(**others).items() if name != "budget"}
    return torch.compile(model, backend="rematbench", options=given | others)


def step(model: Any, optimizer: torch.optim.Optimizer, seed: int) -> None:
    torch.manual_seed(seed)
    x = torch.randn(512, 32)
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()


def ordinary_peak(model: nn.Module) -> int:
    """Of a later step of ordinary training, optimizer included."""
    twin = copy.deepcopy(model)
    optimizer = torch.optim.Adam(twin.parameters())
    step(twin, optimizer, 0)
    optimizer.zero_grad()
    states = (t for state in optimizer.state.values() for t in state.values())
    held = sum(t.nbytes for t in (*twin.parameters(), *states))
    return peak_of(lambda: step(twin, optimizer, 1), "cpu").peak_bytes + held


class Run:
    """A model in training, and an uncompiled twin beside it."""

    def __init__(self, **others: Any) -> None:
        self.model = layers()
        self.twin = copy.deepcopy(self.model)
        self.run = compile_it(self.model, **others)
        self._both = [torch.optim.Adam(each.parameters()) for each in (self.model, self.twin)]
        self._steps = 0

    def trains(self, steps: int = 1) -> None:
        """Some steps more, bit for bit."""
        for _ in range(steps):
            for each, optimizer in zip((self.run, self.twin), self._both, strict=True):
                step(each, optimizer, self._steps)
            self._steps += 1
        state = self.twin.state_dict()
        assert all(torch.equal(each, state[n]) for n, each in self.model.state_dict().items())

    def recomputations(self) -> int:
        """Of the plans that it runs by."""
        return sum(each.trace.recomputations for each in rematbench.explain(self.model).graphs)


def test_what_trains_within_keeps_to_it() -> None:
    run = Run()
    budget = int(0.6 * ordinary_peak(run.model))
    with rematbench.budget(budget) as b:
        run.trains(5)
    assert b.peak_bytes is not None
    assert 0.5 * budget < b.peak_bytes <= budget
    assert run.recomputations() > 0
    assert f"{b.peak_bytes:,}" in repr(b)


def test_what_a_graph_took_by_itself_counts_before_a_whole_step_is_counted() -> None:
    """Its first halves are measured one by one; the step that is counted may be a leaner one."""
    run = Run()
    with rematbench.budget(int(0.6 * ordinary_peak(run.model))) as b:
        run.trains(3)
    (graph,) = rematbench.explain(run.model).graphs
    assert b.peak_bytes is not None
    assert graph.measured_peak_bytes is not None
    assert b.peak_bytes >= graph.measured_peak_bytes


def test_outside_of_it_there_is_no_budget_and_another_one_may_follow() -> None:
    run = Run()
    run.trains(2)
    assert run.recomputations() == 0
    most = ordinary_peak(run.model)
    plans = []
    for share in (0.8, 0.5):
        with rematbench.budget(int(share * most)) as b:
            run.trains(5)
            plans.append(run.recomputations())
        assert b.peak_bytes is not None
        assert b.peak_bytes <= share * most
        run.trains()
        assert run.recomputations() == 0
    assert 0 < plans[0] < plans[1]
    for _ in range(5):  # around each step, by the plan that is known
        with rematbench.budget(int(0.5 * most)) as b:
            run.trains()
            assert run.recomputations() == plans[1]
    assert b.peak_bytes is not None
    assert b.peak_bytes <= 0.5 * most


def test_blocks_and_fractions() -> None:
    """Several graphs, and options that are not given at all."""
    model = nn.Sequential(*(layers(3).append(nn.Linear(8, 32)) for _ in range(3)))
    twin = copy.deepcopy(model)
    for block in model:
        block.forward = compile_it(type(block).forward.__get__(block))  # type: ignore[method-assign]
    with rematbench.budget(0.7) as b:
        for seed in range(5):
            for each in (model, twin):
                each.zero_grad()
                torch.manual_seed(seed)
                each(torch.randn(512, 32)).square().mean().backward()
    for one, other in zip(model.parameters(), twin.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.equal(one.grad, other.grad)
    (found,) = rematbench.explain(model).steps
    assert found.budget_bytes is not None
    assert found.measured_peak_bytes is not None
    assert b.peak_bytes is not None
    assert found.measured_peak_bytes <= min(found.budget_bytes, b.peak_bytes)


def test_one_holds_at_a_time() -> None:
    first, second = rematbench.budget("8GiB"), rematbench.budget("1KiB")
    words = r"budget\(1024\) within budget\(8589934592\): one holds at a time"
    with first, pytest.raises(ConfigError, match=words), second:
        raise AssertionError
    with second, pytest.raises(ConfigError, match="one holds at a time"), first:
        raise AssertionError


def test_an_exception_inside_ends_it() -> None:
    run = Run()

    def fails() -> None:
        with rematbench.budget("1GiB"):
            run.trains(2)
            run.run(torch.randn(512, 32)).sum()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with rematbench.budget("1GiB"):
        run.trains(3)


def test_a_budget_that_cannot_hold_says_so_and_training_goes_on_without() -> None:
    run = Run()
    run.trains()
    with rematbench.budget(LEAST), pytest.raises(Infeasible, match=r"budget=\d+ would do"):
        run.trains()
    run.trains()


def test_a_budget_of_its_own_that_differs_is_refused() -> None:
    for budget, words in ((0.7, "0.7"), ("2GiB", "2147483648")):
        run, x = compiling.compile_it(layers(), budget), torch.randn(512, 32)
        run(x).sum().backward()
        refused = pytest.raises(ConfigError, match=f"'budget': {words}.*leave one of them out")
        with rematbench.budget("1GiB"), refused:
            run(x)
        run(x).sum().backward()
        with rematbench.budget(budget):
            run(x).sum().backward()


@pytest.mark.parametrize("given", [0, 1, -5, 1.5, "8 GB of memory", True, float("nan")])
def test_what_is_no_budget(given: Any) -> None:
    with pytest.raises(BudgetError, match="budget="):
        rematbench.budget(given)


def test_none_is_no_budget() -> None:
    with pytest.raises(ConfigError, match=r"budget\(None\): give bytes"):
        rematbench.budget(None)


def test_that_nothing_ran_within_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with rematbench.budget("1GiB") as b:
        layers()(torch.randn(4, 32)).sum().backward()
    assert b.peak_bytes is None
    assert "has begun within budget(1073741824)" in caplog.text


def test_an_accelerator_tells_the_most_that_it_has_handed_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fake: nor is a peak lost that a reading meanwhile has started anew."""
    most = iter([50, 7, 30, 20])

    def fake(of: Accelerator) -> MemoryStatistics:
        return MemoryStatistics(0, 0, 0, next(most), 0, 0)

    monkeypatch.setattr(Accelerator, "statistics", fake)
    monkeypatch.setattr(Accelerator, "reset_peaks", lambda of: None)
    noted = NotedPeaks(Accelerator("cuda"))
    device.note_peaks(Accelerator("cuda"))
    device.note_peaks(Accelerator("cuda"))
    assert noted.stop() == 30
    assert not device._under_way


def test_compiled_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    """As people write it: no options at all."""
    model, x = nn.Linear(4, 4), torch.randn(2, 4)
    monkeypatch.setenv("REMATBENCH_CACHE", "")
    with rematbench.budget("1GiB"):
        found: Tensor = torch.compile(model, backend="rematbench")(x)
        found.sum().backward()
    assert model.weight.grad is not None
