"""The same language model as in train_gpt2.py, trained by transformers' Trainer within a budget.

    python examples/train_gpt2_trainer.py --budget 0.6

``model.compile(backend="rematbench", options={...})`` is the one line; the Trainer is untouched,
but for a subclass that measures the peak of its last step.
"""

from __future__ import annotations

import copy
import tempfile
from typing import Any

from beside import Run, arguments, compared, options, tell
from torch import Tensor, nn
from train_gpt2 import batches, small_gpt2

from rematbench.costmodel.device import peak_of

# isort: split
from transformers import Trainer, TrainingArguments  # after train_gpt2, which imports torchvision


class MeasuredTrainer(Trainer):  # type: ignore[misc]
    """A Trainer that measures its last step."""

    peak_bytes = 0
    steps = 0

    def training_step(self, model: nn.Module, inputs: dict[str, Tensor], *more: Any) -> Tensor:
        self.steps += 1
        if self.steps != self.args.max_steps:
            return super().training_step(model, inputs, *more)
        found: list[Tensor] = []
        step = super().training_step
        reading = peak_of(lambda: found.append(step(model, inputs, *more)), "cpu")
        held = (*model.parameters(), *model.buffers(), *inputs.values())
        self.peak_bytes = reading.peak_bytes + sum(t.nbytes for t in held)
        return found[0]


def trained(model: nn.Module, data: list[dict[str, Tensor]], steps: int, batch_size: int) -> Run:
    """Train by the Trainer; the texts in their order."""
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            max_steps=steps,
            per_device_train_batch_size=batch_size,
            learning_rate=1e-3,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            seed=1,
        )
        trainer = MeasuredTrainer(model=model, args=arguments, train_dataset=data)
        seconds = trainer.train().metrics["train_runtime"]
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    return Run(losses, trainer.peak_bytes, seconds / steps)


def main() -> None:
    given = arguments(__doc__.splitlines()[0], batch_size=8, length=128, layers=4, width=128)
    plain = small_gpt2(given.length, given.layers, given.width)
    planned = copy.deepcopy(plain)
    pieces = [
        row for (rows,) in batches(given.steps, given.batch_size, given.length) for row in rows
    ]
    data = [{"input_ids": piece, "labels": piece} for piece in pieces]
    expected = trained(plain, data, given.steps, given.batch_size)
    tell("as usual:", expected)
    planned.compile(backend="rematbench", options=options(given, expected.peak_bytes))
    found = trained(planned, data, given.steps, given.batch_size)
    tell("compiled:", found)
    compared(given, expected, found, planned)


if __name__ == "__main__":
    main()
