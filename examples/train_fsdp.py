"""A model on several ranks under FSDP2, its blocks compiled within a budget.

    torchrun --standalone --nproc-per-node 2 examples/train_fsdp.py --budget 0.6

Each rank trains two sharded copies on data of its own: one as usual, one whose blocks are compiled
within a share of the other's measured peak. Rank 0 plans for all, compares and tells.
"""

from __future__ import annotations

import copy
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from beside import Batch, Run, arguments, compared, options, tell, train
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    """A feed-forward layer of a Transformer."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.drop(self.down(F.gelu(self.up(self.norm(x)))))
        return found


class Model(nn.Module):
    """Blocks, one after the other."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def sharded(model: Model) -> Model:
    """The model, each block of which is divided between the ranks."""
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def loss(model: Any, batch: Batch) -> Tensor:
    x, y = batch
    return F.mse_loss(model(x), y)


def worst(run: Run) -> Run:
    """The run with the largest peak of all ranks."""
    peaks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(peaks, run.peak_bytes)
    return Run(run.losses, max(peaks), run.seconds)


def main() -> None:
    given = arguments(__doc__.splitlines()[0], batch_size=256, layers=4, width=32)
    dist.init_process_group("gloo")
    first = dist.get_rank() == 0
    torch.manual_seed(0)
    plain = Model(given.layers, given.width)
    planned = sharded(copy.deepcopy(plain))
    sharded(plain)
    torch.manual_seed(dist.get_rank())
    shape = (given.batch_size, given.width)
    data = [(torch.randn(shape), torch.randn(shape)) for _ in range(given.steps)]
    expected = worst(train(plain, plain, loss, data))
    for block in planned.blocks:
        block.compile(backend="rematbench", options=options(given, expected.peak_bytes))
    found = worst(train(planned, planned, loss, data))
    if first:
        tell("as usual:", expected)
        tell("compiled:", found)
        compared(given, expected, found, planned)
    leave()


def leave() -> None:
    """End this process when all have come here, without Python's own end.

    A thread of gloo's that lets go of a tensor meanwhile would abort the process (pytorch#190489).
    """
    dist.barrier()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
