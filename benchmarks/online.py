"""The online runtime beside eager training: bits, peak, evictions, what its bookkeeping costs.

``python -m benchmarks.online`` trains one step of each model at 60 % of eager training's peak
above what is resident, and writes ``runs/benchmarks/online.json``. ``--device cuda`` for a GPU,
``--fraction 0.5`` for another budget, ``--heuristic lru`` for another heuristic.

Its bookkeeping stands beside that of the code of 4f1d762, each in processes of its own in turns:
of `tree_lstm` within the budget, and with small tensors and memory enough, where nothing is evicted
and bookkeeping is most of what a step takes.
"""

from __future__ import annotations

import argparse
import json

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor

from benchmarks.figures import Figure, publish
from benchmarks.trees import NEEDED, both, said
from rematbench.costmodel.device import peak_of, seconds_of, spread, steady_allocator
from rematbench.training.online.cells import HEURISTIC_NAMES
from rematbench.training.online.runtime import DtrRuntime, Report
from rematbench.zoo import make_model

# Sizes at which an operator takes longer than Python does, and activations outweigh gradients.
MODELS = {
    "tree_lstm": {
        "batch_size": 512,
        "depth": 4,
        "hidden": 128,
        "embedding": 128,
        "vocabulary": 1000,
    },
    "lstm_lm": {"batch_size": 128, "sequence_length": 16, "hidden": 256, "vocabulary": 500},
    "transformer_lm": {
        "batch_size": 8,
        "layers": 4,
        "width": 256,
        "heads": 8,
        "sequence_length": 128,
        "vocabulary": 1000,
    },
}
REPEATS = 9
COMMIT = NEEDED["online"]
TURNS = 2
PAIRED = {
    "tree_lstm": (MODELS["tree_lstm"], 0.6),
    "tree_lstm of small tensors": (
        {**MODELS["tree_lstm"], "batch_size": 8, "hidden": 16, "embedding": 16},
        2.0,
    ),
}
"""Sizes and budget, as a share of eager training's peak above what is resident."""
STEPS = """
import json, sys, time, types
import torch
from rematbench.costmodel.device import peak_of, steady_allocator
from rematbench.training.online.runtime import DtrRuntime
from rematbench.zoo import make_model

steady_allocator()
torch.set_num_threads(1)
marks = []

def clock(is_runtime):
    def now():
        found = time.perf_counter()
        marks.append((is_runtime, found))
        return found
    return types.SimpleNamespace(perf_counter=now)

for name, module in list(sys.modules.items()):
    if name.startswith("rematbench.training.online.") and hasattr(module, "time"):
        module.time = clock(name.endswith(".runtime"))
torch.manual_seed(0)
workload = make_model("tree_lstm", **json.loads(sys.argv[1]))
batch = workload.make_batch()
residents = [*workload.module.parameters(), *workload.module.buffers(), *batch]
budget = sum(tensor.untyped_storage().nbytes() for tensor in residents)
ops = 0

def eager():
    workload(*batch).backward()

def online():
    global ops
    with DtrRuntime(budget, residents=residents, costs="modelled") as runtime:
        eager()
    ops = runtime.report().ops

def spent(step):
    workload.module.zero_grad()
    torch.manual_seed(1)
    marks.clear()
    began = time.thread_time()
    step()
    return time.thread_time() - began

spent(eager)
workload.module.zero_grad()
budget += int(float(sys.argv[2]) * peak_of(eager, "cpu").peak_bytes)
for _ in range(3):
    spent(online)
least, plain, ours = None, [], []
for _ in range(15):
    plain.append(spent(eager))
    ours.append(spent(online))
    found = [after - before for (_, before), (_, after) in zip(marks, marks[1:])]
    least = found if least is None else [min(pair) for pair in zip(least, found, strict=True)]
inside = running = False
total = 0.0
for (is_runtime, _), gap in zip(marks, least):
    inside, running = inside ^ is_runtime, running ^ (not is_runtime)
    total += gap if inside and not running else 0.0
print(total / ops, min(ours) / min(plain))
"""
"""Seconds of bookkeeping per op, and CPU seconds of a step over an eager one's, on one thread.

Costs are modelled, so that every step evicts the same, and reads the clock at the same places: of
what lies between two of its readings, inside the runtime and outside of operators, the least of 15
steps counts, which no other work has interrupted."""


