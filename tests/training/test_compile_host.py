"""``options={"offload": "64GiB"}``: forward halves offload, backward halves fetch; eager's bits."""

from __future__ import annotations

import copy
import logging
import threading
from pathlib import Path
from random import Random
from typing import Any

import compiling
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from compiling import compile_it
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from two_memories import random_case

import rematbench
from rematbench.base.errors import ConfigError, ExecutionError, Infeasible, PlanError
from rematbench.graphs.link import Link
from rematbench.graphs.plan import FREE, Plan, has_copies, move_of
from rematbench.graphs.simulate import simulate
from rematbench.strategies.offload.planner import OffloadAll
from rematbench.training.compiled import backend as compiled
from rematbench.training.compiled.mended import mended
from rematbench.training.compiled.options import read_options
from rematbench.training.compiled.planning import Planned
from rematbench.validator import copier, link_meter
from rematbench.validator.call_copies import CallCopies
from rematbench.validator.copies import CopyPlan

_fresh = pytest.fixture(autouse=True)(compiling.fresh)
X = torch.randn(256, 32, generator=torch.Generator().manual_seed(0))
Y = torch.arange(256) % 5


class Net(nn.Module):
    """Blocks with batch norm and dropout; a graph break before the head, checkpointed blocks."""

    def __init__(self, breaks: bool = False, regions: bool = False) -> None:
        super().__init__()
        norm = nn.LayerNorm if regions else nn.BatchNorm1d  # a region of eager's updates it twice
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(32, 48), norm(48), nn.GELU(), nn.Dropout(0.2),
                          nn.Linear(48, 32)) for _ in range(4)
        )  # fmt: skip
        self.head, self.breaks, self.regions = nn.Linear(32, 5), breaks, regions

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.regions else block(x))
        if self.breaks:
            torch._dynamo.graph_break()
        found: Tensor = self.head(x)
        return found


def compiled_net(model: nn.Module, budget: Any = 0.7, **others: Any) -> Any:
    """At full speed: costs are FLOPs, and so is the link."""
    given = {"strategy": OffloadAll(newest=1), "offload": "2MiB", "link": Link(1.0, 1.0)} | others
    return compile_it(model, budget, **given)


def step(run: Any, seed: int, size: int = 256) -> Tensor:
    torch.manual_seed(seed)
    loss = F.cross_entropy(run(X[:size]), Y[:size])
    loss.backward()
    return loss.detach()


def copying() -> int:
    """How many threads copy; others' threads (tqdm's, which torch.fx starts) come and go."""
    return sum(isinstance(each, copier._Engine) for each in threading.enumerate())


def train(run: Any, steps: int) -> None:
    for seed in range(steps):
        step(run, seed)


def assert_trains_alike(model: nn.Module, run: Any, steps: int = 3, size: int = 256) -> None:
    """As an uncompiled copy does, bit for bit."""
    twin = copy.deepcopy(model)
    for seed in range(steps):
        for each in (model, twin):
            each.zero_grad()
        assert torch.equal(step(run, seed, size), step(twin, seed, size))
        for one, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert one.grad is not None
            assert other.grad is not None
            assert torch.equal(one.grad, other.grad)
        assert all(map(torch.equal, model.buffers(), twin.buffers()))


def plans() -> list[Planned]:
    return [plan for each in compiled.regions for plan in each.plans]


