"""Of the site: the library's pages, files and verifier, and the whole leaderboard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from glob import glob
from pathlib import Path
from tempfile import TemporaryDirectory

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File

from rematbench.instances.pages import pages
from rematbench.instances.records import Library, read_library
from rematbench.instances.strategy_plans import StrategyRows
from rematbench.report.collect import collect
from rematbench.report.leaderboard.page import write_leaderboard_pages
from rematbench.rows.row import Row, costs_of

HOUSE = Path(__file__).parents[2]
VERIFIER = ("verify.html", "verify.js")
FULL = "runs/reference/leaderboard/full-*.csv.gz"
LIBRARY = "runs/reference/library/*.csv.gz"
FIELD = "field/leaderboard.html"
"""The leaderboard with all tables, curves and filters."""
_WRITTEN = (".html", ".csv")  # the pictures are in the page


@cache
def _rows(places: str) -> Sequence[Row]:
    return collect(map(Path, sorted(glob(str(HOUSE / places))))).rows


def library_files(config: MkDocsConfig) -> Iterator[File]:
    """``library/``: the index, a page for each graph, graphs and plans, and the verifier."""
    library = read_library(HOUSE / "instances")
    made = pages(library, StrategyRows([*_rows(LIBRARY), *_rows(FULL)])) | {
        name: (library.folder / name).read_text(encoding="utf-8") for name in VERIFIER
    }
    for name, content in made.items():
        yield File.generated(config, f"library/{name}", content=content)
    for name in _linked(library):
        path = str(library.folder / name)
        yield File.generated(config, f"library/{name}", abs_src_path=path)


def _linked(library: Library) -> list[str]:
    """The files that pages lead to."""
    graphs = {each.graph for each in library.instances.values()}
    return sorted(graphs | {each.plan for each in library.records.values() if each.plan})


def leaderboard_files(config: MkDocsConfig) -> Iterator[File]:
    """:data:`FIELD` and its tables, from the full profile's rows."""
    rows = _rows(FULL)
    source = f"modelled ({', '.join(sorted({str(costs_of(row)) for row in rows}))})"
    with TemporaryDirectory() as folder:
        out = Path(folder)
        up = "../leaderboard.html"
        for path in write_leaderboard_pages(rows, out, source, lacking=True, up=up):
            if path.suffix in _WRITTEN:
                name = f"{Path(FIELD).parent}/{path.relative_to(out)}"
                yield File.generated(config, name, content=path.read_bytes())
