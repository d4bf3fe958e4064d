"""Training with a plan: the bits of eager training, whatever the loop around it does."""

from __future__ import annotations

import contextlib
import copy
import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from devices import DEVICES
from processes import side_by_side
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import rematbench
from rematbench import training
from rematbench.base.errors import (
    BudgetError,
    CaptureError,
    ConfigError,
    ExecutionError,
    Infeasible,
    NotApplicable,
    PlanError,
)
from rematbench.costmodel.device import peak_of, use_numerics
from rematbench.graphs.files import write_plan
from rematbench.graphs.plan import Plan
from rematbench.strategies.checkpoint_all import CheckpointAll
from rematbench.strategies.chen import LinearizedGreedy, LinearizedSqrt
from rematbench.validator.execute import own_batch_norm

BATCH = 8


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """What the test makes, models included, is there; on CUDA by kernels that repeat their bits.

    Adam makes full steps of gradients that are 0 but for rounding.
    """
    with contextlib.ExitStack() as stack:
        if request.param == "cuda":
            off = {"tf32": False, "cudnn_benchmark": False, "deterministic": False}
            use_numerics(**off | {"deterministic": True})
            stack.callback(use_numerics, **off)
            stack.enter_context(own_batch_norm())
            stack.enter_context(torch.device("cuda"))
        yield request.param


class Net(nn.Module):
    """Convolutions, batch norm, dropout, a residual connection, a tied weight."""

    dropout = 0.1

    def __init__(self, width: int = 8, depth: int = 6) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU())
            for _ in range(depth)
        )
        self.inner = nn.Linear(width, width)
        self.last = nn.Linear(width, width)
        self.last.weight = self.inner.weight

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for block in self.blocks:
            x = F.dropout(x + block(x), self.dropout, self.training)
        out: Tensor = self.last(torch.tanh(self.inner(x.mean((2, 3)))))
        return out


class Plain(Net):
    """Without dropout and ties, whose low-precision bits PyTorch's own traces do not keep."""

    dropout = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.last = nn.Linear(8, 8)


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def batch(number: int = 0, size: int = BATCH) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(number)
    images = torch.randn(size, 3, 16, 16, generator=generator, device="cpu")
    labels = torch.randint(8, (size,), generator=generator, device="cpu")
    here = torch.get_default_device()
    return images.to(here), labels.to(here)


def twins(make: Callable[[], nn.Module] = Net) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    ours = make()
    return ours, copy.deepcopy(ours)


class Wanting(LinearizedGreedy):
    def __init__(self, wanted: int) -> None:
        super().__init__()


def planned(model: nn.Module, budget: Any = 0.6, **options: Any) -> training.Step:
    options = {"loss": loss, "example": batch(), "costmodel": "flops"} | options
    return rematbench.apply(model, plan=LinearizedGreedy(), budget=budget, **options)


def equal(a: Tensor, b: Tensor) -> bool:
    """Bit for bit on the CPU; sums on CUDA may be in any order."""
    if a.device.type == "cpu":
        return torch.equal(a, b)
    loose = 1e-3 if a.dtype == torch.float32 else 5e-2
    return torch.allclose(a, b, rtol=loose, atol=loose * float(b.abs().max()))


def same(ours: nn.Module, theirs: nn.Module) -> None:
    for (name, a), b in zip(ours.state_dict().items(), theirs.state_dict().values(), strict=True):
        assert equal(a, b), name
    for (name, p), q in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        assert p.grad is None or equal(p.grad, q.grad), name


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_training_loop_with_accumulation_and_evaluation(optimizer: Any, device: str) -> None:
    ours, theirs = twins()
    step = planned(ours)
    assert step.trace.recomputations > 0
    optimizers = [optimizer(m.parameters(), lr=0.1) for m in (ours, theirs)]
    share = torch.tensor(0.5)
    for turn in range(3):
        for each in optimizers:
            each.zero_grad()
        for micro in (0, 1):
            x, y = batch(2 * turn + micro)
            torch.manual_seed(turn)
            expected = loss(theirs, x, y)
            (expected / 2).backward()
            after = torch.rand(1)
            torch.manual_seed(turn)
            assert equal(step(x, y, gradient=share), expected.detach())
            assert torch.equal(torch.rand(1), after)  # as many draws as eager training
            same(ours, theirs)
        for each in optimizers:
            each.step()
        with torch.no_grad():
            assert equal(ours.eval()(x), theirs.eval()(x))
        ours.train(), theirs.train()
    same(ours, theirs)


