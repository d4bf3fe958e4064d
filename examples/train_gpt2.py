"""A Hugging Face causal language model, trained within a budget by one line.

    python examples/train_gpt2.py --budget 0.6
    python examples/train_gpt2.py --budget 0.6 --lower inductor

Two copies of a small GPT-2 with random weights read the same text, bytes of a module of Python's
standard library: one as usual, one compiled by rematbench within a share of the other's measured
peak. Losses are compared, dropout included, and what was planned is told.
"""

from __future__ import annotations

import argparse as text
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from beside import Batch, arguments, side_by_side
from torch import Tensor, nn

from rematbench.zoo.vision import import_torchvision

import_torchvision()  # before transformers, which imports it, too
from transformers import GPT2Config, GPT2LMHeadModel  # noqa: E402


def batches(steps: int, batch_size: int, length: int) -> Iterator[Batch]:
    """Pieces of the text, as bytes."""
    data = torch.tensor(list(inspect.getsource(text).encode()))
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        starts = torch.randint(len(data) - length, (batch_size,), generator=generator)
        yield (torch.stack([data[i : i + length] for i in starts.tolist()]),)


def small_gpt2(length: int, layers: int, width: int) -> nn.Module:
    """GPT-2 with random weights, whose tokens are bytes."""
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=256,
        n_positions=length,
        n_layer=layers,
        n_embd=width,
        n_head=max(1, width // 32),
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = GPT2LMHeadModel(config).train()
    model.loss_type = "ForCausalLM"  # else the loss logs that it guesses so: no part of a graph
    return model


def loss(model: Any, batch: Batch) -> Tensor:
    (tokens,) = batch
    found: Tensor = model(input_ids=tokens, labels=tokens).loss
    return found


def main() -> None:
    given = arguments(__doc__.splitlines()[0], batch_size=8, length=128, layers=4, width=128)
    plain = small_gpt2(given.length, given.layers, given.width)
    data = list(batches(given.steps, given.batch_size, given.length))

    def compiled(model: nn.Module, options: dict[str, Any]) -> Any:
        return torch.compile(model, backend="rematbench", options=options)

    side_by_side(given, plain, loss, data, compiled)


if __name__ == "__main__":
    main()
