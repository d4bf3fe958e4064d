"""The result row: one per job, in ``row.json`` and in ``leaderboard.csv``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rematbench.graphs.errors import ConfigError
from rematbench.graphs.json_files import (
    read_json,
    without_infinities,
    write_bytes,
    write_json,
)

COLUMNS = (
    # what was planned for
    "model",
    "batch_size",
    "resolution",
    "graph_hash",
    "ops",
    "values",
    # by whom
    "strategy",
    "variant",
    "budget_bytes",
    "budget_fraction",
    "status",
    "reason",
    # planned and simulated
    "cost",
    "cost_unit",
    "checkpoint_all_cost",
    "overhead",
    "bound",
    "gap",
    "bound_of",
    "objective",
    "recomputations",
    "checkpoints",
    "peak_bytes",
    "checkpoint_all_peak_bytes",
    "plan_seconds",
    # measured
    "measured_peak_bytes",
    "measured_reserved_bytes",
    "peak_error",
    "measured_seconds",
    "measured_overhead",
    "gradient_max_error",
    "gradient_bitwise",
    # provenance
    "device",
    "costmodel",
    "seed",
    "threads",
    "solver",
    "versions",
    "commit",
    "utc",
    "extra",
)
STATUSES = (
    "ok",
    "infeasible",
    "time_limit",
    "not_applicable",
    "out_of_memory",
    "thrashed",
    "failed",
)
# Statuses that a second run would give again; the others are not worth remembering.
LASTING = ("ok", "infeasible", "time_limit", "not_applicable", "thrashed")

Row = dict[str, Any]


def make_row(**known: Any) -> Row:
    """A row with every column, in order; what is not given is null.

    >>> make_row(model="vgg16", status="ok")["bound"] is None
    True
    """
    unknown = set(known) - set(COLUMNS)
    assert not unknown, unknown
    row: Row = dict.fromkeys(COLUMNS)
    return row | {"extra": {}} | known


def marked(experiment: str | None, group: str | None) -> dict[str, str]:
    """What ``extra`` says of who asked for a row: keys that are None are left out."""
    pairs = {"experiment": experiment, "group": group}
    return {key: str(value) for key, value in pairs.items() if value is not None}


def unmarked(row: Row) -> dict[str, Any]:
    """A row's ``extra``, from which it is taken out who asked for the row."""
    for key in ("experiment", "group"):
        row["extra"].pop(key, None)
    extra: dict[str, Any] = row["extra"]
    return extra


def read_row(path: Path) -> Row:
    """Read a ``row.json``.

    Raises:
        ConfigError: the file is damaged or is no row.
    """
    row = read_json(path, ConfigError)
    if not isinstance(row, dict) or not set(COLUMNS) <= set(row):
        raise ConfigError(f"{path}: not a row of this program; remove it or run its job again")
    return row


def finite(row: Row) -> Row:
    """The row with null for each NaN and infinity; ``extra.not_finite`` names them."""
    clean, lost = without_infinities(row)
    if lost:
        clean["extra"]["not_finite"] = lost
    found: Row = clean
    return found


def write_row(path: Path, row: Row) -> None:
    """Write a ``row.json``, by atomic rename; what is not finite is null, see :func:`finite`."""
    write_json(path, finite(row), indent=1)


def find_rows(folders: Iterable[Path]) -> list[Row]:
    """All rows under some folders (or single ``row.json`` files), in path order.

    Raises:
        ConfigError: a folder does not exist, or holds no row.
    """
    rows = []
    for folder in folders:
        if not folder.exists():
            raise ConfigError(f"{folder}: no such folder; give a run or sweep folder")
        paths = [folder] if folder.is_file() else list(folder.rglob("row.json"))
        if not paths:
            raise ConfigError(f"{folder}: holds no row.json; give a run or sweep folder")
        rows += [read_row(path) for path in sorted(paths, key=_natural)]
    return rows


def _natural(path: Path) -> tuple[Any, ...]:
    return tuple((part.isdigit(), int(part) if part.isdigit() else part) for part in path.parts)


def write_leaderboard(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV: the columns in order, ``extra`` as JSON, null as an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(row[column]) for column in COLUMNS] for row in rows)
    write_bytes(path, text.getvalue().encode())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def format_row(row: Row) -> str:
    """The row as ``column=value`` lines, without what is null."""
    return "\n".join(f"{c}={_cell(row[c])}" for c in COLUMNS if row[c] is not None)
