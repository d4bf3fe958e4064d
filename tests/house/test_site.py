"""The site as it is read: opened from a disk, in Chromium, on a wide screen and on a narrow one."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from browser import CHROMIUM, Browser

from rematbench.instances.pages import LARGEST, page_name
from rematbench.instances.records import graph_name, read_library

HOUSE = Path(__file__).parents[2]
BUILT = HOUSE / "build" / "site"
WIDE, NARROW = 1280, 390
LIBRARY = read_library(HOUSE / "instances")
OPEN = next(p for p in LIBRARY.instances.values() if LIBRARY.record(p.instance).status == "open")
MISSING = [
    name for name in ("mkdocs", "material", "mkdocstrings") if not importlib.util.find_spec(name)
]
pytestmark = [
    pytest.mark.skipif(
        CHROMIUM is None, reason="no chromium: install Debian's, or name a binary in CHROMIUM"
    ),
    pytest.mark.skipif(bool(MISSING), reason=f"no {', '.join(MISSING)}: `make docs` installs it"),
]
# What is wrong with a page at the width that it is shown at. `hidden` elements have no boxes.
FAULTS = """(() => {
  const BOXES = ".md-typeset__scrollwrap, .scroll, .wide";
  // Pages of the library and of source files have no frame: all is content.
  const content = document.querySelector(".md-content") ?? document.body;
  const shown = [...content.querySelectorAll("*")];
  const of = (tag) => shown.filter((each) => each.matches(tag) && each.getClientRects().length);
  const scrolls = (each) => ["auto", "scroll"].includes(getComputedStyle(each).overflowX);
  const words = (each) => each.textContent.trim().replace(/\\s+/g, " ").slice(0, 60);
  const box = (each) => each.closest(BOXES) ?? document.documentElement;
  const barOf = (each) => each.offsetHeight - each.clientHeight > 4;
  const faults = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) faults.push("the page scrolls sideways");
  for (const table of of("table:not(.highlighttable)")) {
    const cell = table.rows[0].cells[table.rows[0].cells.length - 1];
    const around = box(table);
    const edge = Math.min(width, around.getBoundingClientRect().right);
    const inSight = cell.getBoundingClientRect().right <= edge + 1;
    // The whole leaderboard has as many columns as strategies: its boxes scroll on any screen.
    const small = width < 600 || around.matches(".wide");
    const reachable = small && scrolls(around) && around.scrollWidth > around.clientWidth
      && barOf(around) && around.getBoundingClientRect().right <= width;
    if (!inSight && !reachable) faults.push("a last column is lost: " + words(table));
  }
  for (const code of of("td code"))
    if (code.getClientRects().length > 1) faults.push("a name is torn apart: " + words(code));
  for (const code of of("pre > code")) {
    const wide = code.scrollWidth > code.clientWidth + 1;
    if (wide && !(scrolls(code) && barOf(code))) faults.push("cut: " + words(code));
  }
  for (const each of of("body *")) {
    const {left, right} = each.getBoundingClientRect();
    const out = right > left && (right > width + 1 || left < -1);
    if (out && !each.closest(`${BOXES}, pre, nav, svg, .md-search, details:not([open])`))
      faults.push("sticks out: " + each.tagName + " " + words(each));
  }
  for (const picture of of("svg.chart, svg.graph, details[open] svg.plan, p > img"))
    if (picture.getBoundingClientRect().height < 60 || picture.naturalWidth === 0)
      faults.push("a picture is not seen: " + (picture.src ?? picture.className.baseVal));
  return faults;
})()"""


@cache
def newest() -> float:
    """When something that the site is made from was last written."""
    folders = ["docs", "conf", "rematbench", "graphs", "tracing", "streams", "zoo", "costmodel"]
    folders += ["strategies", "validator", "training", "report", "instances"]
    files = [HOUSE / name for name in ("README.md", "mkdocs.yml", "CHANGELOG.md")]
    files += [path for folder in folders for path in (HOUSE / folder).rglob("*.*")]
    kinds = (".py", ".pyi", ".md", ".csv", ".yaml", ".yml", ".css", ".js", ".html", ".svg", ".gz")
    return max(path.stat().st_mtime for path in files if path.suffix in kinds)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make docs` left if it is not older than its sources, or built here."""
    if (BUILT / "404.html").is_file() and (BUILT / "404.html").stat().st_mtime >= newest():
        return BUILT
    if not (HOUSE / "build" / "links").is_dir():
        subprocess.run(["make", "links"], cwd=HOUSE, check=True, capture_output=True)
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(
        command, cwd=HOUSE, env=environment, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("profile")) as opened:
        yield opened
        assert all(url.startswith(("file:", "data:", "blob:")) for url in opened.requested)
        assert opened.errors == []


def pages(site: Path) -> list[Path]:
    """All pages, but of the sources some, and of the library the largest and an open one."""
    places = {path: path.relative_to(site).parts for path in site.rglob("*.html")}
    found = [path for path, parts in places.items() if not {"source", "library"} & {*parts}]
    library = {path.name: path.stat().st_size for path in (site / "library").glob("*.html")}
    chosen = {"index.html", "verify.html", page_name(OPEN.graph)}
    chosen.add(max(library.keys() - chosen, key=library.__getitem__))
    found += [site / "library" / name for name in sorted(chosen)]
    names = ("strategies/chen/planner.py", "docs/claims.csv")
    return sorted(found) + [site / "source" / f"{name}.html" for name in names]


