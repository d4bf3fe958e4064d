"""``make figures`` from an empty cache: some 40 minutes.

``python -m benchmarks.paper_figures`` writes ``runs/benchmarks/paper_figures.json``, and all rows
to ``runs/reference/papers/quick.csv.gz``, which the papers' pages quote. What is in
``runs/figures`` and in the cache is put aside meanwhile, and what was made stays.
"""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, publish
from rematbench.rows.provenance import HOUSE, now

QUOTED = HOUSE / "runs" / "reference" / "papers" / "quick.csv.gz"


def put_aside(folder: Path) -> None:
    """Under another name, with the time in it."""
    if folder.exists():
        folder.rename(folder.with_name(f"{folder.name}-until-{now().replace(':', '')}"))


def main() -> None:
    """Measure, print, write."""
    for name in ("figures", "cache"):
        put_aside(HOUSE / "runs" / name)
    began = perf_counter()
    commands = Path(sys.executable).parent
    subprocess.run(["make", "figures", f"BIN={commands}", "READY="], cwd=HOUSE, check=True)
    spent = perf_counter() - began
    report = HOUSE / "runs" / "figures" / "report"
    drawn = len(list(report.glob("*.png")))
    rows = (report / "leaderboard.csv").read_bytes()
    QUOTED.write_bytes(gzip.compress(rows, mtime=0))
    figures = [
        Figure("make figures, quick profile", spent / 60, 30, "min"),
        Figure("figures and tables drawn", drawn, 46, "", at_least=True),
    ]
    publish("paper_figures", figures)


if __name__ == "__main__":
    main()
