"""The commands that people begin with: the quickstart sweep and its figure, and one resumed.

``python -m benchmarks.commands`` runs them by the code of today and of 2815b6c6, one after the
other, and writes ``runs/benchmarks/commands.json``. Each sweep starts as on a new machine: with no
cache, and no kernel compiled. Set-up is not in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, publish
from benchmarks.trees import NEEDED, both

COMMIT = NEEDED["commands"]
"""The last one that compiled each strategy's kernels by one process, and composed each job anew."""


def seconds(tree: Path, kernels: Path, *words: str) -> float:
    """Of one command by the code of a tree; it keeps compiled kernels in a folder."""
    began = perf_counter()
    own = {"NUMBA_CACHE_DIR": str(kernels), "PYTHONPATH": str(tree), "PYTHONSAFEPATH": "1"}
    subprocess.run([sys.executable, *words], check=True, env=os.environ | own)
    return perf_counter() - began


def first_run(tree: Path) -> tuple[float, float, int]:
    """Seconds of the sweep and its figure on a new machine, and of the sweep resumed; its rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        kernels, sweep = folder / "kernels", folder / "quickstart"
        run = ["-m", "rematbench", "-m", "experiment=quickstart"]
        run += [f"cache={folder / 'cache'}", f"hydra.sweep.dir={sweep}"]
        report = str(Path(sys.executable).with_name("rematbench-report"))
        spent = seconds(tree, kernels, *run)
        drawn = [report, str(sweep), "--figure", "overhead", "--out", str(folder / "report")]
        spent += seconds(tree, kernels, *drawn)
        return spent, seconds(tree, kernels, *run), len(list(sweep.glob("*/row.json")))


def main() -> None:
    """Measure, print, write."""
    with both(COMMIT) as trees:
        (ours, again, rows), (theirs, _, _) = map(first_run, trees)
    what = "make bench, nothing compiled: sweep, and figure"
    figures = [
        Figure(what, ours, 180, "s"),
        Figure(f"{what}: of {COMMIT}", theirs, None, "s"),
        Figure(f"{what}: over that of {COMMIT}", ours / theirs, 1, "x"),
        Figure("make bench: rows", rows, 100, "", at_least=True),
        Figure("the same sweep, resumed", again, None, "s"),
        Figure("the same sweep, resumed: for each finished row", again / rows, 0.25, "s"),
    ]
    publish("commands", figures)


if __name__ == "__main__":
    main()
