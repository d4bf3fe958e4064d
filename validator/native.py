"""PyTorch's own rematerialization, run as PyTorch runs it and judged like a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from math import isqrt
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from rematbench.costmodel.device import peak_of, seconds_of, spread, steady_allocator
from rematbench.graphs.planning import CheckpointedRun, CompiledRun, NativeRun, PlannedRun
from rematbench.tracing.captured import Captured
from rematbench.validator.compare import StepResult, compare
from rematbench.validator.execute import Bench, own_batch_norm

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
        compile_seconds: of the first two steps, less two warm ones: tracing, code.
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
    compile_seconds: float | None = None


def measure_native(
    captured: Captured,
    how: NativeRun | PlannedRun,
    device: str,
    seed: int = 0,
    repeats: int = 5,
    held_bytes: int = 0,
) -> Native:
    """Run a step natively and compare it with eager training. What goes wrong is in the result.

    Args:
        how: compiled, by names of ops see
            :func:`rematbench.tracing.partition.knapsack_solver`; or checkpointed.
        held_bytes: of memory that is taken besides, an optimizer's; whoever took it holds it.
    """
    if device == "cpu":
        steady_allocator()
    bench = Bench(captured, device, seed)
    before = bench.buffers()
    wrapped: tuple[str, ...] = ()
    # Before anything is wrapped: eager training runs the same modules.
    reference = bench.reference()
    eager = _costs(bench, bench.eager, repeats, held_bytes)
    try:
        with _stepper(bench, how) as (step, wrapped):
            # The reference ran PyTorch's own batch norms; so does what was traced.
            eagerly = isinstance(how, CheckpointedRun)
            with own_batch_norm() if eagerly else nullcontext():
                began = perf_counter()
                result = _result(bench, step, before)
                first = perf_counter() - began
            verdict = compare(result, reference)
            found = _costs(bench, step, repeats, held_bytes)
    except Exception as error:
        words = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = f"{type(error).__name__}: {' '.join(words[:2])}"
        return Native("failed", reason, wrapped=wrapped)
    finally:
        bench.clear(before)
    return Native(
        status="ok" if verdict.reason is None else "failed",
        reason=verdict.reason,
        measured_peak_bytes=found[0],
        measured_seconds=found[1],
        eager_seconds=eager[1],
        eager_peak_bytes=eager[0],
        gradient_max_error=verdict.max_error,
        gradient_bitwise=verdict.bitwise,
        wrapped=wrapped,
        compile_seconds=None if eagerly else max(0.0, first - 2 * found[1]),
    )


def _costs(
    bench: Bench, run: Callable[[], Tensor], repeats: int, held_bytes: int
) -> tuple[int, float]:
    """Peak bytes, residents and what is held besides included, and median seconds of warm steps."""
    before = bench.buffers()
    peak = peak_of(run, bench.device).peak_bytes
    bench.clear(before)
    seconds = []
    for _ in range(repeats):
        seconds.append(seconds_of(run, bench.device))
        bench.clear(before)
    return peak + bench.resident_bytes + held_bytes, spread(seconds)[0]


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
    bench: Bench, how: NativeRun | PlannedRun
) -> Iterator[tuple[Callable[[], Tensor], tuple[str, ...]]]:
    """A native step, and what it wrapped; the model is its old self afterwards."""
    workload = bench.captured.workload

    def step(forward: Callable[..., Tensor]) -> Tensor:
        torch.manual_seed(bench.seed + 1)
        loss = forward(*bench.batch).reshape(())
        loss.backward()
        return loss.detach()

    if not isinstance(how, CheckpointedRun):
        compiled = _planned(bench, how) if isinstance(how, PlannedRun) else _compiled(bench, how)
        with compiled as forward:
            yield lambda: step(forward), ()
    else:
        with _segments(bench.module, how) as wrapped:
            yield lambda: step(workload), wrapped


@contextmanager
def _compiled(bench: Bench, how: CompiledRun) -> Iterator[Callable[..., Tensor]]:
    from torch._functorch import config
    from torch._inductor import config as inductor_config

    from rematbench.tracing.partition import SMALLEST_RATIO, knapsack_solver

    ratio = SMALLEST_RATIO if how.ratio is None else how.ratio
    solver: Any = how.solver
    if how.recomputed is not None:
        solver = knapsack_solver(how.recomputed, bench.captured.graph.op_index)
    memory = {"activation_memory_budget": ratio, "activation_memory_budget_solver": solver}
    with config.patch(memory), inductor_config.patch(fallback_random=True):
        yield _compile_whole(bench, backend=how.backend)


@contextmanager
def _planned(bench: Bench, how: PlannedRun) -> Iterator[Callable[..., Tensor]]:
    from torch._inductor import config as inductor_config

    text = {name: getattr(how, name) for name in ("lower", "budget", "time_limit", "costmodel")}
    text |= {"strategy": how.plan, "seed": bench.seed, "cache": False, "progress": False}
    with inductor_config.patch(fallback_random=True):  # else it draws other numbers
        yield _compile_whole(bench, backend="rematbench", options=text)


def _compile_whole(bench: Bench, **how: Any) -> Callable[..., Tensor]:
    """Forward pass and loss, to be compiled."""
    workload = bench.captured.workload
    torch._dynamo.reset()
    compiled: Callable[..., Tensor] = torch.compile(lambda *batch: workload(*batch), **how)
    return compiled


@dataclass(frozen=True)
class Policy:
    """Of selective activation checkpointing: keep what every n-th op of these kinds makes.

    Attributes:
        always: kinds of ops that are kept besides, and not counted.
    """

    kept: tuple[str, ...]
    every: int
    always: tuple[str, ...] = ()

    def contexts(self) -> Any:
        """A pair of contexts for ``torch.utils.checkpoint``, for the two runs of one segment."""
        seen = {False: 0, True: 0}  # in the first run, when run again

        def decide(context: Any, op: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
            again = context.is_recompute
            name = getattr(op, "overloadpacket", op).__name__
            if name in self.always:
                return CheckpointPolicy.MUST_SAVE
            if name not in self.kept:
                return CheckpointPolicy.PREFER_RECOMPUTE
            seen[again] += 1
            keep = (seen[again] - 1) % self.every == 0
            return CheckpointPolicy.MUST_SAVE if keep else CheckpointPolicy.PREFER_RECOMPUTE

        return create_selective_checkpoint_contexts(decide)


@contextmanager
def _segments(module: nn.Module, how: CheckpointedRun) -> Iterator[tuple[str, ...]]:
    """Put modules into segments, while the context lasts: those named, or the outermost rows."""
    policy = Policy(how.kept, how.every, how.always) if how.kept else None
    if how.modules or how.attention:
        chosen = [(name, module.get_submodule(name)) for name in how.modules]
        wrap = partial(_whole, policy=policy)
    else:
        chosen = _rows(module) or _with_parameters(module)
        wrap = partial(_checkpointed, segments=how.segments, policy=policy)
    for _, each in chosen:
        each.forward = wrap(each)
    try:
        with _checkpointed_attention() if how.attention else nullcontext():
            yield tuple(name for name, _ in chosen)
    finally:
        for _, each in chosen:
            del each.forward


@contextmanager
def _checkpointed_attention() -> Iterator[None]:
    """Every call of ``scaled_dot_product_attention`` runs again in the backward pass."""
    own = functional.scaled_dot_product_attention

    def again(*args: Any, **kwargs: Any) -> Tensor:
        found: Tensor = checkpoint(own, *args, use_reentrant=False, **kwargs)
        return found

    functional.scaled_dot_product_attention = again
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = own


def _rows(module: nn.Module, prefix: str = "") -> list[tuple[str, nn.Module]]:
    """Sequences of modules; of a list of modules (a transformer's blocks, say) each member."""
    if type(module) is nn.Sequential and len(module) >= _FEWEST:
        return [(prefix, module)]
    children = [(f"{prefix}.{n}".lstrip("."), m) for n, m in module.named_children()]
    if type(module) is nn.ModuleList and len(module) >= _FEWEST:
        return children
    return [found for name, child in children for found in _rows(child, name)]


def _with_parameters(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return [(name, child) for name, child in module.named_children() if any(child.parameters())]


def _whole(module: nn.Module, policy: Policy | None) -> Callable[..., Any]:
    own = type(module).forward
    options = {} if policy is None else {"context_fn": policy.contexts}

    def whole(*args: Any, **kwargs: Any) -> Any:
        return checkpoint(own, module, *args, use_reentrant=False, **options, **kwargs)

    return whole


def _checkpointed(
    module: nn.Module, segments: int | None, policy: Policy | None
) -> Callable[..., Any]:
    if type(module) is not nn.Sequential or len(module) < _FEWEST:
        return _whole(module, policy)
    row: nn.Sequential = module
    options = {} if policy is None else {"context_fn": policy.contexts}

    def sequence(x: Any) -> Any:
        """What ``checkpoint_sequential`` does, which takes no policy: the last segment stays."""
        count = max(min(segments or isqrt(len(row)), len(row)), 2)
        size = len(row) // count
        for start in range(0, size * (count - 1), size):
            part = row[start : start + size]
            x = checkpoint(part, x, use_reentrant=False, **options)
        for rest in list(row)[size * (count - 1) :]:
            x = rest(x)
        return x

    return sequence