def show(browser: Browser, page: Path) -> None:
    browser.open(page)
    boxes = "document.querySelectorAll('.md-content .md-typeset__scrollwrap').length"
    browser.wait_for(
        f"{boxes} == document.querySelectorAll('.md-content table:not([class])').length"
    )


def test_pages_fit_both_screens(browser: Browser, site: Path) -> None:
    assert len(pages(site)) > 40
    faults: dict[str, Any] = {}
    for page in pages(site):
        browser.resize(WIDE, 900)
        show(browser, page)
        for width in (WIDE, NARROW):
            browser.resize(width, 900)
            if found := browser.run(FAULTS):
                faults[f"{page.relative_to(site)} at {width}"] = found[:5]
    assert faults == {}


def test_pages_of_the_library_are_small_and_lead_to_files(browser: Browser, site: Path) -> None:
    for path in (site / "library").glob("*.html"):
        assert path.stat().st_size <= LARGEST, path
        assert "No rows of strategies are of this graph" not in path.read_text(), path
    browser.resize(WIDE, 900)
    browser.open(site / "library" / page_name(OPEN.graph))
    links = browser.run("[...document.querySelectorAll('a[download]')].map(a => a.pathname)")
    named = {
        LIBRARY.record(each.instance).plan for each in LIBRARY.of_graph(graph_name(OPEN.graph))
    }
    files = {site / "library" / each for each in {OPEN.graph, *named} if each}
    assert {Path(unquote(each)) for each in links} == files
    assert all(path.is_file() for path in files)
    marked = f"document.getElementById({OPEN.instance!r}).innerText"
    assert "open" in browser.run(marked)
    assert browser.run("document.querySelectorAll('svg.graph path, svg.chart path').length") > 20


def test_the_whole_leaderboard_is_in_the_menu(browser: Browser, site: Path) -> None:
    browser.resize(WIDE, 900)
    browser.open(site / "papers" / "chen.html")
    browser.run(
        "void [...document.querySelectorAll('.md-nav__link')]"
        ".find(a => a.innerText.trim() == 'The whole leaderboard').click()"
    )
    browser.wait_for("location.pathname.endsWith('/field/leaderboard.html')")
    browser.wait_for("document.querySelectorAll('#strategies tbody tr').length > 20")
    assert browser.run("document.querySelectorAll('svg.picture').length") == 2


def test_each_papers_page_has_figures(site: Path) -> None:
    """That they are seen is checked at both widths."""
    for page in sorted((HOUSE / "docs" / "papers").glob("*.md")):
        text = (site / "papers" / f"{page.stem}.html").read_text()
        pictures = re.findall('<img [^>]*src="([^"]*[.]svg)"', text)
        assert pictures, page
        assert all((site / "papers" / each).is_file() for each in pictures), pictures


def test_a_verdict_is_in_sight_on_a_narrow_screen(browser: Browser, site: Path) -> None:
    browser.resize(NARROW, 900)
    show(browser, site / "claims.html")
    heads = "[...document.querySelectorAll('th')]"
    verdict = f"{heads}.find(h => h.textContent == 'verdict').getBoundingClientRect().right"
    assert browser.run(verdict) <= NARROW
    # The rest is a scroll away, and the first column stays.
    browser.run("void (document.querySelector('.md-typeset__scrollwrap').scrollLeft = 1e5)")
    assert browser.run(f"{heads}.at(-1).getBoundingClientRect().right") <= NARROW
    assert browser.run(f"{heads}[0].getBoundingClientRect().left") >= 0


def test_the_search_works_from_a_disk(browser: Browser, site: Path) -> None:
    field = "document.querySelector('input.md-search__input')"
    browser.resize(WIDE, 900)
    browser.open(site / "papers" / "chen.html")  # a folder down
    browser.click(field)
    browser.type(field, "kusumoto")
    browser.press("Shift")  # it listens for keys
    found = "[...document.querySelectorAll('a.md-search-result__link')]"
    browser.wait_for(f"{found}.length > 0")
    assert "/papers/kusumoto.html" in browser.run(f"{found}[0].href")


def test_pages_lead_to_their_sources(browser: Browser, site: Path) -> None:
    for page in sorted(site.glob("*.html")) + sorted(site.glob("papers/*.html")):
        assert page.name == "404.html" or "Source of this page" in page.read_text(), page
    browser.resize(WIDE, 900)
    browser.open(site / "api.html")
    links = browser.run("[...document.querySelectorAll('p.source a')].map(a => a.href)")
    lines = [link.removeprefix("file://").split("#") for link in links if "#" in link]
    assert len(lines) > 50
    for path, line in lines:
        assert f'id="{line}"' in Path(path).read_text(), (path, line)
    browser.click("document.querySelector('p.source a')")
    browser.wait_for("location.pathname.includes('/source/') && document.readyState == 'complete'")
    line = browser.run("document.getElementById(location.hash.slice(1)).parentElement.innerText")
    assert "class " in line
