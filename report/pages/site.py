"""The HTML report: one page that needs no other file, and a page for each row with a plan."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import repeat
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from rematbench.graphs.files import write_bytes
from rematbench.report.collect import Collected, Record, Skipped
from rematbench.report.pages.compact import dump, page_data
from rematbench.report.pages.rowpage import RowPages, filters, has_files
from rematbench.rows.provenance import now
from rematbench.rows.row import cells

ROWS = "rows"  # folder of the rows' own pages
_SHARE = 500  # rows that a process draws at a time
_MOST_PROBLEMS = 500  # told on the page


@dataclass(frozen=True)
class Written:
    """What a report has written."""

    index: Path
    row_pages: int
    problems: tuple[Skipped, ...]


def write_pages(collected: Collected, out: Path) -> Written:
    """Write ``index.html`` and ``rows/*.html``.

    Returns:
        With the problems: those of collecting, and plans and traces that could not be drawn.
    """
    from plotly.offline import get_plotlyjs  # slow to import, and not for those who draw pages

    pages = templates()
    ids, faults = _write_row_pages(collected.records, out / ROWS)
    problems = (*collected.problems, *faults)
    rows = collected.rows
    text = pages.get_template("index.html").render(
        count=len(rows),
        ok=sum(row["status"] == "ok" for row in rows),
        models=len({row["model"] for row in rows}),
        strategies=len({row["strategy"] for row in rows}),
        utc=now(),
        versions=_label(collected.records, "versions"),
        commits=_label(collected.records, "commit"),
        problems=[str(problem) for problem in problems[:_MOST_PROBLEMS]],
        problem_count=len(problems),
        folder=ROWS,
        plotly=get_plotlyjs(),
        data=dump(page_data(collected.records, frozenset(ids))),
    )
    write_bytes(out / "index.html", text.encode(errors="backslashreplace"))
    return Written(out / "index.html", len(ids), problems)


def _write_row_pages(records: Sequence[Record], out: Path) -> tuple[list[str], list[Skipped]]:
    """The rows' own pages, on all cores where they are many: ids, and what could not be drawn."""
    records = [record for record in records if has_files(record)]
    shares = [records[i : i + _SHARE] for i in range(0, len(records), _SHARE)]
    workers = min(os.cpu_count() or 1, len(shares))
    if workers < 2:
        parts = [_write_share(share, out) for share in shares]
    else:
        with ProcessPoolExecutor(workers) as pool:
            parts = list(pool.map(_write_share, shares, repeat(out)))
    return [i for ids, _ in parts for i in ids], [p for _, problems in parts for p in problems]


def write_row_page(record: Record, out: Path) -> Path:
    """Write one row's page into a folder; returns its file."""
    _write_share([record], out)
    return out / f"{record.id}.html"


def _write_share(records: Sequence[Record], out: Path) -> tuple[list[str], list[Skipped]]:
    pages = RowPages(out, templates())
    for record in records:
        pages.write(record)
    return pages.written, pages.problems


def templates() -> Environment:
    """The pages' templates, with the filters that they use."""
    environment = Environment(
        loader=PackageLoader("rematbench.report.pages"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= filters()
    return environment


def _label(records: Sequence[Record], column: str) -> list[tuple[str, int]]:
    """The values of a provenance column with their numbers of rows, the commonest first."""
    counts: dict[str, int] = {}
    for record in records:
        value = cells(record.row)[column]
        if value is not None:
            counts[str(value)] = counts.get(str(value), 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
