"""What a step holds outside of its compiled graphs: measured, and left to it."""

from __future__ import annotations

import copy
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import compiling
import pytest
import torch
import torch.nn.functional as F
from compiling import options
from hypothesis import given, strategies as st
from torch import Tensor, nn
from torch.autograd.profiler import profile

import rematbench
from rematbench.base.errors import Infeasible
from rematbench.costmodel import levels
from rematbench.costmodel.device import peak_of, random_state_bytes
from rematbench.tracing.devices import Accelerator, MemoryStatistics
from rematbench.tracing.releases import RELEASE
from rematbench.training.compiled.outside import Outside
from rematbench.training.compiled.together import Together

_fresh = pytest.fixture(autouse=True)(compiling.fresh)
WIDTH, SLACK = 32, 16384


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.narrow(F.gelu(self.wide(x)))
        return found


class Net(nn.Module):
    """Blocks that are compiled one by one, between an embedding and a loss that are not."""

    def __init__(self, words: int = 50, **others: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, WIDTH)
        self.before, self.head = Block(), nn.Linear(WIDTH, words)
        self.blocks = nn.ModuleList(Block() for _ in range(4))
        for block in self.blocks if others else ():
            block.compile(backend="rematbench", options=options(**others))

    def trunk(self, tokens: Tensor) -> Tensor:
        x = self.before(self.embed(tokens))
        for block in self.blocks:
            x = x + block(x)
        found: Tensor = self.head(x)
        return found

    def loss(self, logits: Tensor, tokens: Tensor) -> Tensor:
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    def forward(self, tokens: Tensor) -> Tensor:
        return self.loss(self.trunk(tokens), tokens)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0) -> None:
    torch.manual_seed(seed)
    tokens = torch.randint(50, (16, 16))
    optimizer.zero_grad()
    net(tokens).backward()
    optimizer.step()


def trained(steps: int = 3, adam: bool = False, **others: Any) -> tuple[Net, torch.optim.Optimizer]:
    net = Net(**others)
    make = partial(torch.optim.AdamW, lr=0.01) if adam else partial(torch.optim.SGD, lr=0.1)
    optimizer = make(net.parameters())
    for seed in range(steps):
        step(net, optimizer, seed)
    return net, optimizer


def planned(net: nn.Module) -> Together:
    (found,) = rematbench.explain(net).steps
    return found


@pytest.mark.parametrize(("share", "adam"), [(0.8, False), (0.65, False), (0.7, True)])
def test_the_whole_step_keeps_to_the_budget(share: float, adam: bool) -> None:
    """Embedding, loss, the optimizer's state and temporaries included; bitwise."""
    net, optimizer = trained(budget=share, adam=adam)
    twin, other = trained(steps=0, adam=adam)
    twin.load_state_dict(net.state_dict())
    other.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    found, peaks = planned(net), []
    assert found.outside is not None
    for each, its in ((net, optimizer), (twin, other)):
        each.zero_grad()
        states = (t for state in its.state.values() for t in state.values())
        held = sum(t.nbytes for t in (*each.parameters(), *states))
        peaks.append(peak_of(lambda e=each, i=its: step(e, i, 7), "cpu").peak_bytes + held)
    assert all(map(torch.equal, net.state_dict().values(), twin.state_dict().values()))
    assert found.budget_bytes is not None
    assert peaks[0] <= found.budget_bytes + SLACK
    assert peaks[0] > 0.95 * found.peak_bytes  # nothing is counted twice
    assert abs(found.ordinary_peak_bytes - peaks[1]) < 0.05 * peaks[1]


def test_what_is_held_outside_is_found() -> None:
    """What `before` saves and the logits, to 3 %; nothing else."""
    net, _ = trained(budget=0.8)
    outside = planned(net).outside
    assert outside is not None
    tokens, size = 16 * 16, 4
    first = tokens * (2 * 4 * WIDTH + WIDTH) * size + tokens * 8  # two of GELU's, one, the tokens
    others = (net.embed, net.before, net.head)
    first += sum(p.nbytes for each in others for p in each.parameters())
    assert outside.held[0] == pytest.approx(first, rel=0.03)
    assert max(outside.between) > tokens * 50 * size  # the loss


def test_evaluation_between_steps_is_no_part_of_them() -> None:
    held = []
    for evaluates in (False, True):
        torch._dynamo.reset()
        compiling.calls.forget()
        net, optimizer = trained(steps=2, budget=0.7)
        if evaluates:
            torch.randn(1 << 20).exp()
        step(net, optimizer)
        outside = planned(net).outside
        assert outside is not None
        held.append(max(outside.between))
    assert held[0] == held[1]


def test_another_profiler_goes_first() -> None:
    """It sees what it would see, and the step is planned without the count."""
    net, optimizer = trained(steps=1, budget=0.7)
    step(net, optimizer)
    with profile(profile_memory=True) as found:
        step(net, optimizer)
        step(net, optimizer)
    assert any("mm" in event.name for event in found.function_events)
    step(net, optimizer)
    assert planned(net).outside is None


