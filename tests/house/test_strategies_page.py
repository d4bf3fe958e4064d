"""docs/strategies.md has a line of every strategy of ours, and no other; what it cites is true."""

from __future__ import annotations

import re
from pathlib import Path

from rematbench.strategies import registry

HOUSE = Path(__file__).parents[2]
PAGE = HOUSE / "docs" / "strategies.md"
COLUMNS = 8


def lines() -> dict[str, list[str]]:
    """Cells by strategy."""
    table = PAGE.read_text().partition("## By name")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert all(len(row) == COLUMNS for row in cells)
    names = [row[0].strip("`") for row in cells]
    assert len(set(names)) == len(names), "a strategy has two lines"
    return dict(zip(names, cells, strict=True))


def test_every_registered_strategy_has_its_line() -> None:
    ours = {name for name in registry.names() if registry.entry(name).source == "rematbench"}
    assert set(lines()) == ours


def test_what_the_lines_say() -> None:
    for name, (_, year, problem, guarantee, scope, page, file, golden) in lines().items():
        assert re.fullmatch(r"(19|20)\d\d|", year), f"{name}: {year} is no year"
        assert all((problem, guarantee, scope, golden)), f"{name}: an empty cell"
        module = registry.entry(name).path.replace(":", ".").removeprefix("rematbench.")
        where = module.rpartition(".")[0].replace(".", "/") + ".py"
        assert file == f"`{where}`", f"{name}: its class is in {where}"
        for link in re.findall(r"\]\((.*?)\)", page):
            text = (PAGE.parent / link).read_text()
            stem = name.split("_")[0]
            assert stem in text, f"{name}: {link} does not name it"
