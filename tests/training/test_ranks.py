"""Several ranks: compiled blocks under FSDP2, DDP and tensor parallelism, by one plan."""

from __future__ import annotations

import copy
import os
import re
import traceback
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from compiling import options
from processes import side_by_side
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    RowwiseParallel,
    parallelize_module,
)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import rematbench
from rematbench import costmodel as costs
from rematbench.base.errors import ExecutionError
from rematbench.costmodel.device import peak_of
from rematbench.graphs.planning import Problem, Solution
from rematbench.strategies.chen import LinearizedGreedy
from rematbench.training.compiled import backend as compiled, calls, planning, ranks, sizes

Wrap = Callable[[Any], Any]
WIDTH = 16
MIXED = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def forget() -> None:
    """Nothing is compiled or known."""
    torch._dynamo.reset()
    compiled.regions.clear()
    sizes.forget()
    calls.forget()


class Block(nn.Module):
    def __init__(self, dropout: float, width: int = WIDTH) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.drop(self.down(F.gelu(self.up(x))))


class Blocks(nn.Module):
    def __init__(self, dropout: float = 0.1, checkpointed: bool = False) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(dropout) for _ in range(3))
        self.head = nn.Linear(WIDTH, 4)
        self.checkpointed = checkpointed

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False) if self.checkpointed else block(x)
        return self.head(x)


def sharded(model: Any, per_block: bool = True, **facts: Any) -> Any:
    for block in model.blocks if per_block else ():
        fully_shard(block, **facts)
    return fully_shard(model, **facts)


def parallel(model: Any) -> Any:
    """Both products of each block divided between the ranks."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for block in model.blocks:
        parallelize_module(block, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    return model


def local(tensor: Any) -> Any:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def alike(
    rank: int,
    wrap: Wrap,
    budget: float = 0.8,
    costmodel: str = "flops",
    counted: bool = False,
    **facts: Any,
) -> None:
    """Compiled blocks leave the gradients of blocks that are not, to the last bit.

    The ranks run the same plans, of which rank 0 makes all.

    Args:
        counted: this rank's peak is within the budget, with all that is gathered and reduced.
    """
    torch.manual_seed(0)
    model = Blocks(**facts)
    twin = copy.deepcopy(model)
    pair = [wrap(model), wrap(twin)]
    for block in model.blocks:
        block.compile(backend="rematbench", options=options(budget, costmodel=costmodel))
    optimizers = [torch.optim.SGD(each.parameters(), 0.01) for each in pair]
    for number in range(3):
        gradients = []
        for each, optimizer in zip(pair, optimizers, strict=True):
            torch.manual_seed(10 * number + rank)
            turn(each)
            gradients.append([local(parameter.grad).clone() for parameter in each.parameters()])
            optimizer.step()
            optimizer.zero_grad()
        names = [name for name, _ in model.named_parameters()]
        for name, one, other in zip(names, *gradients, strict=True):
            assert torch.equal(one, other), (number, name)
    plans = [plan for region in compiled.regions for plan in region.plans]
    assert len(plans) >= 2
    assert any(plan.trace.recomputations for plan in plans)
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, sorted(plan.plan.hash(plan.graph) for plan in plans))
    assert found == [found[0]] * len(found)
    if counted:
        (step,) = rematbench.explain(model).steps
        assert step.budget_bytes is not None
        assert peak(pair[0]) <= step.budget_bytes


def turn(model: Any) -> None:
    model(torch.randn(256, WIDTH)).square().mean().backward()


def peak(model: Any) -> int:
    """Shards included; the least, since what gloo's threads let go may not be seen at once."""
    shards = sum(local(parameter).nbytes for parameter in model.parameters())
    found = []
    for _ in range(4):
        found.append(peak_of(lambda: turn(model), "cpu").peak_bytes)
        model.zero_grad()
    return min(found) + shards