class Layer(nn.Module):
    """A convolution, normalized."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.body(x)
        return found


def test_inductor_keeps_a_batch_norm_s_averages() -> None:
    """Its forward half writes them: nothing else reads what a plan computes for that."""
    model = nn.Sequential(Layer(), Layer())
    twin = copy.deepcopy(model)
    for each in model:
        each.compile(backend="rematbench", options=options(budget=0.9, lower="inductor"))
    for _ in range(4):
        x = torch.randn(8, 4, 24, 24)
        for run in (model, twin):
            run(x).square().mean().backward()
    assert rematbench.explain(model).steps
    pairs = zip(model.state_dict().values(), twin.state_dict().values(), strict=True)
    assert all(torch.allclose(mine, other, atol=1e-5) for mine, other in pairs)
    assert int(model[0].body[1].num_batches_tracked) == 4


def test_a_budget_below_what_is_outside_says_so() -> None:
    with pytest.raises(Infeasible, match="what lies outside of the compiled graphs"):
        trained(budget=5_000_000, words=4000)


def test_an_accelerator_is_counted_by_its_allocator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake: nobody's peaks are lost, and levels are of the whole device."""
    readings = iter([(5, 9), (7, 8), (6, 30)])

    def fake(device: Accelerator) -> MemoryStatistics:
        now, most = next(readings)
        return MemoryStatistics(now, 0, 0, most, 0, 0)

    again: list[Accelerator] = []
    monkeypatch.setattr(levels, "note_peaks", fake)
    monkeypatch.setattr(Accelerator, "reset_peaks", lambda device: again.append(device))
    meter = levels.LevelMeter("cuda")
    meter.mark()
    meter.mark()
    assert meter.stop() == levels.Levels((5, 7, 6), (8, 30), absolute=True)
    assert len(again) == 3
    assert not levels.LevelMeter.can_start("meta")


@given(st.lists(st.integers(0, 5), min_size=1))
def test_stretches_add_up_to_what_is_held(held: list[int]) -> None:
    outside = Outside(tuple(held), (0,) * (len(held) + 1))
    found = outside.stretches()
    for place, level in enumerate(held):
        parts = sum(size for size, first, last in found if first <= place < last)
        assert outside.always + parts == level


def test_state_that_was_loaded_is_counted() -> None:
    """And parameters that are not compiled, though nobody saw either come."""
    _, optimizer = trained(steps=1, adam=True)
    net = Net(budget=0.8)
    again = torch.optim.AdamW(net.parameters(), lr=0.01)
    again.load_state_dict(optimizer.state_dict())
    for seed in range(3):
        step(net, again, seed)
    outside = planned(net).outside
    assert outside is not None
    states = (t for state in again.state.values() for t in state.values())
    inside = [p for block in net.blocks for p in block.parameters()]
    known = sum(t.nbytes for t in (*net.parameters(), *states)) - sum(p.nbytes for p in inside)
    assert known < outside.always < 2 * known


@pytest.mark.parametrize("kept", [0, 400_000])
def test_one_graph_with_a_budget_in_bytes_is_planned_again_where_it_must(kept: int) -> None:
    """The budget is enough for ordinary training, but not for what the caller keeps besides."""
    net = Net()
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    budget = 2_100_000
    run = torch.compile(net.trunk, backend="rematbench", options=options(budget=budget))

    def turn() -> None:
        tokens = torch.randint(50, (16, 16))
        logits = run(tokens)
        mine = torch.zeros(kept // 4)
        net.loss(logits, tokens).backward()
        assert mine.sum() == 0

    for _ in range(4):
        optimizer.zero_grad()
        turn()
        optimizer.step()
    optimizer.zero_grad()
    peak = peak_of(turn, "cpu").peak_bytes + sum(p.nbytes for p in net.parameters())
    assert budget - 500_000 < peak <= budget
    assert len(rematbench.explain(net).steps) == (1 if kept else 0)


def whole_peak(net: Net, run: Any, optimizer: torch.optim.Optimizer, tokens: Tensor) -> int:
    """Of a step, with all that is there before."""
    optimizer.zero_grad()
    states = (t for state in optimizer.state.values() for t in state.values())
    held = sum(t.nbytes for t in (*net.parameters(), *states))
    return peak_of(lambda: turn(net, run, optimizer, tokens), "cpu").peak_bytes + held


def turn(net: Net, run: Any, optimizer: torch.optim.Optimizer, tokens: Tensor) -> None:
    optimizer.zero_grad()
    net.loss(run(tokens), tokens).backward()
    optimizer.step()


def test_a_fraction_of_one_graph_is_one_of_the_whole_step(tmp_path: Path) -> None:
    """Loss, the optimizer's state and temporaries included. Its plan is kept as the graph's."""
    net, twin, share = Net(), Net(), 0.65
    twin.load_state_dict(net.state_dict())
    given = options(budget=share, strategy="anytime", time_limit=1.0, cache=tmp_path)
    run = torch.compile(net.trunk, backend="rematbench", options=given)
    both = [(net, run), (twin, twin.trunk)]
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01) for each, _ in both]
    batches = [torch.randint(50, (16, 16)) for _ in range(5)]
    for (each, runs), optimizer in zip(both, optimizers, strict=True):
        for tokens in batches:
            turn(each, runs, optimizer, tokens)
    assert all(map(torch.equal, net.state_dict().values(), twin.state_dict().values()))
    found = planned(net)
    pairs = zip(both, optimizers, strict=True)
    mine, ordinary = (whole_peak(*each, optimizer, tokens) for each, optimizer in pairs)
    assert found.budget_bytes is not None
    # Uncompiled training never holds tangents, as ordinary training by the backend would there.
    near = 0.03 if RELEASE.holds_tangents else 0.02
    assert found.budget_bytes == pytest.approx(share * ordinary, rel=near)
    assert mine <= found.budget_bytes
    assert found.measured_peak_bytes is not None
    assert abs(mine - found.measured_peak_bytes) < SLACK
    (graph,) = rematbench.explain(net).graphs
    kept = {int(each.stem.partition("-")[2]) for each in (tmp_path / "plans").iterdir()}
    assert graph.simulated_peak_bytes in kept


