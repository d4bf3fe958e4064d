"""What is committed of our own numbers: benchmarks' records, claims, rows that pages quote."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

from rematbench.report.collect import collect
from rematbench.rows.row import Row

HOUSE = Path(__file__).parents[2]


def figures(record: str) -> dict[str, float]:
    """A benchmark's figures by name; of ``causes`` or of ``runs/benchmarks/causes.json``."""
    content = json.loads((HOUSE / f"runs/benchmarks/{Path(record).stem}.json").read_text())
    return {row["figure"]: row["value"] for row in content["figures"]}


def lines(place: str) -> list[dict[str, str]]:
    """Of a CSV file, compressed or not, by its path in the repository."""
    path = HOUSE / place
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(newline="") as file:
        return list(csv.DictReader(file))


def claims() -> list[dict[str, str]]:
    """The papers' claims and what we have of them."""
    return lines("docs/claims.csv")


def quoted(name: str) -> list[Row]:
    """The rows of ``runs/reference/papers/NAME.csv.gz``."""
    return collect([HOUSE / f"runs/reference/papers/{name}.csv.gz"]).rows
