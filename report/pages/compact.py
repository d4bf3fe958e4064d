"""The main page's data: columns instead of rows, repeated text once, numbers to seven digits."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from rematbench.base.meanings import Source
from rematbench.report.collect import Record
from rematbench.report.style import hex_colour, order, symbol
from rematbench.rows.row import COLUMNS, STATUSES, Row, cells, costs_of, means, memories_of

_MEANS = means()
_TEXT_LIMIT = 600  # of a cell on the main page; the CSV and the row's own page have all of it


def page_data(records: Sequence[Record], pages: Collection[str]) -> dict[str, Any]:
    """What the script of the main page works on.

    Args:
        pages: ids of the rows that have a page of their own.
    """
    rows = [record.row for record in records]
    labels, members = problems(rows)
    return {
        "count": len(rows),
        "columns": [_column(name, rows) for name in COLUMNS if name != "extra"],
        "budget": [budget_fraction(row) for row in rows],
        "problem": members,
        "problems": labels,
        "pages": [record.id if record.id in pages else 0 for record in records],
        "statuses": STATUSES,
        "strategies": {
            name: {"colour": hex_colour(name), "symbol": symbol(name)}
            for name in order({str(row["strategy"]) for row in rows})
        },
    }


def dump(data: Any) -> str:
    """JSON that may stand inside a ``script`` element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c")


def budget_fraction(row: Row) -> float | None:
    """The budget as a fraction, worked out for one in bytes; None for an unlimited one."""
    if row["budget_fraction"] is not None:
        return _rounded(row["budget_fraction"])
    facts: Mapping[str, Any] = row["extra"]
    base = facts.get(str(facts.get("budget_base"))) or row["checkpoint_all_peak_bytes"]
    if row["budget_bytes"] is None or not isinstance(base, (int, float)) or not base > 0:
        return None
    return _rounded(row["budget_bytes"] / base)


def problems(rows: Sequence[Row]) -> tuple[list[str], list[int]]:
    """The problems that rows solve, and the one of each row: these share a panel of curves.

    Same model, sizes, cost model and accounting, and the same graph; two labels that would be
    the same are told apart by the graph's hash.
    """
    known: dict[tuple[Any, ...], int] = {}
    members = [known.setdefault(_problem(row), len(known)) for row in rows]
    labels = [_label(key) for key in known]
    hashes = [key[-1] for key in known]
    return [
        f"{label} · graph {name}" if labels.count(label) > 1 else label
        for label, name in zip(labels, hashes, strict=True)
    ], members


def _problem(row: Row) -> tuple[Any, ...]:
    extra = row["extra"]
    # Measured costs differ from run to run, and so does the graph's hash.
    profiled = row["costmodel"] == "profiled"
    graph = f"of {row['ops']} ops" if profiled else row["graph_hash"]
    sizes = (row["batch_size"], row["resolution"], extra.get("length"), extra.get("lengths"))
    texts = tuple(None if size is None else str(size) for size in sizes)
    return (row["model"], *texts, costs_of(row), extra.get("accounting"), memories_of(row), graph)


def _label(key: tuple[Any, ...]) -> str:
    model, batch, resolution, length, lengths, cost, accounting, memories, _ = key
    parts = [str(model)]
    parts += [f"batch {batch}"] if batch else []
    parts += [f"{resolution} px"] if resolution else []
    parts += [f"length {length or lengths}"] if length or lengths else []
    parts += [f"{cost} cost"] if cost else []
    parts += [f"{accounting} accounting"] if accounting not in (None, "full") else []
    parts += [memories] if memories else []
    return " · ".join(parts)


def _column(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    values = [_cell(cells(row)[name]) for row in rows]
    head = {"name": name, "kind": _kind(name, values), "from": source(name)}
    distinct = list(dict.fromkeys(values))
    if len(distinct) <= max(1, len(values) // 2):
        place = {value: i for i, value in enumerate(distinct)}
        return head | {"distinct": distinct, "values": [place[value] for value in values]}
    return head | {"values": values}


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and len(value) > _TEXT_LIMIT:
        return value[:_TEXT_LIMIT] + " …"
    return _short(value)


def _short(value: Any) -> Any:
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float) -> float:
    return float(f"{value:.7g}")


def _kind(name: str, values: Sequence[Any]) -> str:
    if _MEANS[name].unit in ("bytes", "seconds", "ratio"):
        return _MEANS[name].unit
    return "text" if any(isinstance(value, str) for value in values) else "number"


def source(name: str) -> Source:
    """Where a column's numbers come from: never two of these on one axis."""
    return _MEANS[name].source
