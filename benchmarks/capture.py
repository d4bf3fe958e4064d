"""What a capture costs: seconds and memory by model and by number of ops, and a command's start.

``python -m benchmarks.capture`` prints figures beside their targets and writes them, with
provenance, to ``runs/benchmarks/capture.json``. Each capture runs in a process of its own, on one
thread, without data for its parameters. Seconds are those of the processor, which other programs
disturb less than the clock's. An earlier state of this repository (``--against COMMIT``) captures
in turns with ours, too.
"""

from __future__ import annotations

import argparse
import json
import os
import pty
import resource
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import Any

from benchmarks.figures import Figure, publish
from benchmarks.trees import FIRST, both, said

LAYERS = {12: 6.0, 48: 32.0, 192: 87.0}
"""Of ``transformer_lm``: 640, 2,512 and 10,000 ops; and the seconds allowed."""
SENTENCES = {"width": 256, "heads": 4, "sequence_length": 512, "vocabulary": 5000, "batch_size": 8}
LARGE = {"llama3_1b": 60.0, "llama3_8b": 150.0, "sdxl_unet": 150.0}
"""Models of other libraries, at their published sizes, and the seconds allowed."""
MOST_GB = 2.0
START = 3.0
"""Seconds from a command to the first phase that it shows."""


def capture_alone(name: str, options: dict[str, Any]) -> None:
    """One capture, in a process that does nothing else; prints what it took as JSON."""
    import torch

    from rematbench.tracing.costless import costless_parameters
    from rematbench.tracing.trace import capture
    from rematbench.zoo import make_model

    torch.set_num_threads(1)
    # What PyTorch imports and compiles at the first capture is not the model's.
    capture(make_model("transformer_lm", batch_size=1, layers=1, width=8, heads=1))
    with costless_parameters():
        workload = make_model(name, **options)
    spent = _export_timed()
    began = time.process_time()
    captured = capture(workload)
    seconds = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"ops": len(captured.graph.ops), "seconds": seconds, "bytes": peak}
    print(json.dumps(found | {"export": sum(spent)}))


def _export_timed() -> list[float]:
    """From now on, the CPU seconds of each call of PyTorch's own export."""
    from rematbench.tracing import export

    spent: list[float] = []
    exported = export.aot_export_joint_with_descriptors

    def timed(*given: Any, **options: Any) -> Any:
        began = time.process_time()
        try:
            return exported(*given, **options)
        finally:
            spent.append(time.process_time() - began)

    export.aot_export_joint_with_descriptors = timed
    return spent


def _capture(name: str, **options: Any) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.capture", "--alone", name, json.dumps(options)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(f"{name} {options.get('layers', '')}: {found}", flush=True)
    return found


def by_ops() -> list[Figure]:
    """The same model ever deeper: the cost of an op stays the same."""
    figures, each = [], []
    for layers, most in LAYERS.items():
        found = _capture("transformer_lm", layers=layers, **SENTENCES)
        each.append(found["seconds"] / found["ops"])
        name = f"transformer_lm, {found['ops']} ops"
        figures.append(Figure(name, found["seconds"], most, "s"))
        share = 100 * found["export"] / found["seconds"]
        figures.append(Figure(f"{name}: of it PyTorch's own export", share, None, "%"))
    ratio = max(each) / min(each)
    return [*figures, Figure("an op of the dearest capture over the cheapest", ratio, 1.5, "x")]


def large() -> list[Figure]:
    """Published sizes."""
    figures = []
    for name, most in LARGE.items():
        found = _capture(name)
        figures.append(Figure(f"{name}, {found['ops']} ops", found["seconds"], most, "s"))
        figures.append(Figure(f"{name}, resident", found["bytes"] / 1e9, MOST_GB, "GB"))
    return figures


IN_TURNS = """
import json, sys, time
import torch
from rematbench.tracing.trace import capture
from rematbench.zoo import make_model

torch.set_num_threads(1)
capture(make_model("transformer_lm", batch_size=1, layers=1, width=8, heads=1))
workload = make_model("transformer_lm", **json.loads(sys.argv[1]))
began = time.process_time()
captured = capture(workload)
print(len(captured.graph.ops), time.process_time() - began)
"""
TURNS, DEEP = 3, (12, 48)


def against(commit: str) -> list[Figure]:
    """Seconds of our captures over those of an earlier commit's, one after the other in turns."""
    figures = []
    with both(commit) as trees:
        for layers in DEEP:
            options = json.dumps({"layers": layers, **SENTENCES})
            turns = [[said(tree, IN_TURNS, options) for tree in trees] for _ in range(TURNS)]
            ratio = median(ours[1] / theirs[1] for ours, theirs in turns)
            ops, theirs = turns[0][0][0], median(turn[1][1] for turn in turns)
            name = f"transformer_lm, {ops:.0f} ops: seconds over those of {commit} ({theirs:.1f} s)"
            figures.append(Figure(name, ratio, 0.5, "x"))
            print(f"{name}: {ratio:.2f}", flush=True)
    return figures


def executed() -> Figure:
    """Does the captured gpt2 have eager training's loss and gradients, to the last bit?"""
    from rematbench.graphs.plan import program_order
    from rematbench.tracing.trace import capture
    from rematbench.validator import measure
    from rematbench.zoo import make_model

    captured = capture(make_model("gpt2", size="small"))
    result = measure(captured, program_order(captured.graph), device="cpu", repeats=1)
    return Figure("gpt2, small: bitwise", float(bool(result.gradient_bitwise)), 1.0, "", True)


def start() -> Figure:
    """From the command to the first phase that a terminal shows, by the clock; best of three."""
    return Figure("start to the first phase", min(_first_words() for _ in range(3)), START, "s")


def _first_words() -> float:
    ours, theirs = pty.openpty()
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "rematbench", "model=unit_chain", "cache=null"]
        began = time.perf_counter()
        child = subprocess.Popen(
            [*command, f"hydra.run.dir={folder}"], stderr=theirs, stdout=subprocess.DEVNULL
        )
        words = b""
        while b"unit_chain" not in words:
            words += os.read(ours, 1024)
        seconds = time.perf_counter() - began
        child.wait()
    os.close(ours)
    os.close(theirs)
    return seconds


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--alone", nargs=2, help=argparse.SUPPRESS)
    text = "an earlier state of this repository; '' for none"
    parser.add_argument("--against", metavar="COMMIT", default=FIRST, help=text)
    given = parser.parse_args()
    if given.alone:
        capture_alone(given.alone[0], json.loads(given.alone[1]))
        return
    # The last runs in this process: a child's peak is not below what its parent holds.
    earlier = against(given.against) if given.against else []
    publish("capture", [start(), *large(), *by_ops(), *earlier, executed()])


if __name__ == "__main__":
    main()
