"""The HTML report: one page that needs no other file, and a page for each row with a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from graphs.files import write_bytes
from rematbench.provenance import now
from report.collect import Collected, Problem, Record
from report.compact import dump, page_data
from report.rowpage import RowPages, filters

ROWS = "rows"  # folder of the rows' own pages
_MOST_PROBLEMS = 500  # told on the page


@dataclass(frozen=True)
class Written:
    """What a report has written."""

    index: Path
    row_pages: int
    problems: tuple[Problem, ...]


def write_pages(collected: Collected, out: Path) -> Written:
    """Write ``index.html`` and ``rows/*.html``.

    Returns:
        With the problems: those of collecting, and plans and traces that could not be drawn.
    """
    templates = _templates()
    pages = RowPages(out / ROWS, templates)
    for record in collected.records:
        pages.write(record)
    problems = (*collected.problems, *pages.problems)
    rows = collected.rows
    text = templates.get_template("index.html").render(
        count=len(rows),
        ok=sum(row["status"] == "ok" for row in rows),
        models=len({row["model"] for row in rows}),
        strategies=len({row["strategy"] for row in rows}),
        utc=now(),
        versions=_told(collected.records, "versions"),
        commits=_told(collected.records, "commit"),
        problems=[str(problem) for problem in problems[:_MOST_PROBLEMS]],
        problem_count=len(problems),
        folder=ROWS,
        plotly=get_plotlyjs(),
        data=dump(page_data(collected.records, frozenset(pages.written))),
    )
    write_bytes(out / "index.html", text.encode())
    return Written(out / "index.html", len(pages.written), problems)


def _templates() -> Environment:
    environment = Environment(
        loader=PackageLoader("report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= filters()
    return environment


def _told(records: Sequence[Record], column: str) -> list[tuple[str, int]]:
    """The values of a provenance column with their numbers of rows, the commonest first."""
    counts: dict[str, int] = {}
    for record in records:
        value = record.row[column]
        if value is not None:
            counts[str(value)] = counts.get(str(value), 0) + 1
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