@pytest.mark.parametrize("budget", [1_700_000, 0.7])
def test_what_lies_outside_of_a_graph_of_many_sizes(budget: float) -> None:
    """It is counted at some of them, and left to it at all: the optimizer's state, the loss."""
    net, twin = Net(), Net()
    twin.load_state_dict(net.state_dict())
    run = torch.compile(net.trunk, backend="rematbench", options=options(budget=budget))
    both = [(net, run), (twin, twin.trunk)]
    optimizers = [torch.optim.AdamW(each.parameters(), lr=0.01) for each, _ in both]
    for length in (24, 32, 20, 28, 24, 16, 32, 30):
        tokens = torch.randint(50, (8, length))
        for (each, runs), optimizer in zip(both, optimizers, strict=True):
            turn(each, runs, optimizer, tokens)
        assert all(map(torch.equal, net.state_dict().values(), twin.state_dict().values()))
    for length in (32, 30, 28, 20, 16):
        tokens = torch.randint(50, (8, length))
        pairs = zip(both, optimizers, strict=True)
        mine, ordinary = (whole_peak(*each, optimizer, tokens) for each, optimizer in pairs)
        assert mine <= (budget if budget > 1 else budget * ordinary + SLACK)


@pytest.mark.parametrize("enough", [True, False])
def test_the_optimizer_s_step_is_counted_for_a_graph_of_many_sizes(enough: bool) -> None:
    """Its temporaries are most of a small batch's peak: no plan helps there."""
    net = Net()
    parameters = sum(p.nbytes for p in net.parameters())
    budget = (6 if enough else 4) * parameters  # gradients, two of AdamW's states, temporaries
    run = torch.compile(net.trunk, backend="rematbench", options=options(budget=budget))
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01, foreach=True)

    def turns() -> None:
        for length in (8, 6, 7, 8, 6):
            turn(net, run, optimizer, torch.randint(50, (1, length)))

    if enough:
        turns()
        assert whole_peak(net, run, optimizer, torch.randint(50, (1, 8))) <= budget
        return
    with pytest.raises(Infeasible, match="there is none, because of the optimizer's step"):
        turns()


class Drops(nn.Module):
    """Layers that each draw random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(24))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = F.dropout(layer(x).tanh(), 0.1)
        return x


def test_random_states_are_not_counted_as_outside() -> None:
    """They are handed over where the counted step draws again; a plan is left room for all."""
    net = Drops()
    run = torch.compile(net, backend="rematbench", options=options(budget=250_000))
    for _ in range(3):
        net.zero_grad()
        run(torch.randn(32, 16)).square().mean().backward()
    outside = planned(net).outside
    assert outside is not None
    assert max(outside.held) < random_state_bytes("cpu")


TWO_STEPS = """
import torch
from torch import nn
from rematbench.costmodel.levels import LevelMeter
net = nn.Sequential(*[each for _ in range(4) for each in (nn.Linear(64, 64), nn.GELU())])
run = torch.compile(net, backend="rematbench", options=OPTIONS)
for step in range(2):
    run(torch.randn(256, 64)).sum().backward()
print("counts on:", not LevelMeter.can_start("cpu"))
"""


def test_a_program_may_end_in_a_step_that_is_counted(tmp_path: Path) -> None:
    """PyTorch's profiler, with which it is counted, crashed where Python ended first."""
    script = tmp_path / "two_steps.py"
    script.write_text(f"OPTIONS = {options()!r}" + TWO_STEPS)
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "counts on: True\n"), ran.stderr
