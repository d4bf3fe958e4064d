"""Our own speed and exactness: capture, simulation, execution beside eager training.

``python -m benchmarks.spine`` prints a table of figures beside their targets and writes them,
with provenance, to ``runs/benchmarks/spine.json``. ``--quick`` leaves out the large captures.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from benchmarks.figures import Figure, publish
from benchmarks.train import ratios
from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.plan import Plan
from rematbench.graphs.simulate import simulate
from rematbench.tracing.captured import Captured

# Batches where the budgets of a sweep are at least 1.2 times the floor.
MODELS = {
    "vgg16": {"batch_size": 16, "resolution": 128},
    "resnet50": {"batch_size": 16, "resolution": 128},
    "mobilenet_v2": {"batch_size": 32, "resolution": 128},
    "unet": {"batch_size": 2, "resolution": "160x224", "base_channels": 32},
}
CAPTURES = {"resnet50": 10.0, "densenet161": 60.0}
CAPTURE_BYTES = 2 * 10**9


def simulation() -> list[Figure]:
    """Statements per second on a chain of 2,000 layers in which every other is recomputed."""
    graph = unit_chain(2000)
    codes = plan_with_checkpoints(graph, set(range(1, 2000, 2))).codes(graph)
    plan = Plan.from_codes(graph, codes)
    simulate(graph, plan)  # compiles
    rounds = 200
    began = time.perf_counter()
    for _ in range(rounds):
        simulate(graph, plan)
    rate = rounds * len(codes) / (time.perf_counter() - began)
    return [Figure("simulate", rate, 1e6, "statements/s", at_least=True)]


def capture_alone(name: str) -> None:
    """Child process: capture at batch 256, 224 px; print seconds, bytes of RSS, ops."""
    from rematbench.graphs.ir import Phase
    from rematbench.tracing.trace import capture
    from rematbench.zoo import make_model

    workload = make_model(name, batch_size=256, resolution=224)
    began = time.perf_counter()
    graph = capture(workload).graph
    seconds = time.perf_counter() - began
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    ops = sum(op.phase is not Phase.BACKWARD for op in graph.ops)
    print(json.dumps([seconds, rss, ops]))


def captures() -> list[Figure]:
    """Seconds and memory of captures, each in a process of its own."""
    figures = []
    for name, bound in CAPTURES.items():
        asked = [sys.executable, "-m", "benchmarks.spine", "--capture", name]
        done = subprocess.run(asked, check=True, capture_output=True, text=True)
        seconds, rss, ops = json.loads(done.stdout.splitlines()[-1])
        figures.append(Figure(f"capture {name}, batch 256", seconds, bound, "s"))
        figures.append(Figure(f"capture {name}, memory", rss / 1e9, CAPTURE_BYTES / 1e9, "GB"))
        if name == "resnet50":
            figures.append(Figure("resnet50, forward and loss", ops, 229, "ops"))
    return figures


def execution(name: str) -> list[Figure]:
    """Checkpoint-all and a recomputing plan, executed beside eager training."""
    from rematbench import costmodel
    from rematbench.graphs.plan import program_order
    from rematbench.tracing.trace import capture
    from rematbench.validator import measure
    from rematbench.zoo import make_model

    captured = capture(make_model(name, **MODELS[name]))
    graph = costmodel.apply("profiled", captured.graph, captured, device="cpu")
    plans = {
        "checkpoint_all": program_order(graph),
        "recompute all": plan_with_checkpoints(graph, {graph.loss_index - 1}),
    }
    figures = []
    for kind, plan in plans.items():
        found = measure(captured, plan, device="cpu", repeats=7)
        peak = simulate(graph, plan).peak_bytes
        error = abs(peak - found.measured_peak_bytes)
        allowed = max(2**20, found.measured_peak_bytes // 100)
        what = f"{name}, {kind}"
        figures.append(Figure(f"{what}: |simulated - measured| peak", error, allowed, "bytes"))
        figures.append(Figure(f"{what}: tensors off by a bit", not found.gradient_bitwise, 0, ""))
        if kind == "checkpoint_all":
            figures += beside_eager(what, captured, plan)
            ratio = found.measured_peak_bytes / found.eager_peak_bytes
            figures.append(Figure(f"{what}: peak / eager", ratio, 1.01, "x"))
    return figures


def beside_eager(what: str, captured: Captured, plan: Plan) -> list[Figure]:
    """Seconds of a plan's step over those of eager training, in turns."""
    from rematbench.validator import generate
    from rematbench.validator.check import validator_of

    bench, program = validator_of(captured, "cpu", 0).bench, generate(captured, plan)
    before = bench.buffers()

    def eager() -> None:
        bench.eager()
        bench.clear(before)

    wall, cpu = ratios(lambda: bench.run(program), eager, 7)
    return [
        Figure(f"{what}: time / eager", wall, 1.03, "x"),
        Figure(f"{what}: CPU seconds / eager", cpu, 1.03, "x"),
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="leave out the large captures")
    parser.add_argument("--capture", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.capture:
        capture_alone(given.capture)
        return
    figures = simulation() + ([] if given.quick else captures())
    for name in MODELS:
        figures += execution(name)
    publish("spine", figures)


if __name__ == "__main__":
    main()
