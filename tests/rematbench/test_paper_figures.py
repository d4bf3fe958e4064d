"""Figures of the papers' pages: made again of the committed rows, and by hand."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rematbench.instances import paper_figures
from rematbench.instances.paper_figures import by_link, by_share, committed, of_page, with_figures

HOUSE = Path(__file__).parents[2]
PAGES = sorted((HOUSE / "docs/papers").glob("*.md"))


def test_pages_and_figures_are_of_the_committed_rows() -> None:
    """Each page has a figure, which says what its numbers are; no file is left over."""
    rows = committed(HOUSE)
    files = set()
    for page in PAGES:
        figures, text = of_page(page.stem, rows), page.read_text()
        assert figures, page
        assert text == with_figures(text, figures), page
        for each in figures:
            files.add(page.parent / "figures" / f"{each.name}.svg")
            assert re.match("Modelled|Simulated|Measured", each.text)
            assert each.svg.count('text-anchor="middle"') > 3  # both axes have titles
            assert f"{each.svg}\n" == (page.parent / "figures" / f"{each.name}.svg").read_text()
            assert len(each.svg) < 10_000
    assert len(PAGES) == 21
    assert {*(HOUSE / "docs/papers/figures").iterdir()} == files


def test_shares_by_hand() -> None:
    field = pd.DataFrame(
        {
            "strategy": ["dtr", "dtr", "dtr", "coop"],
            "problem": ["a", "b", "c", "d"],
            "limit": 1.0,
            "cost": [2.0, 3.0, np.inf, np.inf],
            "ratio": [1.0, 1.2, np.inf, np.inf],
        }
    )
    found = by_share("simrd", ["dtr", "coop"], field)
    assert found is not None
    assert found.alt.endswith("by cost: dtr")  # coop has no plan
    assert "4 problems" in found.text
    assert [*paper_figures._steps([0.0, 0.2], 4)] == [
        *((0.0, 0.25), (0.2, 0.25), (0.2, 0.5), (0.5, 0.5)),
    ]
    assert by_share("coop", ["coop"], field) is None


def test_links_are_of_one_network() -> None:
    columns = ["costs", "network", "budget", "rate", "strategy", "overhead", "gap"]
    lines = [
        ("h100", "one", 0.5, 0.0, "anytime", 0.3, 0.0),
        ("h100", "one", 0.5, 12.0, "pofo", 0.2, 0.0),
        ("v100", "one", 0.5, 12.0, "pofo", 0.1, 0.0),
        ("v100", "one", 0.5, 25.0, "pofo", 0.05, 0.0),
        ("v100", "one", 0.7, 450.0, "pofo", 0.01, 0.0),
        ("v100", "one", 0.5, 0.0, "anytime", 0.25, 0.0),
    ]
    found = by_link("pofo", ["pofo"], pd.DataFrame(lines, columns=columns))
    assert found is not None
    assert ">12</text>" in found.svg
    assert ">450</text>" not in found.svg
    assert by_link("chen", ["chen_sqrt"], pd.DataFrame(lines, columns=columns)) is None


def test_a_pages_last_section_is_made_again() -> None:
    figure = paper_figures.PageFigure("x-y", "what", "Modelled. How.", "<svg/>")
    once = with_figures("# A page\n\nIts text.\n", [figure])
    assert "Its text.\n\n## Figures\n\n![what](figures/x-y.svg)\n\nModelled. How.\n" in once
    assert with_figures(once, [figure]) == once


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_strategys_page_is_one_of_these(page: Path) -> None:
    cards = paper_figures.cards().values()
    assert any(card.page == page.name for card in cards)
