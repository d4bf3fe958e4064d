"""Training a model twice, as it is and compiled by rematbench: what the examples share."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from rematbench import explain
from rematbench.costmodel.device import peak_of, steady_allocator

Batch = tuple[Tensor, ...]
Loss = Callable[[Any, Batch], Tensor]
TOLERANCE = 1e-3  # of Inductor's losses, relative: its kernels round otherwise
AMPLIFIED = 2.0  # and at most so many times as far off as Inductor is without us


@dataclass(frozen=True)
class Run:
    """What a training run left behind.

    Attributes:
        losses: of each step.
        peak_bytes: of the forward and backward pass of the last step: parameters, buffers, batch
            and optimizer state included.
        seconds: median of the later steps.
    """

    losses: list[float]
    peak_bytes: int
    seconds: float


def arguments(description: str, **more: Any) -> argparse.Namespace:
    """Read the command line; ``more`` are options of one example, with their defaults."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--budget", type=float, default=0.6, help="share of the uncompiled peak")
    parser.add_argument("--lower", choices=["eager", "inductor"], default="eager")
    parser.add_argument("--strategy", default="anytime")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds for the strategy")
    parser.add_argument("--steps", type=int, default=10)
    for name, default in more.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(default), default=default)
    given = parser.parse_args()
    if not (given.steps >= 2 and 0 < given.budget <= 1):
        parser.error("give two steps or more, and a budget above 0 and up to 1")
    steady_allocator()
    return given


def options(given: argparse.Namespace, peak_bytes: int) -> dict[str, Any]:
    """What ``torch.compile`` is told, for a share of a measured peak."""
    if given.lower == "inductor":
        # Else Inductor draws random numbers of its own.
        torch._inductor.config.fallback_random = True
    return {
        "budget": int(given.budget * peak_bytes),
        "strategy": given.strategy,
        "time_limit": given.time_limit,
        "lower": given.lower,
    }


def train(module: nn.Module, call: Any, loss: Loss, batches: Sequence[Batch]) -> Run:
    """The plain loop.

    Args:
        call: the module, or what ``torch.compile`` made of it.
    """
    torch.manual_seed(1)
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-3)
    losses: list[float] = []
    seconds, peak = [], 0
    for number, batch in enumerate(batches):

        def turn(batch: Batch = batch) -> None:
            found = loss(call, batch)
            found.backward()
            losses.append(float(found.detach()))

        began = time.perf_counter()
        if number == len(batches) - 1:  # leaner plans have been tried, if Inductor needed them
            states = (t for each in optimizer.state.values() for t in each.values())
            own = (t for t in states if not isinstance(t, DTensor))  # on ranks it is not counted
            held = (*module.parameters(), *module.buffers(), *batch, *own)
            here = (t.to_local() if isinstance(t, DTensor) else t for t in held)
            peak = peak_of(turn, "cpu").peak_bytes + sum(t.nbytes for t in here)
        else:
            turn()
            seconds.append(time.perf_counter() - began)
        optimizer.step()
        optimizer.zero_grad()
    return Run(losses, peak, sorted(seconds)[len(seconds) // 2])


def tell(name: str, run: Run) -> None:
    """Print a run in one line."""
    print(
        f"{name:<10} loss {run.losses[0]:.4f} -> {run.losses[-1]:.4f}, peak "
        f"{run.peak_bytes / 2**20:.1f} MiB, {run.seconds:.3f} s a step",
        flush=True,
    )


def side_by_side(
    given: argparse.Namespace,
    plain: nn.Module,
    loss: Loss,
    batches: Sequence[Batch],
    compiled: Callable[[nn.Module, dict[str, Any]], Any],
) -> None:
    """Train a model as it is, and a copy of it compiled within a share of its peak; print both.

    Args:
        compiled: what compiles a model, with these options.
    """
    start, planned = copy.deepcopy(plain), copy.deepcopy(plain)
    expected = train(plain, plain, loss, batches)
    tell("as usual:", expected)
    found = train(planned, compiled(planned, options(given, expected.peak_bytes)), loss, batches)
    tell("compiled:", found)
    if given.lower == "eager":
        pairs = zip(plain.state_dict().values(), planned.state_dict().values(), strict=True)
        print(f"parameters and buffers equal: {all(torch.equal(a, b) for a, b in pairs)}")
    tolerance = 0.0
    if given.lower == "inductor":
        twin = copy.deepcopy(start)
        torch._dynamo.reset()
        alone = train(twin, torch.compile(twin), loss, batches)
        tell("Inductor:", alone)
        tolerance = max(TOLERANCE, AMPLIFIED * apart(expected, alone))
    compared(given, expected, found, planned, tolerance)


def apart(one: Run, other: Run) -> float:
    """The largest relative difference of a step's losses."""
    return max(abs(a - b) / abs(a) for a, b in zip(one.losses, other.losses, strict=True))


def compared(
    given: argparse.Namespace,
    plain: Run,
    planned: Run,
    model: nn.Module,
    tolerance: float = TOLERANCE,
) -> None:
    """Print whether losses and budget were kept; ends the program where they were not.

    Args:
        model: the compiled one, whose plan is told, too.
        tolerance: of Inductor's losses.
    """
    print(explain(model))
    allowed = given.budget * plain.peak_bytes
    kept = planned.peak_bytes <= allowed
    print(f"peak within {allowed / 2**20:.1f} MiB: {kept}")
    if given.lower == "eager":
        same = plain.losses == planned.losses
        print(f"losses equal to the last bit: {same}")
    else:
        same = apart(plain, planned) <= tolerance
        print(f"losses equal within {tolerance:.1g}: {same} ({apart(plain, planned):.1g})")
    if not (kept and same):
        raise SystemExit(1)
