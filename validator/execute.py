"""Runs plans, and eager training beside them, on real data on a device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from rematbench.costmodel.device import require
from rematbench.tracing.captured import Captured
from rematbench.tracing.devices import device_of
from rematbench.validator.codegen import Program
from rematbench.validator.compare import StepResult, same


class RandomReplay:
    """Replays random draws: a recomputed dropout must drop what it dropped before."""

    def __init__(self, device: str) -> None:
        self._generator = device_of(device)
        self._states: dict[int, Tensor] = {}
        self._present: Tensor | None = None

    def record(self, op: int) -> None:
        """Remember the generator's state before the first compute of ``op``."""
        self._states[op] = self._generator.get_state()

    def state(self, op: int) -> Tensor:
        """What was remembered of ``op``."""
        return self._states[op]

    def restore(self, op: int, state: Tensor) -> None:
        """Remember of ``op`` what another object did."""
        self._states[op] = state

    def replay(self, op: int) -> None:
        """Go back to that state for a recompute."""
        self._present = self._generator.get_state()
        self._generator.set_state(self._states[op])

    def resume(self) -> None:
        """Go on where the step was before ``replay``."""
        assert self._present is not None
        self._generator.set_state(self._present)
        self._present = None


@contextmanager
def own_dropout() -> Iterator[None]:
    """Dropout by the kernel that a trace holds, whose mask is of bits.

    Eager training on the CPU draws a mask in the tensor's type, scaled: 1 / 0.9 is 1.109 in
    bfloat16. In single and double precision both are the same.
    """
    plain = torch.nn.functional.dropout

    def own(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
        high = input.dtype in (torch.float32, torch.float64)
        if high or inplace or not training or not 0 < p < 1:
            return plain(input, p, training, inplace)
        return torch.native_dropout(input, p, training)[0]

    torch.nn.functional.dropout = own
    try:
        yield
    finally:
        torch.nn.functional.dropout = plain


@contextmanager
def own_batch_norm() -> Iterator[None]:
    """Batch norms by PyTorch's own kernels, which a trace holds, instead of cuDNN's.

    Eager training on CUDA asks cuDNN, whose last bits differ; a deep network makes a different
    gradient of them (see :mod:`rematbench.validator.rounding`). cuDNN is switched off around the
    call: its argument ``cudnn_enabled`` is ignored. The backward pass follows the forward one.
    """
    plain = torch.batch_norm

    def own(*arguments: Any) -> Tensor:
        enabled = torch.backends.cudnn.enabled
        torch.backends.cudnn.enabled = False
        try:
            return plain(*arguments)
        finally:
            torch.backends.cudnn.enabled = enabled

    torch.batch_norm = own  # what torch.nn.functional calls
    try:
        yield
    finally:
        torch.batch_norm = plain


class Bench:
    """One captured model on one device, with one batch: runs plans and eager steps on it.

    Every run starts from the same parameters, buffers, batch and random state; none changes
    them.

    Args:
        captured: the model.
        device: ``cpu`` or an accelerator's name; the one that it was captured for.
        seed: of the batch and of the step's own random draws.
    """

    def __init__(self, captured: Captured, device: str, seed: int) -> None:
        require(device)
        self.captured, self.device, self.seed = captured, device, seed
        self.module = captured.workload.module.to(device).train()
        torch.manual_seed(seed)
        with torch.device(device):
            self.batch = captured.workload.make_batch()
        self.residents = tuple(self._residents())
        self._held = torch.empty(0, dtype=torch.uint8, device=device)
        self.mutated = [name for name, _ in self.module.named_buffers()]

    def _residents(self) -> list[Tensor]:
        parameters = dict(self.module.named_parameters(remove_duplicate=False))
        buffers = dict(self.module.named_buffers(remove_duplicate=False))
        find = {
            "parameter": lambda r: parameters[r.target].detach(),
            "buffer": lambda r: buffers[r.target].detach(),
            "input": lambda r: self.batch[r.target],
            "tangent": lambda r: torch.ones((), device=self.device, dtype=self._dtype(r.tensor)),
            "constant": lambda r: self.captured.constants[r.tensor].to(self.device),
        }
        return [find[resident.kind](resident) for resident in self.captured.residents]

    def _dtype(self, tensor: str) -> torch.dtype:
        return self.captured.tensors[tensor].dtype

    def hold(self, held_bytes: int) -> bool:
        """Take memory that a training run holds beside its steps, and let go of what was held.

        Returns:
            Is it another amount than before?
        """
        if held_bytes == self._held.numel():
            return False
        self._held = torch.empty(0, dtype=torch.uint8, device=self.device)
        self._held = torch.empty(held_bytes, dtype=torch.uint8, device=self.device)
        return True

    @property
    def resident_bytes(self) -> int:
        """Bytes of the residents' storages, each counted once, and of what is held besides."""
        storages = {t.untyped_storage().data_ptr(): t.untyped_storage() for t in self.residents}
        found: int = self._held.numel() + sum(each.nbytes() for each in storages.values())
        return found

    def run(
        self, program: Program, residents: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, ...]:
        """One training step by a plan; returns the raw results in ``program.results`` order.

        Args:
            residents: others than the bench's own, in the same order.
        """
        torch.manual_seed(self.seed + 1)
        with torch.no_grad():
            given = self.residents if residents is None else residents
            return program.run(given, RandomReplay(self.device))

    def result_of(self, raw: tuple[Tensor, ...]) -> StepResult:
        """Name the raw results of :meth:`run`."""
        loss, *rest = raw
        gradients = dict(zip(self.captured.gradients, rest, strict=False))
        buffers = dict(zip(self.captured.updates, rest[len(gradients) :], strict=True))
        return StepResult(loss, gradients, buffers)

    def eager(self) -> Tensor:
        """One ordinary training step; gradients stay in ``.grad``, buffers are updated."""
        torch.manual_seed(self.seed + 1)
        loss = self.captured.workload(*self.batch).reshape(())
        loss.backward()
        return loss.detach()

    def clear(self, buffers: dict[str, Tensor]) -> None:
        """Undo an eager step: drop gradients, restore ``buffers`` as :meth:`buffers` gave them."""
        self.module.zero_grad(set_to_none=True)
        with torch.no_grad():
            for name, buffer in self.module.named_buffers():
                buffer.copy_(buffers[name])

    def buffers(self) -> dict[str, Tensor]:
        """Copies of all buffers."""
        return {name: buffer.clone() for name, buffer in self.module.named_buffers()}

    def reference(self) -> StepResult:
        """The result of one eager step, by a trace's kernels; the model is left as it was."""
        before = self.buffers()
        try:
            with own_batch_norm(), own_dropout():
                loss = self.eager()
            named = self.module.named_parameters()
            gradients = {name: p.grad.clone() for name, p in named if p.grad is not None}
            changed = {
                name: b.clone()
                for name, b in self.module.named_buffers()
                if not same(b, before[name])
            }
        finally:  # memory may run out
            self.clear(before)
        return StepResult(loss, gradients, changed)