class OnlineStep:
    """One training step of a model, eager or within a budget, always from the same seed."""

    def __init__(self, name: str, device: str, heuristic: str) -> None:
        torch.manual_seed(0)
        self.device, self.heuristic = device, heuristic
        self.workload = make_model(name, **MODELS[name])
        self.module = self.workload.module.to(device)
        self.batch = [tensor.to(device) for tensor in self.workload.make_batch()]
        self.residents = [*self.module.parameters(), *self.module.buffers(), *self.batch]
        self.resident_bytes = sum(t.untyped_storage().nbytes() for t in self.residents)
        self.report: Report | None = None

    def eager(self) -> None:
        torch.manual_seed(1)
        self.workload(*self.batch).backward()

    def online(self, budget: int) -> None:
        torch.manual_seed(1)
        with DtrRuntime(
            budget, heuristic=self.heuristic, residents=self.residents, device=self.device
        ) as runtime:
            self.workload(*self.batch).backward()
        self.report = runtime.report()

    def gradients(self) -> list[Tensor]:
        """Those of the last step, which the module gives away."""
        found = [p.grad for p in self.module.parameters() if p.grad is not None]
        self.module.zero_grad()
        return found


def measure(name: str, device: str, heuristic: str, fraction: float, table: Table) -> list[Figure]:
    """One model: check, then peak, then time, eager and online in turn."""
    step = OnlineStep(name, device, heuristic)
    step.eager()
    expected = step.gradients()
    eager_peak = peak_of(step.eager, device).peak_bytes
    step.gradients()
    budget = step.resident_bytes + int(fraction * eager_peak)
    step.online(budget)
    found = step.gradients()
    wrong = sum(not torch.equal(a, b) for a, b in zip(found, expected, strict=True))
    del found, expected
    peak = peak_of(lambda: step.online(budget), device).peak_bytes + step.resident_bytes
    step.gradients()
    eager, online = [], []
    for _ in range(REPEATS):
        eager.append(seconds_of(step.eager, device))
        step.gradients()
        online.append(seconds_of(lambda: step.online(budget), device))
        step.gradients()
    ratios = [ours / theirs for ours, theirs in zip(online, eager, strict=True)]
    report = step.report
    assert report is not None
    table.add_row(
        name,
        f"{(eager_peak + step.resident_bytes) / 1e6:.1f}",
        f"{budget / 1e6:.1f}",
        f"{peak / 1e6:.1f}",
        *(str(n) for n in (report.ops, report.evictions, report.rematerializations)),
        f"{spread(eager)[0]:.3f}",
        f"{spread(online)[0]:.3f}",
        f"{report.op_seconds:.3f}",
        f"{report.rematerialization_seconds:.3f}",
        f"{report.bookkeeping_seconds:.3f}",
    )
    return [
        Figure(f"{name}: gradients off by a bit", wrong, 0, ""),
        Figure(f"{name}: measured peak / budget", peak / budget, 1.0, "x"),
        Figure(f"{name}: time / eager", spread(ratios)[0], 2.0, "x"),
    ]


def beside_before() -> list[Figure]:
    """Bookkeeping per op, and CPU seconds of a step over an eager one's: by both codes."""
    figures = []
    with both(COMMIT) as trees:
        for name, (sizes, share) in PAIRED.items():
            words = json.dumps(sizes), f"{share:g}"
            found = [[said(tree, STEPS, *words) for tree in trees] for _ in range(TURNS)]
            ours, theirs = (
                [min(values) for values in zip(*runs, strict=True)]
                for runs in zip(*found, strict=True)
            )
            asked = 2.0 if share < 1 else None
            figures += [
                Figure(f"{name}: bookkeeping per op", 1e6 * ours[0], None, "us"),
                Figure(f"{name}: bookkeeping per op, {COMMIT}", 1e6 * theirs[0], None, "us"),
                Figure(f"{name}: bookkeeping / {COMMIT}'s", ours[0] / theirs[0], 0.5, "x"),
                Figure(f"{name}: CPU seconds / eager's", ours[1], asked, "x"),
                Figure(f"{name}: CPU seconds / eager's, {COMMIT}", theirs[1], None, "x"),
            ]
    return figures


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--heuristic", default="eqclass", choices=HEURISTIC_NAMES)
    parser.add_argument("--fraction", default=0.6, type=float)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    given = parser.parse_args()
    if given.device == "cpu":
        steady_allocator()
    table = Table("model", "eager MB", "budget MB", "peak MB", "ops", "evicted", "repeated")
    for column in ("eager s", "online s", "ops s", "repeated s", "bookkeeping s"):
        table.add_column(column)
    figures = []
    for name in given.models:
        figures += measure(name, given.device, given.heuristic, given.fraction, table)
    Console(width=140).print(table)
    publish("online", [*figures, *(beside_before() if given.device == "cpu" else [])])


if __name__ == "__main__":
    main()
