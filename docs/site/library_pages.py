"""The library's pages, and its verifier's, as files of the site."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File

from rematbench.instances.pages import pages
from rematbench.instances.records import read_library

HOUSE = Path(__file__).parents[2]
VERIFIER = ("verify.html", "verify.js")


def library_files(config: MkDocsConfig) -> list[File]:
    """``library/index.html``, a page for each graph, and the page that verifies plans."""
    library = read_library(HOUSE / "instances")
    made = pages(library) | {
        name: (library.folder / name).read_text(encoding="utf-8") for name in VERIFIER
    }
    return [
        File.generated(config, f"library/{name}", content=content) for name, content in made.items()
    ]
