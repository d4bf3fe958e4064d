"""The track for two memories: its figure, the crossover by hand, and what the docs say of rows."""

from __future__ import annotations

import csv
import json
import re
from math import inf
from pathlib import Path
from typing import Any

import pytest
from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.report.leaderboard.families import family
from rematbench.report.offload import answer, crossovers, draw, lines, with_answer
from rematbench.rows.row import Row, make_row

HOUSE = Path(__file__).parents[2]


def row(strategy: str, rate: float | None, overhead: float | None, budget: float = 0.5) -> Row:
    link = {} if rate is None else {"link": {"out": rate * 1e9, "in": 2 * rate * 1e9}}
    return make_row(
        model="resnet50",
        strategy=strategy,
        budget_fraction=budget,
        status="infeasible" if overhead is None else "ok",
        overhead=overhead,
        gap=0.01,
        costmodel="roofline",
        extra={"preset": "h100", "time_limit": 3.0} | link,
    )


SOME = [
    *(row("anytime", None, 0.1), row("anytime", None, 0.05, 0.7), row("anytime", None, None, 0.3)),
    *(row("hybrid", 12, 0.08), row("hybrid", 25, 0.05), row("hybrid", 55, 0.0)),
    *(row("hybrid", 12, 0.04, 0.7), row("hybrid", 12, 0.3, 0.3)),
    *(row("auto_perf", 12, 0.09), row("auto_perf", 25, 0.04), row("auto_perf", 55, None)),
]


def test_a_link_pays_from_half_of_recomputations_overhead_on() -> None:
    found = crossovers(lines(SOME)).set_index("budget")["rate"].to_dict()
    assert found == {0.5: 25.0, 0.7: inf, 0.3: 12.0}


def test_the_answer_counts_what_has_no_plan() -> None:
    text = answer(SOME)
    assert "| `auto_perf` | +9.0 % (1 of 1) | +4.0 % (1 of 1) | – (0 of 1) |" in text
    assert "| `resnet50` | +10.0 % | +8.0 % | +5.0 % | +0.0 % | none, 25, 12 |" in text
    assert "at least as fast as `auto_perf` on 67 % of 3; that has a plan on 2 of them" in text


def test_the_figure_has_a_curve_per_link(tmp_path: Path) -> None:
    written = draw(SOME, tmp_path)
    assert [path.name for path in written] == ["offload.png", "offload.pdf", "offload.csv"]
    with written[2].open(newline="") as file:
        drawn = [(float(each["rate"]), float(each["budget"])) for each in csv.DictReader(file)]
    assert sorted(drawn) == sorted(
        [(0, 0.5), (0, 0.7), (12, 0.3), (12, 0.5), (12, 0.7), (25, 0.5), (55, 0.5)]
    )
    with pytest.raises(ConfigError, match="experiment=leaderboard_offload"):
        draw(SOME[:2], tmp_path)


def test_a_pages_section_is_made_again() -> None:
    page = "# Two memories\n\n## When does it pay?\n\nold\n\n## Next\n\nas it was\n"
    made = with_answer(page, SOME)
    assert made == page.replace("## When does it pay?\n\nold\n\n", answer(SOME))
    with pytest.raises(ConfigError, match="no section"):
        with_answer("# Two memories\n", SOME)


def test_the_page_says_what_the_record_says() -> None:
    record = json.loads((HOUSE / "runs/benchmarks/offload.json").read_text())
    by_network: dict[str, list[str]] = {}
    for each in record["figures"]:
        if found := re.fullmatch(r"pofo: (\w+) at .*, overhead .*", each["figure"]):
            by_network.setdefault(found[1], []).append(f"{each['value']:.2f}")
    assert len(by_network) == 3
    page = (HOUSE / "docs/offload.md").read_text()
    for name, values in by_network.items():
        assert f"| `{name}` | {' | '.join(values)} |" in page


def track(name: str) -> list[dict[str, Any]]:
    text = OmegaConf.load(HOUSE / f"conf/experiment/{name}.yaml")
    return OmegaConf.to_container(text["problems"])


def test_the_tracks_networks_are_the_first_two_of_each_kind() -> None:
    budgets = [0.7, 0.5, 0.35]
    chosen: dict[str, list[dict[str, Any]]] = {}
    for each in track("leaderboard"):
        if set(budgets) <= set(each["budget"]) and "costmodel.preset" not in each:
            job = {key: value for key, value in each.items() if key not in ("floor", "quick")}
            chosen.setdefault(family(each["model"]), []).append(job | {"budget": budgets})
    wanted = [job for jobs in chosen.values() for job in jobs[:2]]
    found = track("leaderboard_offload")
    assert len(found) == len(wanted)
    assert all(each in wanted for each in found)
