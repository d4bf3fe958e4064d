"""Golden rows of the figures' tests: few columns each, made whole here."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from rematbench.report.collect import Record
from rematbench.rows.row import COLUMNS, make_row

DATA = Path(__file__).parents[1] / "data" / "figures"


def records(name: str) -> list[Record]:
    """The rows of ``tests/data/figures/NAME.rows.csv``."""
    with (DATA / f"{name}.rows.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    return [
        Record(
            make_row(**{k: _value(k, v) for k, v in line.items()}), Path(f"{i}/row.json"), str(i)
        )
        for i, line in enumerate(lines)
    ]


def _value(column: str, text: str) -> object:
    assert column in COLUMNS
    if text == "":
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def expected(name: str) -> str:
    """What a figure plots, as CSV."""
    return (DATA / f"{name}.csv").read_text()
