"""The commands that people begin with: the quickstart sweep and its figure, and one resumed.

``python -m benchmarks.commands`` writes ``runs/benchmarks/commands.json``. The sweep starts as on a
new machine: with no cache, and no kernel compiled. Set-up is not in it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, publish


def seconds(kernels: Path, *words: str) -> float:
    """Of one command, by the clock; it keeps compiled kernels in this folder."""
    began = perf_counter()
    environment = os.environ | {"NUMBA_CACHE_DIR": str(kernels)}
    subprocess.run([sys.executable, *words], check=True, env=environment)
    return perf_counter() - began


def main() -> None:
    """Measure, print, write."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        own = [f"cache={folder / 'cache'}", f"hydra.sweep.dir={folder / 'quickstart'}"]
        sweep = ["-m", "rematbench", "-m", "experiment=quickstart", *own]
        draw = Path(sys.executable).with_name("rematbench-report")
        report = [str(draw), str(folder / "quickstart"), "--figure", "overhead"]
        kernels = folder / "kernels"
        spent = seconds(kernels, *sweep)
        rows = len(list((folder / "quickstart").glob("*/row.json")))
        drawn = seconds(kernels, *report, "--out", str(folder / "report"))
        again = seconds(kernels, *sweep)
    figures = [
        Figure("make bench, nothing compiled: sweep, and figure", spent + drawn, 180, "s"),
        Figure("make bench: rows", rows, 100, "", at_least=True),
        Figure("the same sweep, resumed", again, None, "s"),
        Figure("the same sweep, resumed: for each finished row", again / rows, 0.25, "s"),
    ]
    publish("commands", figures)


if __name__ == "__main__":
    main()
