"""What the library and the site take: ``check`` of all records, ``make docs``, the largest page.

``python -m benchmarks.site`` writes ``runs/benchmarks/site.json``; ``make docs`` has what it needs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from benchmarks.figures import Figure, publish

LIBRARY = Path("build/site/library")


def seconds(*words: str) -> float:
    """Of one command, by the clock."""
    began = perf_counter()
    subprocess.run(words, check=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    return perf_counter() - began


def main() -> None:
    """Measure, print, write."""
    check = Path(sys.executable).with_name("rematbench-instances")
    checked = seconds(str(check), "check")
    built = seconds(sys.executable, "-m", "mkdocs", "build", "--quiet")
    largest = max(path.stat().st_size for path in LIBRARY.rglob("*.html"))
    figures = [
        Figure("rematbench-instances check: all records", checked, 120, "s"),
        Figure("make docs: the site, its needs being installed", built, 180, "s"),
        Figure("the library's largest page", largest / 1000, 300, "kB"),
    ]
    publish("site", figures)


if __name__ == "__main__":
    main()
