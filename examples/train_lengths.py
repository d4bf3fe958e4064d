"""A language model on batches of changing lengths, trained within half of its memory.

    python examples/train_lengths.py --budget 0.5 --steps 50

Two copies of a small Transformer see the same made-up text: one as usual, one compiled by
rematbench within a share of what the other takes for the longest batch. Each new length gets a plan
from those of other lengths. Losses are compared, the seconds planned and the largest peak told.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from beside import arguments, options
from torch import Tensor, nn

from rematbench import explain
from rematbench.costmodel.device import peak_of

VOCABULARY = 256


class Block(nn.Module):
    """Attention and a perceptron, with dropout."""

    def __init__(self, width: int, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mix, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.rest = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor) -> Tensor:
        parts = self.mix(self.first(x)).unflatten(-1, (3, self.heads, -1))
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        found: Tensor = x + self.rest(self.second(x))
        return found


class LanguageModel(nn.Module):
    """Returns its loss, so that all of the step is in what is compiled."""

    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        blocks = [Block(width) for _ in range(layers)]
        self.body = nn.Sequential(nn.Embedding(VOCABULARY, width), *blocks)
        self.head = nn.Linear(width, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        logits = self.head(self.body(tokens[:, :-1]))
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())


def peak(model: nn.Module, call: Any, tokens: Tensor) -> int:
    """Bytes of a warm step, parameters and batch included."""
    taken = peak_of(lambda: call(tokens).backward(), "cpu").peak_bytes
    model.zero_grad()
    return taken + tokens.nbytes + sum(p.nbytes for p in model.parameters())


def train(model: nn.Module, call: Any, batches: Sequence[Tensor]) -> list[float]:
    torch.manual_seed(1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for tokens in batches:
        found = call(tokens)
        found.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(float(found.detach()))
    return losses


def main() -> None:
    given = arguments(__doc__.splitlines()[0], batch_size=8, shortest=32, longest=256, layers=4)
    torch.manual_seed(0)
    plain = LanguageModel(64, given.layers)
    planned, draw = copy.deepcopy(plain), random.Random(0)
    lengths = [given.longest]
    lengths += [draw.randint(given.shortest, given.longest) for _ in range(given.steps - 1)]
    batches = [torch.randint(VOCABULARY, (given.batch_size, length + 1)) for length in lengths]

    ordinary = peak(plain, plain, batches[0])
    asked = options(given, ordinary)
    run = torch.compile(planned, backend="rematbench", options=asked)
    expected, found = train(plain, plain, batches), train(planned, run, batches)
    largest = max(peak(planned, run, each) for each in (batches[0], *batches[-5:]))
    graphs = explain(planned).graphs
    measured = max(graph.measured_peak_bytes or 0 for graph in graphs)
    seconds = [graph.seconds for graph in graphs]
    print(
        f"{len(set(lengths))} lengths: ops measured for {sum(s for s, _ in seconds):.1f} s, "
        f"planned for {sum(s for _, s in seconds):.1f} s, {seconds[0][1]:.1f} of them the first"
    )
    print(f"largest peak {max(largest, measured) / 2**20:.1f} MiB of {ordinary / 2**20:.1f} MiB")
    kept, same = max(largest, measured) <= asked["budget"], expected == found
    print(f"peak within {asked['budget'] / 2**20:.1f} MiB: {kept}")
    print(f"losses equal to the last bit: {same}")
    if not (kept and (same or given.lower == "inductor")):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