@pytest.mark.parametrize(
    "options",
    [
        {"link": "5GB/s"},
        {"strategy": "hybrid", "link": "5GB/s", "time_limit": 2.0, "budget": 500_000},
    ],
    ids=["a rule", "hybrid, and what lies outside"],
)
def test_bits_and_both_peaks(options: dict[str, Any]) -> None:
    model = Net()
    run = compiled_net(model, costmodel="profiled", **options)
    assert_trains_alike(model, run, 4)
    (found,) = rematbench.explain(model).graphs
    copies = found.trace.copies
    assert copies is not None
    assert found.measured_host_peak_bytes == copies.host_peak_bytes <= 2**21
    assert f"{copies.out_bytes:,} copied out, {copies.in_bytes:,} back; peak" in str(found)
    assert found.budget_bytes is not None
    assert found.simulated_peak_bytes <= found.budget_bytes < found.ordinary_peak_bytes
    if found.measured_peak_bytes is not None:  # not where a plan took another's place
        assert abs(found.measured_peak_bytes - found.simulated_peak_bytes) <= compiled.NEWS


def test_the_default_is_our_search_by_a_measured_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Link and plan are kept, the plan is recalled, and its page has lanes."""
    monkeypatch.setattr(link_meter, "LARGE", 2**18)
    link_meter.measured_link.cache_clear()
    options = {"costmodel": "profiled", "time_limit": 1.0, "cache": tmp_path}
    model = Net()
    given = compiling.options(0.6, offload="2MiB", **options)
    del given["strategy"]
    for source in ("planned", "cache"):
        torch._dynamo.reset()
        compiled.regions.clear()
        compiling.sizes.forget()
        run = torch.compile(model, backend="rematbench", options=given)
        assert_trains_alike(model, run, 2)
        (plan,) = plans()
        assert (plan.plan.strategy, plan.source) == ("hybrid", source)
        assert plan.trace.copies is not None
        (page,) = rematbench.explain(model).write(tmp_path / source)
        assert "link out" in page.read_text()
    assert len([*(tmp_path / "links").iterdir()]) == 1


def test_regions_are_computed_again_from_what_was_offloaded() -> None:
    model = Net(regions=True)
    assert_trains_alike(model, compiled_net(model, 0.95))
    (found,) = plans()
    assert found.trace.copies is not None
    assert found.trace.recomputations >= 4 * 4


def test_another_size_begins_with_the_same_copies() -> None:
    model = Net()
    run = compiled_net(model)
    for size in (256, 192, 256):
        assert_trains_alike(model, run, 1, size)
    assert {each.source for each in plans()} == {"planned", "another size"}
    assert all(each.trace.copies is not None for each in plans())


@pytest.mark.parametrize("calls", ["two graphs", "two forward passes"])
def test_a_step_of_several_calls_recomputes_and_says_so(
    calls: str, caplog: pytest.LogCaptureFixture
) -> None:
    model = Net(breaks=calls == "two graphs")
    run = compiled_net(model, 0.8)
    if calls == "two graphs":
        assert_trains_alike(model, run, 4)
    else:
        for _ in range(4):
            (F.cross_entropy(run(X), Y) + F.cross_entropy(run(X), Y)).backward()
    (line,) = [each.message for each in caplog.records if "without the host" in each.message]
    assert "by recomputation alone; compile the model as one graph to offload" in line
    assert all(each.trace.copies is None for each in plans())


def test_a_loss_that_never_goes_backward() -> None:
    """What copies for it ends with it, and serves the next call."""
    model = Net()
    run = compiled_net(model)
    assert_trains_alike(model, run)
    kept = F.cross_entropy(run(X), Y)
    assert copying() == 2
    del kept
    assert copying() == 0
    assert_trains_alike(model, run)


def test_calls_that_wait_at_once_share_the_host() -> None:
    calls = CallCopies(CopyPlan(64, (((0, 64),),)), "cpu", most=127)
    first = calls.begin()
    with pytest.raises(ExecutionError, match=r"2 calls wait .* 64 bytes .* above the 127"):
        calls.begin()
    del first
    calls.begin()


class Broken:
    """What a thread that copies does the n-th time."""

    def __init__(self, number: int) -> None:
        self.left, self.plain = number, copier.move_bytes

    def __call__(self, *moved: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError("the bus is gone")
        self.plain(*moved)


@pytest.mark.parametrize("after", [0, 100], ids=["first step", "later"])
def test_what_copies_fails(after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing hangs; the model trains uncompiled, and then compiled again."""
    model = Net()
    run = compiled_net(model)
    with monkeypatch.context() as patched:
        patched.setattr(copier, "move_bytes", Broken(after))
        with pytest.raises(ExecutionError, match=r"thread that copies .*: the bus is gone"):
            train(run, 9)
    assert copying() == 0
    model.zero_grad()
    step(model, 0)
    assert_trains_alike(model, run)


