"""A CIFAR-shaped training run at half the memory, with the loss curve of eager training.

    python examples/train_cifar.py --steps 200 --batch-size 128

Two copies of a ResNet are trained on the same synthetic images: one as usual, one by a plan whose
budget is half of ordinary training's peak. Losses, parameters and buffers are compared bit for bit;
the peak of each is measured from the second step on, optimizer included.
"""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rematbench import apply
from rematbench.costmodel.device import peak_of, steady_allocator
from rematbench.strategies.chen import LinearizedGreedy
from rematbench.zoo import make_model

Data = Iterator[tuple[Tensor, Tensor]]


def images(steps: int, batch_size: int, seed: int = 0) -> Data:
    """Batches of ten classes: a pattern each, and noise; standardised, with random flips."""
    generator = torch.Generator().manual_seed(seed)
    patterns = torch.randn(10, 3, 32, 32, generator=generator)
    for _ in range(steps):
        labels = torch.randint(10, (batch_size,), generator=generator)
        noise = torch.randn(batch_size, 3, 32, 32, generator=generator)
        batch = 0.3 * patterns[labels] + noise
        flipped = torch.rand(batch_size, generator=generator) < 0.5
        batch[flipped] = batch[flipped].flip(-1)
        yield batch, labels


def loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(model(x), y)


def train(model: nn.Module, step: Callable[..., Tensor], data: Data, steps: int) -> list[float]:
    """Train; returns the losses and prints peak and seconds per step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    kept = sum(t.nbytes for t in (*model.parameters(), *model.buffers()))
    curve, seconds, peak = [], 0.0, 0

    def turn() -> None:
        x, y = next(data)
        curve.append(float(step(x, y)))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()

    for number in range(steps):
        if number == 1:  # the optimizer's state is there, gradients are not
            state = sum(p.nbytes for p in model.parameters())  # momentum
            peak = peak_of(turn, "cpu").peak_bytes + kept + state
            continue
        began = time.perf_counter()
        turn()
        seconds += time.perf_counter() - began
    print(f"peak {peak / 2**20:.1f} MiB, {seconds / max(steps - 1, 1):.3f} s a step", flush=True)
    return curve


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--blocks", type=int, default=5, help="per stage of the ResNet")
    given = parser.parse_args()
    steady_allocator()
    torch.manual_seed(0)
    plain = make_model("resnet32", batch_size=given.batch_size, blocks=given.blocks).module
    planned = copy.deepcopy(plain)
    example = next(images(1, given.batch_size))
    step = apply(planned, loss, example, LinearizedGreedy(), budget=0.5, costmodel="profiled")
    print(step)

    def ordinary(x: Tensor, y: Tensor) -> Tensor:
        value = loss(plain, x, y)
        value.backward()
        return value.detach()

    print("eager:   ", end="")
    expected = train(plain, ordinary, images(given.steps, given.batch_size), given.steps)
    print("planned: ", end="")
    found = train(planned, step, images(given.steps, given.batch_size), given.steps)
    same = all(
        torch.equal(a, b)
        for a, b in zip(plain.state_dict().values(), planned.state_dict().values(), strict=True)
    )
    print(f"loss {expected[0]:.4f} -> {expected[-1]:.4f}")
    print(f"curves equal to the last bit: {found == expected}; parameters and buffers: {same}")


if __name__ == "__main__":
    main()
