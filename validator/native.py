"""PyTorch's own rematerialization, run as PyTorch runs it and judged like a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from costmodel.device import peak_of, seconds_of, spread, steady_allocator
from graphs.capture import Captured
from graphs.errors import ConfigError
from validator.check import compare
from validator.execute import Bench, StepResult

_FEWEST = 3  # modules in a row that are worth segments


@dataclass(frozen=True, slots=True)
class Native:
    """What was measured when PyTorch ran a step by its own means.

    Attributes:
        status: ``ok``, or ``failed`` with its ``reason``: an exception, or wrong results.
        measured_peak_bytes: most live bytes, residents included, of a warm step.
        measured_seconds: median of one warm step.
        eager_seconds, eager_peak_bytes: the same of eager training.
        gradient_max_error: relative to the largest entry; buffers included.
        gradient_bitwise: every bit of loss, gradients and buffers is equal.
        wrapped: what was put into segments (names of modules), of ``checkpoint``.
    """

    status: str
    reason: str | None = None
    measured_peak_bytes: int | None = None
    measured_seconds: float | None = None
    eager_seconds: float | None = None
    eager_peak_bytes: int | None = None
    gradient_max_error: float | None = None
    gradient_bitwise: bool | None = None
    wrapped: tuple[str, ...] = ()


def measure_native(
    captured: Captured, how: Mapping[str, Any], device: str, seed: int = 0, repeats: int = 5
) -> Native:
    """Run a step natively and compare it with eager training. What goes wrong is in the result.

    Args:
        how: ``{"how": "torch.compile", "ratio": .., "solver": ..}`` (the partitioner's activation
            budget, through ``backend="aot_eager"``) or ``{"how": "checkpoint", "segments": ..}``
            (``checkpoint_sequential`` on sequences of modules, ``checkpoint`` on each child of a
            model without any; None: sqrt of the length), or ``{"how": "selective"}`` (selective
            activation checkpointing: only convolutions and matrix products are kept).

    Raises:
        ConfigError: another ``how``.
    """
    if device == "cpu":
        steady_allocator()
    bench = Bench(captured, device, seed)
    before = bench.buffers()
    wrapped: tuple[str, ...] = ()
    # Before anything is wrapped: eager training runs the same modules.
    reference = bench.reference()
    eager = _costs(bench, bench.eager, repeats)
    try:
        with _stepper(bench, how) as (step, wrapped):
            verdict = compare(_result(bench, step, before), reference, exact=False)
            found = _costs(bench, step, repeats)
    except ConfigError:
        raise
    except Exception as error:
        words = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {' '.join(words[:2])}"
        return Native("failed", reason, wrapped=wrapped)
    finally:
        bench.clear(before)
    right = verdict.verdict == "ok"
    return Native(
        status="ok" if right else "failed",
        reason=None if right else verdict.verdict,
        measured_peak_bytes=found[0],
        measured_seconds=found[1],
        eager_seconds=eager[1],
        eager_peak_bytes=eager[0],
        gradient_max_error=verdict.max_error,
        gradient_bitwise=verdict.bitwise,
        wrapped=wrapped,
    )


def _costs(bench: Bench, run: Callable[[], Tensor], repeats: int) -> tuple[int, float]:
    """Peak bytes, residents included, and median seconds of warm steps."""
    before = bench.buffers()
    peak = peak_of(run, bench.device).peak_bytes
    bench.clear(before)
    seconds = []
    for _ in range(repeats):
        seconds.append(seconds_of(run, bench.device))
        bench.clear(before)
    return peak + bench.resident_bytes, spread(seconds)[0]


def _result(bench: Bench, step: Callable[[], Tensor], before: dict[str, Tensor]) -> StepResult:
    """The second step's results: the first one compiles."""
    for _ in range(2):
        bench.clear(before)
        loss = step()
    gradients = {
        n: p.grad.clone() for n, p in bench.module.named_parameters() if p.grad is not None
    }
    buffers = {n: b.clone() for n, b in bench.module.named_buffers()}
    bench.clear(before)
    return StepResult(loss, gradients, buffers)


@contextmanager
def _stepper(
    bench: Bench, how: Mapping[str, Any]
) -> Iterator[tuple[Callable[[], Tensor], tuple[str, ...]]]:
    """A native step, and what it wrapped; the model is its old self afterwards."""
    workload = bench.captured.workload

    def step(forward: Callable[..., Tensor]) -> Tensor:
        torch.manual_seed(bench.seed + 1)
        loss = forward(*bench.batch).reshape(())
        loss.backward()
        return loss.detach()

    kind = how.get("how")
    if kind == "torch.compile":
        from torch._functorch import config

        torch._dynamo.reset()
        compiled = torch.compile(lambda *batch: workload(*batch), backend="aot_eager")
        with config.patch(
            activation_memory_budget=how["ratio"], activation_memory_budget_solver=how["solver"]
        ):
            yield lambda: step(compiled), ()
    elif kind == "checkpoint":
        with _segments(bench.module, how.get("segments")) as wrapped:
            yield lambda: step(workload), wrapped
    elif kind == "selective":
        yield lambda: step(_selective(workload)), ()
    else:
        raise ConfigError(f"how={kind}: use torch.compile, checkpoint or selective")


@contextmanager
def _segments(module: nn.Module, segments: int | None) -> Iterator[tuple[str, ...]]:
    """Put the outermost sequences of modules into segments, while the context lasts."""
    rows = _sequences(module)
    chosen = rows or [(n, m) for n, m in module.named_children() if any(m.parameters())]
    for _, each in chosen:
        each.forward = _checkpointed(each, segments, bool(rows))
    try:
        yield tuple(name for name, _ in chosen)
    finally:
        for _, each in chosen:
            del each.forward


def _sequences(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Sequential]]:
    if type(module) is nn.Sequential and len(module) >= _FEWEST:
        return [(prefix, module)]
    found = []
    for name, child in module.named_children():
        found += _sequences(child, f"{prefix}.{name}".lstrip("."))
    return found


def _checkpointed(module: nn.Module, segments: int | None, in_a_row: bool) -> Callable[..., Any]:
    own = type(module).forward

    def whole(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(own, module, *args, use_reentrant=False, **kwargs)

    def sequence(x: Tensor) -> Any:
        assert isinstance(module, nn.Sequential)
        count = min(segments or isqrt(len(module)), len(module))
        return checkpoint_sequential(list(module), max(count, 2), x, use_reentrant=False)

    return sequence if in_a_row else whole


def _selective(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Keep what convolutions and matrix products make, run everything else again."""
    from torch.utils.checkpoint import CheckpointPolicy, create_selective_checkpoint_contexts

    ops = torch.ops.aten
    kept = {ops.convolution, ops.mm, ops.addmm, ops.bmm, ops.native_dropout, ops.bernoulli_}

    def policy(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
        keep = getattr(op, "overloadpacket", None) in kept
        return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

    def run(*batch: Tensor) -> Tensor:
        out: Tensor = checkpoint(
            forward,
            *batch,
            use_reentrant=False,
            context_fn=lambda: create_selective_checkpoint_contexts(policy),
        )
        return out

    return run
