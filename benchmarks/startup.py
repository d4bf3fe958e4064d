"""What a command costs where nothing is planned: its help, and a job that the cache has.

``python -m benchmarks.startup`` runs each by the code of today and of 4f1d762, in turns, and writes
``runs/benchmarks/startup.json``: CPU seconds of the process, with all that it starts.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

from benchmarks.figures import Figure, publish
from benchmarks.trees import NEEDED, both

COMMIT = NEEDED["startup"]
TURNS = 9
HELP = 0.15
"""CPU seconds at most."""
CACHED = 0.5
"""Of those of the earlier commit, at most."""
JOB = ("model=mobilenet_v2", "strategy=linearized_greedy", "budget=0.7")
OWN = (("cache", "cache"), ("hydra.run.dir", "run"))
"""Where a job keeps what: each tree has its own."""


def cpu_seconds(tree: Path, *words: str) -> float:
    """Of one ``rematbench`` by the code of a tree."""
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-m", "rematbench", *words]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment, cwd=tree)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def main() -> None:
    """Measure, print, write."""
    figures = []
    with both(COMMIT) as trees, tempfile.TemporaryDirectory() as name:
        for what, words in (("--help", ("--help",)), ("a cached job", JOB)):
            spent: tuple[list[float], list[float]] = ([], [])
            for turn in range(-1, TURNS):  # the first fills the cache
                for number, tree in enumerate(trees):
                    own = [f"{key}={name}/{number}/{at}" for key, at in OWN] if words == JOB else []
                    taken = cpu_seconds(tree, *words, *own)
                    if turn >= 0:
                        spent[number].append(taken)
            ours, theirs = map(median, spent)
            share = CACHED if words == JOB else None
            figures += [
                Figure(f"{what}: CPU seconds", ours, None if words == JOB else HELP, "s"),
                Figure(f"{what}: CPU seconds of {COMMIT}", theirs, None, "s"),
                Figure(f"{what}: over those of {COMMIT}", ours / theirs, share, "x"),
            ]
    publish("startup", figures)


if __name__ == "__main__":
    main()
