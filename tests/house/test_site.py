"""The site as it is read: opened from a disk, in Chromium, on a wide screen and on a narrow one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from browser import CHROMIUM, Browser

HOUSE = Path(__file__).parents[2]
BUILT = HOUSE / "build" / "site"
WIDE, NARROW = 1280, 390
LIBRARYS = "keras_vgg16_b256_flop.html"  # one of the pages of the library's graphs
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
  const shown = [...document.querySelectorAll(".md-content *, body > .highlight *")];
  const of = (tag) => shown.filter((each) => each.matches(tag) && each.getClientRects().length);
  const scrolls = (each) => ["auto", "scroll"].includes(getComputedStyle(each).overflowX);
  const words = (each) => each.textContent.trim().replace(/\\s+/g, " ").slice(0, 60);
  const box = (each) => each.closest(".md-typeset__scrollwrap") ?? document.documentElement;
  const barOf = (each) => each.offsetHeight - each.clientHeight > 4;
  const faults = [];
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth > width) faults.push("the page scrolls sideways");
  for (const table of of("table:not([class])")) {
    const cell = table.rows[0].cells[table.rows[0].cells.length - 1];
    const around = box(table);
    const edge = Math.min(width, around.getBoundingClientRect().right);
    const inSight = cell.getBoundingClientRect().right <= edge + 1;
    const reachable = width < 600 && scrolls(around) && around.scrollWidth > around.clientWidth
      && barOf(around) && around.getBoundingClientRect().right <= width;
    if (!inSight && !reachable) faults.push("a last column is lost: " + words(table));
  }
  for (const code of of("td code"))
    if (code.getClientRects().length > 1) faults.push("a name is torn apart: " + words(code));
  for (const code of of("pre > code")) {
    const wide = code.scrollWidth > code.clientWidth + 1;
    if (wide && !(scrolls(code) && barOf(code))) faults.push("cut: " + words(code));
  }
  return faults;
})()"""


@cache
def newest() -> float:
    """When something that the site is made from was last written."""
    folders = ["docs", "conf", "rematbench", "graphs", "tracing", "streams", "zoo", "costmodel"]
    folders += ["strategies", "validator", "training", "report", "instances"]
    files = [HOUSE / name for name in ("README.md", "mkdocs.yml", "CHANGELOG.md")]
    files += [path for folder in folders for path in (HOUSE / folder).rglob("*.*")]
    kinds = (".py", ".pyi", ".md", ".csv", ".yaml", ".yml", ".css", ".js")
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
    """All pages, but of the source files and of the library only some."""
    places = {path: path.relative_to(site).parts for path in site.rglob("*.html")}
    found = [path for path, parts in places.items() if not {"source", "library"} & {*parts}]
    found += [site / "library" / name for name in ("index.html", "verify.html", LIBRARYS)]
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
