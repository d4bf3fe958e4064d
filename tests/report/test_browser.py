"""The main page in Chromium, by clicking, without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import CHROMIUM, Browser

from benchmarks.report import row, write_runs
from rematbench.report.collect import Collected, Record, collect
from rematbench.report.leaderboard.page import write_leaderboard_pages
from rematbench.report.pages.site import write_pages
from rematbench.rows.row import is_over_budget

pytestmark = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium: install Debian's, or name a binary in CHROMIUM"
)
HOUSE = Path(__file__).parents[2]
MANY = 10_000
SHOWN = "document.getElementById('shown').textContent"
FIRST = "document.querySelector('#grid tr.row')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
        assert all(url.startswith(("file:", "data:", "blob:")) for url in opened.requested)
        assert opened.errors == []


def count(browser: Browser, selector: str) -> int:
    found: int = browser.run(f"document.querySelectorAll({selector!r}).length")
    return found


def cells(name: str) -> str:
    """An expression for the cells in sight of a column."""
    place = f"[...document.querySelectorAll('#grid th')].findIndex(h => h.dataset.column=='{name}')"
    rows = "[...document.querySelectorAll('#grid tr.row')]"
    return f"{rows}.map(r => r.children[{place}].textContent)"


def column(browser: Browser, name: str) -> list[str]:
    """The cells in sight of a column."""
    found: list[str] = browser.run(cells(name))
    return found


def test_a_page_that_goes_before_it_answers_is_asked_again(browser: Browser) -> None:
    """The page's name outlives it."""
    once = "name = 'reloaded', location.reload(), new Promise(() => {})"
    done = browser._call(
        "Runtime.evaluate",
        expression=f"name == 'reloaded' ? 'asked again' : ({once})",
        awaitPromise=True,
    )
    assert done["result"]["value"] == "asked again"


def test_clicking_through_a_report(browser: Browser, tmp_path: Path) -> None:
    write_runs(tmp_path / "runs", 240, plans=True)
    (tmp_path / "runs" / "0" / "row.json").write_text("{")
    collected = collect([tmp_path / "runs"])
    browser.open(write_pages(collected, tmp_path / "out").index)
    assert browser.run(SHOWN) == "239 of 239 rows"
    browser.click("document.querySelector('#problems summary')")
    text = browser.run("document.getElementById('problems').innerText")
    assert "0/row.json: not valid JSON" in text
    browser.wait_for("document.querySelector('.panel .js-plotly-plot svg') !== null")
    # Curves of one kind only.
    browser.click("document.querySelector('input[value=measured]')")
    browser.wait_for("document.querySelector('.panel .ytitle')?.textContent == 'measured overhead'")
    assert "H100" in browser.run("document.querySelector('.panel h3').textContent")
    # The filter, and what it cannot understand.
    browser.type("document.getElementById('text')", "strategy=dtr overhead<150%")
    expected = [r for r in collected.rows if r["strategy"] == "dtr" and (r["overhead"] or 9) < 1.5]
    browser.wait_for(f"{SHOWN} == '{len(expected)} of 239 rows'")
    assert set(column(browser, "strategy")) == {"dtr"}
    assert count(browser, "#summary tbody tr") == 1
    browser.type("document.getElementById('text')", "nix=3")
    browser.wait_for("document.getElementById('mistake').textContent.includes('no column nix')")
    browser.click("document.getElementById('clear')")
    # A row that failed tells why.
    browser.run("document.getElementById('status').value = '!ok'")
    browser.run("void document.getElementById('status').dispatchEvent(new Event('change'))")
    assert "ok" not in column(browser, "status")
    browser.click(FIRST)
    assert "the leanest plan needs" in browser.run("document.querySelector('dialog').innerText")
    browser.click("document.querySelector('dialog button')")
    browser.click("document.getElementById('clear')")
    # A strategy is hidden by its chip.
    browser.click("document.querySelector('#chips button')")
    browser.wait_for(f"{SHOWN} != '239 of 239 rows'")
    browser.click("document.getElementById('clear')")
    # Who was measured above the budget stands out.
    over = "[...document.querySelectorAll('#grid td.over')].length"
    shown = [r for r in collected.rows if is_over_budget(r)]
    assert 0 < browser.run(over) <= len(shown)
    # On to a row's own page.
    browser.click("document.querySelector('#grid tr.row a')")
    browser.wait_for("document.querySelectorAll('.pictures image').length == 2")
    assert "Replay" in browser.run("document.body.innerText")


def test_ten_thousand_rows_stay_usable(browser: Browser, tmp_path: Path) -> None:
    records = [Record(row(i), tmp_path / "row.json", f"{i:012x}") for i in range(MANY)]
    written = write_pages(Collected(tuple(records), ()), tmp_path)
    assert written.index.stat().st_size < 10e6
    browser.open(written.index)
    browser.wait_for(f"{SHOWN} == '10000 of 10000 rows'")
    assert count(browser, "#grid tr.row") < 100  # only those in sight
    # Sorting, down and up.
    head = "document.querySelector('#grid th[data-column=overhead] button')"
    browser.click(head)
    browser.click(head)
    largest = max(record.row["overhead"] or 0 for record in records)
    assert column(browser, "overhead")[0] == f"{largest * 100:.3g} %"
    # To the end, where rows without an overhead are.
    browser.run("void (document.getElementById('grid').scrollTop = 1e9)")
    browser.wait_for(f"{cells('overhead')}.at(-1) === ''")
    browser.type("document.getElementById('text')", "model=model_3 checkmate overhead<1")
    browser.wait_for(f"{SHOWN} != '10000 of 10000 rows'")
    assert set(column(browser, "model")) == {"model_3"}


@pytest.mark.parametrize("width", [1280, 390])
def test_the_field_sorts_filters_and_fits(browser: Browser, tmp_path: Path, width: int) -> None:
    """Of the committed rows."""
    parts = sorted(HOUSE.glob("runs/reference/leaderboard/full-*.csv.gz"))
    path = write_leaderboard_pages(collect(parts).rows, tmp_path, "modelled", lacking=True)[0]
    browser.resize(width, 900)
    browser.open(path)
    assert browser.run("document.documentElement.scrollWidth") <= width
    names = "[...document.querySelectorAll('#strategies tbody tr')].filter(r => !r.hidden)"
    names += ".map(r => r.cells[0].textContent)"
    cells = "[...document.querySelectorAll('#strategies tbody tr')].filter(r => !r.hidden)"
    cells += ".map(r => Number(r.cells[r.cells.length - 1].dataset.sort ?? 'NaN'))"
    assert len(browser.run(names)) > 20
    browser.click("document.querySelector('#strategies th:last-child button')")  # by seconds
    seconds = [value for value in browser.run(cells) if value is not None]
    assert len(seconds) > 20
    assert seconds == sorted(seconds)
    browser.type("document.getElementById('text')", "coop")
    assert browser.run(names) == ["coop"]
    browser.resize(1280, 900)
