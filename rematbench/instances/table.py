"""``instances/features.csv``: what each candidate is made of, and its features."""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from rematbench.base.json_files import write_bytes
from rematbench.instances.families import Candidate
from rematbench.instances.features import Features

FEATURES = tuple(field.name for field in fields(Features))
TABLE = ("family", "name", "words", "fractions", "chosen", "reason", "hash", "loss", *FEATURES)
"""Columns of ``features.csv``: ``reason`` says why a candidate has no features."""
Row = dict[str, str]


def source_of(row: Mapping[str, str]) -> Candidate:
    """What a row of ``features.csv`` was made of."""
    fractions = tuple(map(float, row["fractions"].split()))
    return Candidate(row["family"], row["name"], tuple(shlex.split(row["words"])), fractions)


def features_of(row: Mapping[str, str]) -> Features:
    """What it says of its graph."""
    kinds = {field.name: int if field.type == "int" else float for field in fields(Features)}
    found: dict[str, Any] = {name: kind(row[name]) for name, kind in kinds.items()}
    return Features(**found)


def row_of(source: Candidate) -> Row:
    """A candidate's row, before it is made."""
    known = {"family": source.family, "name": source.name, "words": shlex.join(source.words)}
    return dict.fromkeys(TABLE, "") | known | {"fractions": " ".join(map(str, source.fractions))}


def write_table(path: Path, columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """A CSV file, by atomic rename."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_bytes(path, text.getvalue().encode())


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
