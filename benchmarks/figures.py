"""Measured figures beside the bounds that they must keep: a table, and a file with provenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

from rematbench.graphs.files import write_json
from rematbench.provenance import commit, now, versions


@dataclass(frozen=True)
class Figure:
    """One measured figure and the bound that it must keep."""

    name: str
    value: float
    bound: float
    unit: str
    at_least: bool = False

    @property
    def kept(self) -> bool:
        """Is the value within its bound?"""
        return self.value >= self.bound if self.at_least else self.value <= self.bound


def publish(name: str, figures: Sequence[Figure]) -> None:
    """Print the figures, and write them to ``runs/benchmarks/<name>.json``."""
    table = Table("figure", "value", "bound", "unit", "kept")
    for f in figures:
        sign = ">=" if f.at_least else "<="
        kept = "yes" if f.kept else "[red]no[/]"
        table.add_row(f.name, f"{f.value:,.4g}", f"{sign} {f.bound:,.4g}", f.unit, kept)
    Console().print(table)
    facts = {"versions": versions(), "commit": commit(), "utc": now()}
    rows = [{"figure": f.name, "value": f.value, "bound": f.bound, "kept": f.kept} for f in figures]
    write_json(Path(f"runs/benchmarks/{name}.json"), facts | {"figures": rows}, indent=1)