def test_half_the_memory(device: str) -> None:
    ours, theirs = twins(lambda: Net(16))
    example = batch(size=32)
    step = planned(ours, 0.5, example=example, costmodel="profiled")
    step(*example)  # the second step is measured
    resident = sum(v.bytes for v in step.graph.values if v.resident)
    ours.zero_grad()
    found = peak_of(lambda: step(*example), device).peak_bytes + resident
    loss(theirs, *example).backward()
    theirs.zero_grad()
    eager = peak_of(lambda: loss(theirs, *example).backward(), device).peak_bytes + resident
    # CUDA's allocator rounds up, and cuDNN takes workspaces.
    near, half = (0.01, 0.51) if device == "cpu" else (0.05, 0.6)
    assert found == pytest.approx(step.trace.peak_bytes, rel=near)
    assert found < half * eager


def test_plan_file(tmp_path: Path, device: str) -> None:
    ours, theirs = twins()
    planned(ours).save(tmp_path / "plan.json")
    again = rematbench.apply(ours, loss, batch(), tmp_path / "plan.json", 0.6, costmodel="flops")
    torch.manual_seed(1)
    again(*batch())
    torch.manual_seed(1)
    loss(theirs, *batch()).backward()
    same(ours, theirs)
    with pytest.raises(Infeasible, match="the plan peaks at"):
        rematbench.apply(ours, loss, batch(), again.plan, 0.1, costmodel="flops")


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_scaled_gradients(dtype: torch.dtype, inside: bool, device: str) -> None:
    ours, theirs = twins(Plain)
    needed = dtype == torch.float16  # bfloat16 trains without
    scalers = [torch.amp.GradScaler(device, init_scale=1024.0, enabled=needed) for _ in (0, 1)]
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs)]

    def mixed(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        with torch.autocast(device, dtype=dtype):
            return loss(model, x, y)

    with torch.autocast(device, dtype=dtype, enabled=not inside):
        step = planned(ours, loss=mixed if inside else loss)
    for turn in range(2):
        x, y = batch(turn)
        for optimizer in optimizers:
            optimizer.zero_grad()
        torch.manual_seed(turn)
        scalers[1].scale(mixed(theirs, x, y)).backward()
        torch.manual_seed(turn)
        with torch.autocast(device, dtype=dtype, enabled=not inside):
            step(x, y, gradient=scalers[0].scale(torch.ones(())))
        same(ours, theirs)
        for scaler, optimizer in zip(scalers, optimizers, strict=True):
            scaler.step(optimizer)
            scaler.update()
    same(ours, theirs)
    if not inside:
        with pytest.raises(ExecutionError, match=r"autocast was .*float16 when .* and is off"):
            step(*batch())


def test_frozen_and_unused_parameters_and_modes(device: str) -> None:
    def make() -> nn.Module:
        net = Net()
        net.unused = nn.Linear(2, 2)
        net.first.weight.requires_grad_(False)
        net.blocks[1].eval()
        return net

    ours, theirs = twins(make)
    step = planned(ours)
    for turn in range(2):
        torch.manual_seed(turn)
        step(*batch(turn))
        torch.manual_seed(turn)
        loss(theirs, *batch(turn)).backward()
    same(ours, theirs)
    assert ours.unused.weight.grad is None
    assert ours.first.weight.grad is None
    assert not ours.blocks[1].training


def test_state_dict_and_other_parameters(device: str) -> None:
    ours, theirs = twins()
    step = planned(ours)
    state = {
        k: torch.rand_like(v) if v.is_floating_point() else v for k, v in ours.state_dict().items()
    }
    for assign in (False, True):  # True puts new tensors into the model
        for model in (ours, theirs):
            model.load_state_dict(copy.deepcopy(state), assign=assign)
            if assign and model is ours:
                with pytest.raises(ExecutionError, match=r"last.weight were one tensor"):
                    step(*batch())
            model.last.weight = model.inner.weight
            model.zero_grad()
        torch.manual_seed(3)
        step(*batch())
        torch.manual_seed(3)
        loss(theirs, *batch()).backward()
        same(ours, theirs)


def test_hooks_of_parameters(device: str) -> None:
    ours, theirs = twins()
    step = planned(ours)
    calls: list[tuple[str, float]] = []
    for model, tag in ((ours, "ours"), (theirs, "theirs")):
        model.first.weight.register_hook(lambda g: 2 * g)
        model.first.bias.register_post_accumulate_grad_hook(
            lambda p, tag=tag: calls.append((tag, float(p.grad.sum())))
        )
    torch.manual_seed(0)
    step(*batch())
    torch.manual_seed(0)
    loss(theirs, *batch()).backward()
    same(ours, theirs)
    assert [tag for tag, _ in calls] == ["ours", "theirs"]
    assert calls[0][1] == calls[1][1]


def test_shared_gradient_storage(device: str) -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = (nn.Parameter(torch.rand(3, 3)) for _ in range(2))

        def forward(self, x: Tensor) -> Tensor:
            return ((self.a + self.b) * x).sum() + self.a.sum()

    ours, theirs = twins(Sum)
    example = (torch.rand(3, 3),)
    step = rematbench.apply(ours, None, example, CheckpointAll(), costmodel="flops")
    for _ in range(2):
        step(*example)
        theirs(*example).backward()
        same(ours, theirs)
    ours.a.grad.zero_()
    assert ours.b.grad.any()


def test_a_weight_of_three_layers_and_a_tied_embedding() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(20, 8)
            self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))
            for layer in self.layers[1:]:
                layer.weight = self.layers[0].weight
            self.head = nn.Linear(8, 20, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, x: Tensor) -> Tensor:
            hidden = self.embedding(x)
            for layer in self.layers:
                hidden = torch.tanh(layer(hidden))
            return F.cross_entropy(self.head(hidden).flatten(0, 1), x.flatten())

    ours, theirs = twins(Tied)
    example = (torch.randint(20, (4, 7)),)
    step = rematbench.apply(ours, None, example, CheckpointAll(), costmodel="flops")
    for _ in range(2):
        step(*example)
        theirs(*example).backward()
        same(ours, theirs)