CASES: dict[str, Callable[[int], None]] = {
    "DDP": partial(alike, wrap=DistributedDataParallel, costmodel="profiled"),
    "FSDP per block": partial(alike, wrap=sharded, counted=True),
    "FSDP whole": partial(alike, wrap=partial(sharded, per_block=False), counted=True),
    "FSDP that keeps what it gathers": partial(
        alike, wrap=partial(sharded, reshard_after_forward=False), counted=True
    ),
    "FSDP in bfloat16": partial(  # without dropout, which a trace scales otherwise there
        alike, wrap=partial(sharded, mp_policy=MIXED), dropout=0.0
    ),
    "FSDP of checkpointed blocks": partial(alike, wrap=sharded, checkpointed=True, budget=0.95),
    "tensor parallel": partial(alike, wrap=parallel),
}


def unwanted(*args: Any, **options: Any) -> Any:
    raise AssertionError("measured or planned by another rank than rank 0")


# DDP orders its buckets by when gradients came, and so sums of more than two terms: not so.
UNORDERED = partial(DistributedDataParallel, find_unused_parameters=True)
OF_FOUR: dict[str, Callable[[int], None]] = {
    "DDP": partial(alike, wrap=UNORDERED),
    **{name: CASES[name] for name in ("FSDP per block", "FSDP whole")},
    "tensor parallel": partial(alike, wrap=parallel, budget=0.9),  # less of each block is here
}


def every_case(rank: int, folder: str, cases: Mapping[str, Callable[[int], None]] = CASES) -> None:
    """Each case in the same processes; what went wrong goes into a file of its name."""
    if rank > 0:
        planning._searched = costs.apply = unwanted
    for name, case in cases.items():
        forget()
        try:
            case(rank)
            said = ""
        except Exception:
            said = traceback.format_exc()
        Path(folder, f"{name}.{rank}").write_text(said)


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where each rank has written what went wrong in each case."""
    folder = tmp_path_factory.mktemp("ranks")
    side_by_side(every_case, folder, str(folder))
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_ranks(name: str, said: Path) -> None:
    assert [(said / f"{name}.{rank}").read_text() for rank in range(2)] == ["", ""]


def test_four_ranks(tmp_path: Path) -> None:
    side_by_side(every_case, tmp_path, str(tmp_path), OF_FOUR, ranks=4)
    for name in OF_FOUR:
        assert [(tmp_path / f"{name}.{rank}").read_text() for rank in range(4)] == [""] * 4


class Dies(LinearizedGreedy):
    """A strategy that is ended while it plans."""

    def plan(self, problem: Problem) -> Solution:
        os._exit(0)


def lost(rank: int, folder: str) -> None:
    """What ranks say that have different graphs, or no other rank beside them."""
    said: list[str] = []

    def step(width: int, **others: Any) -> None:
        forget()
        block = Block(0.0, width)
        block.compile(backend="rematbench", options=options(0.9, **others))
        with pytest.raises(ExecutionError) as error:
            block(torch.randn(64, width))
        said.append(str(error.value))
        Path(folder, f"said{rank}").write_text("\n".join(said))

    step(8 + 8 * rank)
    ranks.SILENCE = 8.0
    if rank == 0:
        step(8)
    else:
        next(ranks._numbers)  # and does not come
    Path(folder, f"done{rank}").touch()  # of side_by_side
    dist.barrier()
    step(8, strategy=Dies())


def test_ranks_that_differ_or_are_lost(tmp_path: Path) -> None:
    side_by_side(lost, tmp_path, str(tmp_path))
    first, second = ((tmp_path / f"said{rank}").read_text().splitlines() for rank in range(2))
    differ = r"Block: ranks have different graphs, .*rank 0 has \w{16}, rank 1 has \w{16}; give"
    assert re.match(differ, first[0])
    assert second[0] == first[0]
    assert len(set(re.findall(r"has (\w{16})", first[0]))) == 2
    assert "rank 0 has waited 8 s for a plan of all ranks, and rank 1 is gone" in first[1]
    assert "rank 1 has waited 8 s for a plan of all ranks, and rank 0 is gone" in second[1]
