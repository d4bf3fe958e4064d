"""What our ``torch.compile`` backend takes to compile, beside ``aot_eager``: CPU seconds.

``python -m benchmarks.compiling`` compiles the networks of :mod:`benchmarks.compile` in turns with
both, and writes ``runs/benchmarks/compiling.json``. Each time it is a new function, after a reset
of Dynamo and of what earlier compilations have left to the garbage collector; compiling is the
first step less the second. Nothing is measured op by op and no budget asked for, so that no plan
is searched: these have a limit and a cache of their own. Of the rounds the one with the least CPU
seconds counts, for each of the two.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.compile import NETWORKS, CompiledSteps, anew
from benchmarks.figures import Figure, publish
from rematbench.costmodel.device import steady_allocator
from rematbench.training.compiled.backend import regions

HOWS: dict[str, dict[str, Any]] = {
    "aot_eager": {"backend": "aot_eager"},
    "ours": {
        "backend": "rematbench",
        "options": {"costmodel": "flops", "cache": False, "progress": False},
    },
}
MORE = 2.0
"""CPU seconds more than ``aot_eager``'s, per 1,000 ops."""


def compiling(bench: CompiledSteps, how: dict[str, Any]) -> float:
    """CPU seconds of a first step less those of the next."""
    torch._dynamo.reset()
    gc.collect()
    forward = torch.compile(anew(bench.workload), fullgraph=True, **how)
    return _step(bench, forward) - _step(bench, forward)


def _step(bench: CompiledSteps, forward: Callable[..., Tensor]) -> float:
    began = time.process_time()
    bench.step(forward)
    spent = time.process_time() - began
    bench.clear()
    return spent


def measure(name: str, rounds: int) -> list[Figure]:
    """One network by both, in turns."""
    bench = CompiledSteps(name, NETWORKS[name]())
    spent: dict[str, list[float]] = {who: [] for who in HOWS}
    compiling(bench, HOWS["aot_eager"])  # what PyTorch imports on the way
    for who in [*HOWS] * rounds:
        spent[who].append(compiling(bench, HOWS[who]))
    (ops,) = {len(each.planned.graph.ops) for each in regions if each.planned is not None}
    regions.clear()
    ours, theirs = min(spent["ours"]), min(spent["aot_eager"])
    return [
        Figure(f"{name}: ops", ops, None, ""),
        Figure(f"{name}: aot_eager", theirs, None, "CPU s"),
        Figure(f"{name}: ours", ours, None, "CPU s"),
        Figure(f"{name}: ours over aot_eager's", ours / theirs, None, "x"),
        Figure(f"{name}: more per 1,000 ops", 1000 * (ours - theirs) / ops, MORE, "CPU s"),
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    steady_allocator()
    torch.set_num_threads(1)
    publish("compiling", [each for name in NETWORKS for each in measure(name, given.rounds)])


if __name__ == "__main__":
    main()
