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
from rematbench.graphs.files import read_graph, read_plan
from rematbench.graphs.simulate import simulate
from rematbench.report.collect import collect
from rematbench.report.leaderboard.families import family
from rematbench.report.offload import TIE, answer, crossovers, draw, lines, with_answer
from rematbench.report.pages.lanes import link_of
from rematbench.rows.row import Row, make_row

HOUSE = Path(__file__).parents[2]
TRACK = HOUSE / "runs/reference/leaderboard"


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


@pytest.fixture(scope="module")
def rows() -> tuple[Row, ...]:
    return collect([TRACK / "offload.csv.gz"]).rows


def test_the_page_says_what_the_rows_say(rows: tuple[Row, ...]) -> None:
    page = (HOUSE / "docs/offload.md").read_text()
    assert with_answer(page, rows) == page


def test_the_rows_are_the_experiments(rows: tuple[Row, ...]) -> None:
    """Each problem, strategy and link once; of one commit, whose code was as committed."""
    experiment = OmegaConf.load(HOUSE / "conf/experiment/leaderboard_offload.yaml")
    rates = [float(link.removesuffix("GB/s")) for link in experiment.links]
    each = [("anytime", 0.0)]
    each += [(name, rate) for name in experiment.strategies.split(",") for rate in rates]
    wanted = {
        (job.model, budget, *one) for job in experiment.problems for budget in job.budget
        for one in each
    }  # fmt: skip
    frame = lines([row for row in rows if row["extra"]["preset"] == "h100"])
    applied = set(zip(frame.network, frame.budget, frame.strategy, frame.rate, strict=True))
    assert applied <= wanted
    not_applicable = {row["strategy"] for row in rows if row["status"] == "not_applicable"}
    assert {name for _, _, name, _ in wanted - applied} <= not_applicable
    assert not_applicable <= {"pofo", "auto_perf", "offload_hidden"}
    assert len(frame) == len(applied)
    assert len({row["commit"] for row in rows}) == 1
    assert "dirty" not in rows[0]["commit"]


def test_no_rule_of_the_track_is_faster_than_ours(rows: tuple[Row, ...]) -> None:
    """And no plan is faster than a bound, or over its budget."""
    frame = lines(rows)
    keys = ["costs", "network", "budget", "rate"]
    ours = frame[frame["strategy"] == "hybrid"].set_index(keys)["overhead"]
    rules = frame[frame["strategy"].isin(["pofo", "auto_perf"])]
    least = rules.groupby(keys)["overhead"].min()
    assert len(least) > 100
    assert (ours[least.index] <= least + TIE - 1).all()
    for row in rows:
        if row["status"] == "ok":
            assert row["bound"] is None or row["bound"] <= row["cost"] * (1 + 1e-9)
            if row["strategy"] not in ("offload_all", "offload_hidden"):
                assert row["peak_bytes"] <= row["budget_bytes"]


@pytest.mark.parametrize("name", ["gpt2", "resnet50", "siamese"])
def test_the_simulator_says_what_the_row_says(name: str, rows: tuple[Row, ...]) -> None:
    """The plan files of some rows, judged again."""
    graph = read_graph(TRACK / f"offload/{name}.graph.json.gz")
    plan = read_plan(TRACK / f"offload/{name}.plan.json.gz")
    (row,) = (row for row in rows if row["extra"].get("plan_hash") == plan.hash(graph))
    link = link_of(row)
    trace = simulate(graph, plan, link)
    assert row["strategy"] == "hybrid"
    assert trace.cost == pytest.approx(row["cost"], rel=1e-12)
    assert trace.peak_bytes == row["peak_bytes"] <= row["budget_bytes"]
    assert trace.host_peak_bytes == row["extra"]["host_peak_bytes"]
    assert trace.copies.out_bytes == row["extra"]["offloaded_bytes"]


def test_the_page_says_what_the_record_says() -> None:
    """In POFO's setting, and of what was executed."""
    record = json.loads((HOUSE / "runs/benchmarks/offload.json").read_text())
    figures = {each["figure"]: each["value"] for each in record["figures"]}
    by_network: dict[str, list[str]] = {}
    for name, value in figures.items():
        if found := re.fullmatch(r"pofo: (\w+) at .*, overhead .*", name):
            by_network.setdefault(found[1], []).append(f"{value:.2f}")
    assert len(by_network) == 3
    page = (HOUSE / "docs/offload.md").read_text()
    for name, values in by_network.items():
        pairs = zip(values[::2], values[1::2], strict=True)
        cells = " | ".join(f"{ours} ({least})" for ours, least in pairs)
        assert f"| `{name}` | {cells} |" in page
    text, title = " ".join(page.split()), "pofo: overhead over recomputation alone's, median"
    ours, least = figures[title], figures[f"{title}: no plans have less than"]
    assert f"The median is {ours:.2f}, and no plans have a median below {least:.2f}" in text
    (waits,) = (v for name, v in figures.items() if "in which compute waits" in name)
    assert f"was {waits:.0f} % off the simulated at the median" in text


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
