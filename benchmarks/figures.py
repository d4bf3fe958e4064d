"""Measured figures beside the bounds that they must keep: a table, and a file with provenance."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

from rich.console import Console
from rich.table import Table

from rematbench.graphs.files import write_json
from rematbench.rows.provenance import HOUSE, machine, now, versions

RECORDS = Path("runs/benchmarks")
NOT_CODE = (":!runs", ":!docs", ":!tests", ":!.ci", ":!*.md")
"""What may differ from the commit: results, pages and tests."""
LOAD = round(os.getloadavg()[0], 1)
"""Processes that wanted a core when the benchmark began: 0 on an idle machine."""
_STARTED = perf_counter()


@dataclass(frozen=True)
class Figure:
    """One measured figure and the bound that it must keep.

    Attributes:
        bound: what was asked for; None where nothing was.
        at_least: the bound is the least value, not the most.
    """

    name: str
    value: float
    bound: float | None
    unit: str
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Is the value within its bound?"""
        if self.bound is None:
            return True
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def commit() -> str | None:
    """The checkout's commit, with ``-dirty`` where code differs from it; None outside git."""
    try:
        found = _git("rev-parse", "--short=12", "HEAD")
    except (OSError, subprocess.CalledProcessError):
        return None
    return found + "-dirty" * bool(changed_files())


def changed_files() -> list[str]:
    """Files of code that differ from the commit."""
    said = _git("status", "--porcelain", "--", ".", *NOT_CODE)
    return [line.split(maxsplit=1)[1] for line in said.splitlines()]


def same_code(earlier: str) -> bool:
    """Is the code at an earlier commit what it is now? Never of a ``-dirty`` one."""
    try:
        _git("diff", "--quiet", earlier, "--", ".", *NOT_CODE)
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=HOUSE, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def record_of(name: str) -> dict[str, Any] | None:
    """What a benchmark wrote last."""
    path = HOUSE / RECORDS / f"{name}.json"
    return json.loads(path.read_text()) if path.exists() else None


def publish(name: str, figures: Sequence[Figure], **more: Any) -> None:
    """Print the figures, and write them to ``runs/benchmarks/<name>.json``, with more facts.

    In the checkout ``docs/benchmarks.md`` is made anew, too.
    """
    table = Table("figure", "value", "bound", "unit", "kept")
    for f in figures:
        sign = ">=" if f.at_least else "<="
        bound = "" if f.bound is None else f"{sign} {f.bound:,.4g}"
        table.add_row(f.name, f"{f.value:,.4g}", bound, f.unit, "yes" if f.kept else "[red]no[/]")
    console = Console()
    console.print(table)
    if changed := changed_files() if commit() else []:
        console.print(
            f"[red]The record says -dirty[/]: {', '.join(changed[:5])} differ from the commit. "
            "Commit first, and run again."
        )
    facts = {
        "versions": versions(),
        "commit": commit(),
        "utc": now(),
        "machine": machine(),
        "seconds": round(perf_counter() - _STARTED, 1),
        "cpu_seconds": round(process_time() + os.times().children_user, 1),
        "load_before": LOAD,
    }
    rows = [{"figure": f.name, "kept": f.kept} | asdict(f) for f in figures]
    for row in rows:
        del row["name"]
    write_json(RECORDS / f"{name}.json", facts | more | {"figures": rows}, indent=1)
    if Path.cwd() == HOUSE:
        importlib.import_module("benchmarks.table").write_page()  # it imports this module
