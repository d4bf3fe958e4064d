"""Several ranks: compiled blocks under FSDP2 beside FSDP2 without us: gradients, peaks, time.

``python -m benchmarks.ranks`` starts two and then four processes that talk by gloo, prints figures
beside their targets and writes them, with provenance, to ``runs/benchmarks/ranks.json``. Each
process trains three copies of a model, sharded block by block or as a whole: by FSDP2 alone, with
its blocks compiled and a budget that ordinary training keeps to (checkpoint-all), and with one that
is a share of the measured peak. Their steps are timed in turns; a ratio is the median of those of
single turns, on the slowest rank.

A peak is the least of some readings: what gloo's threads let go, PyTorch's profiler does not see at
once, and now and then a buffer counts for too long.
"""

from __future__ import annotations

import argparse
import copy
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

from benchmarks.figures import Figure, publish
from rematbench import explain
from rematbench.costmodel.device import peak_of, steady_allocator

RANKS = (2, 4)
MODES = ("per block", "whole")
WIDTH, LAYERS, ROWS = 128, 4, 1024
SHARE = 0.8
READINGS = 5


class ShardedBlock(nn.Module):
    """A feed-forward layer of a Transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.down(F.gelu(self.up(self.norm(x))))
        return found


@dataclass
class ShardedRun:
    """One copy of the model in training.

    Attributes:
        gradients: of the last step, the parts that are here.
        seconds: of its timed steps.
    """

    model: Any
    optimizer: torch.optim.Optimizer
    gradients: list[Tensor]
    seconds: list[float]

    def step(self, seed: int) -> None:
        """Forward, backward, optimizer."""
        self.pass_(seed)
        self.gradients = [each.grad.to_local().clone() for each in self.model.parameters()]
        self.end()

    def pass_(self, seed: int) -> None:
        torch.manual_seed(1000 * seed + dist.get_rank())
        self.model(torch.randn(ROWS, WIDTH)).square().mean().backward()

    def end(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()

    def timed(self, seed: int) -> None:
        """A step, which all ranks begin together."""
        dist.barrier()
        began = time.perf_counter()
        self.pass_(seed)
        self.end()
        self.seconds.append(time.perf_counter() - began)

    def peak(self) -> int:
        """Bytes of a forward and backward pass, the shards of parameters included."""
        shards = sum(each.to_local().nbytes for each in self.model.parameters())
        found = []
        for seed in range(READINGS):
            dist.barrier()
            found.append(peak_of(lambda seed=seed: self.pass_(seed), "cpu").peak_bytes)
            self.end()
        return int(min(found) + shards)


def sharded(plain: nn.Sequential, mode: str, budget: int | None = None) -> ShardedRun:
    """A copy under FSDP2; with a budget, its blocks compiled."""
    model = copy.deepcopy(plain)
    for block in model if mode == "per block" else ():
        fully_shard(block)
    fully_shard(model)
    for block in model if budget is not None else ():
        given = {"budget": budget, "progress": False, "cache": False, "time_limit": 20}
        block.compile(backend="rematbench", options=given)
    return ShardedRun(model, torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9), [], [])


def _most(number: float) -> Any:
    """The largest of all ranks'."""
    return max(_all(number))


def _all(thing: Any) -> list[Any]:
    found: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(found, thing)
    return found


def _differ(runs: list[ShardedRun]) -> int:
    """How many gradients are not those of the first, bitwise."""
    alone, *others = runs
    pairs = (
        (one, other)
        for run in others
        for one, other in zip(alone.gradients, run.gradients, strict=True)
    )
    return sum(not torch.equal(one, other) for one, other in pairs)


def _ratios(seconds: list[float], alone: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(seconds, alone, strict=True))


def trained(plain: nn.Sequential, mode: str, turns: int) -> dict[str, Any]:
    """What one rank measures of a mode, and what it has heard of the others."""
    torch._dynamo.reset()
    alone = sharded(plain, mode)
    for seed in range(3):
        alone.step(seed)
    peak = _most(alone.peak())
    budget = int(SHARE * peak)
    runs = [alone := sharded(plain, mode), sharded(plain, mode, 100 * peak)]
    runs.append(sharded(plain, mode, budget))
    for run in reversed(runs):  # each alone: what a step holds outside of its graphs is counted
        for seed in range(4):
            run.step(seed)
    differ = _differ(runs)
    for turn in range(turns):
        for run in runs if turn % 2 else runs[::-1]:
            run.timed(turn)
    slowest = [list(map(max, zip(*_all(run.seconds), strict=True))) for run in runs]
    (together,) = explain(runs[2].model).steps
    return {
        "plain peak": peak,
        "budget": budget,
        "simulated peak": together.peak_bytes,
        "overhead": together.overhead,
        "differ": _all(differ),
        "peaks": _all(runs[2].peak()),
        "ratios": [_ratios(each, slowest[0]) for each in slowest[1:]],
        "seconds": statistics.median(slowest[0]),
    }


def _begin(rank: int, ranks: int, folder: str, turns: int, send: Any) -> None:
    torch.set_num_threads(1)
    steady_allocator()
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    dist.init_process_group("gloo", f"file://{folder}/meet", rank=rank, world_size=ranks)
    torch.manual_seed(0)
    plain = nn.Sequential(*(ShardedBlock() for _ in range(LAYERS)))
    for mode in MODES:
        found = trained(plain, mode, turns)
        if rank == 0:
            send.put((mode, found))
    dist.barrier()
    if rank == 0:
        send.close()
        send.join_thread()
    os._exit(0)  # PyTorch may wait for gloo's threads for ever where a group goes


def measured(ranks: int, turns: int) -> dict[str, dict[str, Any]]:
    """What so many processes find, by mode."""
    queue = mp.get_context("spawn").Queue()
    with tempfile.TemporaryDirectory() as folder:
        begin: Callable[..., None] = _begin
        mp.start_processes(begin, (ranks, folder, turns, queue), nprocs=ranks, start_method="spawn")
        return dict(queue.get() for _ in MODES)


def figures(ranks: int, mode: str, found: dict[str, Any]) -> Iterator[Figure]:
    """Of one mode."""
    name = f"{ranks} ranks, {mode}"
    yield Figure(f"{name}: gradients that are not FSDP2's, bitwise", sum(found["differ"]), 0, "")
    yield Figure(f"{name}: FSDP2's peak", found["plain peak"], None, "bytes")
    yield Figure(f"{name}: budget", found["budget"], None, "bytes")
    for rank, peak in enumerate(found["peaks"]):
        yield Figure(f"{name}, rank {rank}: peak / budget", peak / found["budget"], 1, "x")
    yield Figure(f"{name}: peak / simulated", max(found["peaks"]) / found["simulated peak"], 1, "x")
    free, planned = found["ratios"]
    yield Figure(f"{name}: FSDP2's step", found["seconds"], None, "s")
    yield Figure(f"{name}, checkpoint-all: time / FSDP2's", free, 1.05, "x")
    yield Figure(f"{name}, budget {SHARE}: time / FSDP2's", planned, None, "x")
    yield Figure(f"{name}, budget {SHARE}: simulated", 1 + found["overhead"], None, "x")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=20, help="timed steps of each")
    given = parser.parse_args()
    made = list[Figure]()
    for ranks in RANKS:
        for mode, found in measured(ranks, given.turns).items():
            made += figures(ranks, mode, found)
    publish("ranks", made, width=WIDTH, layers=LAYERS, rows=ROWS, turns=given.turns)


if __name__ == "__main__":
    main()