def test_a_thread_that_is_gone_hangs_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    model = Net()
    run = compiled_net(model)
    with monkeypatch.context() as patched:
        patched.setattr(copier, "ALIVE", 0.01)
        patched.setattr(copier._Engine, "run", lambda self: None)
        with pytest.raises(ExecutionError, match="has died"):
            step(run, 0)
    assert_trains_alike(model, run)


def test_the_host_has_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_left(self: Any, size: int) -> None:
        raise MemoryError("nothing left")

    model = Net()
    run = compiled_net(model)
    with monkeypatch.context() as patched:
        patched.setattr(copier.ThreadCopier, "_allocate", none_left)
        with pytest.raises(ExecutionError, match=r"the host has no \d+ bytes .*option offload"):
            step(run, 0)
        step(model, 0)
    assert_trains_alike(model, run)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"offload": "lots"}, "option offload=lots: give bytes"),
        ({"link": "pcie9"}, "link=pcie9: unknown"),
        ({"offload": "1GiB", "lower": "inductor"}, 'with lower="inductor" what is saved stays'),
    ],
)
def test_mistakes(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        read_options({"budget": 0.5, **options})


def test_a_measured_link_needs_costs_in_seconds() -> None:
    model = Net()
    with pytest.raises(ConfigError, match='costs are in flop; give costmodel="profiled"'):
        step(compiled_net(model, link=None), 0)
    step(model, 0)


def test_a_given_plan_that_copies(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    model = Net()
    step(compiled_net(model), 0)
    (found,) = plans()
    given: dict[str, Any] = {"strategy": found.plan}
    for others, error, words in (
        ({"offload": None, "link": None}, PlanError, r"statement \d+ .* give options=..offload"),
        ({"offload": "1KiB"}, Infeasible, r"the given plan puts \d+ bytes on the host, offload="),
    ):
        torch._dynamo.reset()
        with pytest.raises(error, match=words):
            step(compiled_net(model, **given, **others), 0)
    torch._dynamo.reset()
    assert_trains_alike(model, compiled_net(model, **given))


def without_frees(codes: list[int], values: int) -> list[int]:
    return [code for code in codes if code >= 0 or move_of(code, values)[0] != FREE]


def test_statements_that_were_changed_are_a_plan_again() -> None:
    """Intact ones lose nothing; without frees, or some further computes, they are valid."""
    random, copied = Random(0), 0
    for _ in range(400):
        graph, plan, link = random_case(random)
        codes = plan.codes(graph).tolist()
        if any(way.overwrites for op in graph.ops for way in op.implementations):
            continue  # what is overwritten has to be computed again
        copied += has_copies(graph, np.array(codes))
        before = simulate(graph, plan, link)

        def judged(changed: list[int], graph: Any = graph, link: Link = link) -> Any:
            return simulate(graph, Plan.from_codes(graph, mended(graph, changed)), link)

        after = judged(codes)
        assert after.peak_bytes <= before.peak_bytes
        assert after.host_peak_bytes == before.host_peak_bytes
        judged(without_frees(codes, len(graph.values)))
        seen: set[int] = set()
        fewer = []
        for code in codes:
            op = int(graph.tables.op_of[code]) if code >= 0 else -1
            if op in seen and random.random() < 0.5:
                continue
            seen |= {op} - {-1}
            fewer.append(code)
        judged(fewer)
    assert copied > 100