def test_a_thousand_steps_leave_nothing_behind(device: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)])
    example = (torch.rand(2, 4),)
    step = rematbench.apply(
        model, lambda m, x: m(x).sum(), example, LinearizedSqrt(), costmodel="flops"
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def turn() -> None:
        step(*example)
        optimizer.step()
        optimizer.zero_grad()

    counts, memory = [], []
    for number in range(1000):
        turn()
        if number in (9, 999):
            gc.collect()
            counts.append(len(gc.get_objects()))
            reading = peak_of(turn, device)  # the optimizer's state was made in the first
            memory.append((reading.peak_bytes, reading.kept_bytes))
    assert counts[1] - counts[0] < 50
    assert memory[0] == memory[1]
    assert memory[0][1] == 0


def _changed(what: str) -> tuple[nn.Module, training.Step, tuple[Tensor, ...]]:
    model = Net(depth=3)
    step = rematbench.apply(model, loss, batch(), CheckpointAll(), costmodel="flops")
    x, y = batch()
    if what == "size":
        x, y = batch(size=5)
    elif what == "dtype":
        x = x.double()
    elif what == "layout":
        x = x.to(memory_format=torch.channels_last)
    elif what == "items":
        return model, step, (x,)
    elif what == "mode":
        model.eval()
    elif what == "part":
        model.blocks[2][1].eval()
    elif what == "frozen":
        model.last.bias.requires_grad_(False)
    elif what == "double":
        model.double()
    elif what == "gone":
        del model.last.bias
    return model, step, (x, y)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        (
            "size",
            r"item 0 of the batch: shape was \(8, 3, 16, 16\) .* is \(5, 3, 16, 16\); call app",
        ),
        ("dtype", "dtype was float32 when the plan was made and is float64; call apply"),
        ("layout", "stride was .*contiguous"),
        ("items", "the batch has 1 items, the example had 2"),
        ("mode", r"the model was in train mode .* is in eval mode; call model.train\(\)"),
        ("part", r"blocks.2.1 was in train mode"),
        ("frozen", "parameter last.bias: requires_grad was True .* is False; call apply"),
        ("double", "parameter last.weight: dtype was float32 .* is float64"),
        ("gone", "parameter last.bias of the model is gone"),
    ],
)
def test_what_changed_is_told(what: str, message: str) -> None:
    model, step, given = _changed(what)
    with pytest.raises(ExecutionError, match=message):
        step(*given)
    assert all(p.grad is None for p in model.parameters())


def test_bad_input(tmp_path: Path) -> None:
    model = Net(depth=3)
    step = rematbench.apply(model, loss, batch(), CheckpointAll(), costmodel="flops")
    step.save(tmp_path / "plan.json")
    foreign = {"loss": loss, "plan": tmp_path / "plan.json", "costmodel": "flops"}
    with pytest.raises(PlanError, match=r"the plan is for Net\[8x3x16x16:float32;8:int64\]#"):
        rematbench.apply(model, example=batch(size=4), **foreign)
    with pytest.raises(PlanError, match="the plan is for Net"):
        rematbench.apply(Net(4), example=batch(), **foreign)
    whole = step.plan.statements
    lacking = Plan(whole[:-8])
    with pytest.raises(PlanError, match=r"does not fit Net.*statement"):
        rematbench.apply(model, loss, batch(), lacking, costmodel="flops")
    with pytest.raises(ConfigError, match="is no plan"):
        rematbench.apply(model, loss, batch(), 17, costmodel="flops")  # type: ignore[arg-type]
    with pytest.raises(BudgetError):
        planned(model, "8 apples")
    with pytest.raises(Infeasible):
        planned(model, 0.01)
    with pytest.raises(ConfigError, match="reserve=8GiB leaves nothing"):
        planned(model, "1GiB", reserve="8GiB")
    with pytest.raises(ConfigError, match="item 0 of the example batch needs a gradient"):
        planned(model, example=(torch.rand(8, 3, 16, 16, requires_grad=True), batch()[1]))
    with pytest.raises(ExecutionError, match="gradient has 2 entries"):
        step(*batch(), gradient=torch.ones(2))
    with pytest.raises(ExecutionError, match="gradient is a float; give a tensor"):
        step(*batch(), gradient=2.0)  # type: ignore[arg-type]


