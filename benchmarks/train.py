"""Training with a plan beside eager training: time, memory, and what a thousand steps leave.

``python -m benchmarks.train`` prints figures beside their targets and writes them, with
provenance, to ``runs/benchmarks/train.json``. Steps alternate, so that a busy machine slows both
alike; a ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import copy
import gc
import statistics
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.figures import Figure, publish
from rematbench import apply
from rematbench.costmodel.device import peak_of, steady_allocator
from rematbench.strategies.base import Strategy
from rematbench.strategies.checkpoint_all import CheckpointAll
from rematbench.strategies.chen import LinearizedGreedy, LinearizedSqrt
from rematbench.zoo import make_model

Turn = Callable[[], object]


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def pair(
    model: nn.Module, batch: tuple[Tensor, Tensor], strategy: Strategy, budget: float | None
) -> tuple[Turn, Turn]:
    """One turn of training (step, optimizer, no gradients left) by a plan, and eagerly."""
    theirs = copy.deepcopy(model)
    step = apply(model, loss, batch, strategy, budget)
    return (
        _turn(model, lambda: step(*batch)),
        _turn(theirs, lambda: loss(theirs, *batch).backward()),
    )


def _turn(model: nn.Module, step: Turn) -> Turn:
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)

    def turn() -> None:
        step()
        optimizer.step()
        optimizer.zero_grad()

    turn()  # makes the optimizer's state
    return turn


def ratios(ours: Turn, theirs: Turn, repeats: int) -> tuple[float, float]:
    """Wall-clock and CPU seconds of our turn over those of theirs: medians, interleaved."""
    seconds: dict[Turn, list[tuple[float, float]]] = {ours: [], theirs: []}
    for number in range(2 * repeats):
        # Each goes first as often as the other.
        for turn in (ours, theirs) if number % 2 else (theirs, ours):
            wall, cpu = time.perf_counter(), time.process_time()
            turn()
            seconds[turn].append((time.perf_counter() - wall, time.process_time() - cpu))
    wall, cpu = (
        statistics.median(s[kind] for s in seconds[ours])
        / statistics.median(s[kind] for s in seconds[theirs])
        for kind in (0, 1)
    )
    return wall, cpu


def overhead(repeats: int) -> Iterator[Figure]:
    """Checkpoint-all on resnet50, and half the memory."""
    torch.manual_seed(0)
    workload = make_model("resnet50", batch_size=8, resolution=128)
    images, labels = workload.make_batch()
    model = workload.module.train()
    ours, theirs = pair(model, (images, labels), CheckpointAll(), None)
    wall, cpu = ratios(ours, theirs, repeats)
    yield Figure("resnet50, checkpoint-all: CPU seconds / eager", cpu, 1.05, "x")
    yield Figure("resnet50, checkpoint-all: wall clock / eager", wall, 1.05, "x")
    peaks = [peak_of(turn, "cpu").peak_bytes for turn in (ours, theirs)]
    yield Figure("resnet50, checkpoint-all: peak / eager", peaks[0] / peaks[1], 1.01, "x")


def half() -> Iterator[Figure]:
    """The peak of the third turn, residents and optimizer included, at half of eager's."""
    torch.manual_seed(0)
    model = make_model("resnet32", batch_size=64, blocks=5).module
    batch = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))
    kept = sum(t.nbytes for t in (*model.parameters(), *model.buffers(), *batch))
    kept += sum(p.nbytes for p in model.parameters())  # momentum
    ours, theirs = pair(model, batch, LinearizedGreedy(), 0.5)
    peaks = [peak_of(turn, "cpu").peak_bytes + kept for turn in (ours, theirs)]
    yield Figure("resnet32, budget 0.5: peak / eager", peaks[0] / peaks[1], 0.55, "x")


def thousand(steps: int) -> Iterator[Figure]:
    """What a small network's steps leave behind."""
    torch.manual_seed(0)
    model = nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)])
    batch = torch.randn(8, 16), torch.randint(16, (8,))
    ours, _ = pair(model, batch, LinearizedSqrt(), None)
    objects, memory, seconds = [], [], []
    for number in range(steps):
        began = time.process_time()
        ours()
        seconds.append(time.process_time() - began)
        if number in (9, steps - 1):
            gc.collect()
            objects.append(len(gc.get_objects()))
            memory.append(peak_of(ours, "cpu"))
    more = memory[1].peak_bytes - memory[0].peak_bytes
    yield Figure(f"peak after {steps} steps - after 10", more, 0, "bytes")
    yield Figure("kept by a turn", memory[1].kept_bytes, 0, "bytes")
    yield Figure(f"Python objects after {steps} steps - after 10", objects[1] - objects[0], 50, "")
    tenth = steps // 10
    late = statistics.median(seconds[-tenth:]) / statistics.median(seconds[tenth : 2 * tenth])
    yield Figure("CPU seconds of the last tenth / the second", late, 1.2, "x")


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=10, help="pairs of turns, in both orders")
    parser.add_argument("--steps", type=int, default=1000)
    given = parser.parse_args()
    steady_allocator()
    publish("train", [*overhead(given.repeats), *half(), *thousand(given.steps)])


if __name__ == "__main__":
    main()