def test_a_strategy_by_name_and_by_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given: dict[str, Any] = {"loss": loss, "example": batch(), "costmodel": "flops"}
    model = Net(depth=3)
    by_object = rematbench.apply(model, plan=LinearizedGreedy(), budget=0.7, **given).plan
    for name in ("linearized_greedy", LinearizedGreedy):
        assert rematbench.apply(model, plan=name, budget=0.7, **given).plan == by_object
    nothing = "did you mean linearized_greedy.*nor is there a plan file of that name"
    with pytest.raises(ConfigError, match=nothing):
        rematbench.apply(model, plan="linearised_greedy", **given)
    with pytest.raises(PlanError, match="cannot be read"):
        rematbench.apply(model, plan="linearized_greedy.json", **given)
    with pytest.raises(ConfigError, match="Wanting cannot be made without arguments"):
        rematbench.apply(model, plan=Wanting, **given)
    # A file goes before a strategy of its name.
    write_plan("linearized_greedy", by_object)
    assert rematbench.apply(model, plan="linearized_greedy", **given).plan == by_object


def test_our_own_search_plans_where_no_strategy_is_given() -> None:
    model = nn.Sequential(*(nn.Linear(16, 16) for _ in range(6)))
    batch = (torch.randn(64, 16), torch.randn(64, 16))
    step = rematbench.apply(
        model, lambda m, x, y: (m(x) - y).square().mean(), batch, costmodel="flops"
    )
    assert step.plan.strategy == "Anytime"


def test_a_model_that_branches_on_data() -> None:
    class Branching(Net):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x if x.sum() > 0 else -x)

    with pytest.raises(CaptureError, match="depends on the values of its tensors"):
        planned(Branching())


def test_python_state_is_noticed() -> None:
    class Counting(Net):
        calls = 0

        def forward(self, x: Tensor) -> Tensor:
            self.calls += 1
            return super().forward(x) * self.calls

    with pytest.raises(ExecutionError, match=r"the captured loss is .*Python state"):
        planned(Counting())


def _parallel(rank: int, unused: bool, out: str) -> None:
    ours, theirs = twins()
    if unused:
        for model in (ours, theirs):
            model.unused = nn.Linear(2, 2)
            nn.init.zeros_(model.unused.weight)
            nn.init.zeros_(model.unused.bias)
    options = {"find_unused_parameters": unused, "bucket_cap_mb": 0.005}
    ours, theirs = (DistributedDataParallel(m, **options) for m in (ours, theirs))
    step = planned(ours)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.1) for m in (ours, theirs)]
    for turn in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        x, y = batch(2 * turn + rank)  # each process has its own
        with ours.no_sync(), theirs.no_sync():
            torch.manual_seed(turn)
            step(x, y)
            torch.manual_seed(turn)
            loss(theirs, x, y).backward()
        torch.manual_seed(turn)
        step(x, y)
        torch.manual_seed(turn)
        loss(theirs, x, y).backward()
        for optimizer in optimizers:
            optimizer.step()
        same(ours, theirs)
    total = float(sum(p.double().sum() for p in ours.parameters()))
    Path(out, f"{rank}.txt").write_text(total.hex())


@pytest.mark.parametrize("unused", [False, True])
def test_two_processes(tmp_path: Path, unused: bool) -> None:
    side_by_side(_parallel, tmp_path, unused, str(tmp_path))
    one, other = ((tmp_path / f"{rank}.txt").read_text() for rank in range(2))
    assert one == other  # parameters stay the same in both


def test_sharded_models_are_refused() -> None:
    """Whatever ``fully_shard`` has made a module of, also one within."""
    model, _ = twins()
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        fully_shard(next(model.children()))
        with pytest.raises(NotApplicable, match=r"FSDPModule moves .*block\.compile\(backend="):
            planned(model)
    finally:
        dist.destroy_process_group()


def test_static_graph_is_refused() -> None:
    class Wrapper(DistributedDataParallel):
        def __init__(self) -> None:
            nn.Module.__init__(self)
            self.static_graph = True

    with pytest.raises(NotApplicable, match="static_graph"):
        planned(Wrapper())
