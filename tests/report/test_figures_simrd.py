"""The DTR paper's figures, from golden rows."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
from golden import DATA, expected, records

from rematbench.base.errors import ConfigError
from rematbench.report import figures
from rematbench.report.collect import Record, collect
from rematbench.report.papers.simrd_distance import distances
from rematbench.report.papers.simrd_traces import gaps, intervals
from rematbench.rows.row import make_row

HOUSE = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "rows"),
    [("simrd_fig2", "simrd_chain"), ("simrd_fig3", "simrd_chain"), ("simrd_fig4", "simrd_fig4")],
)
def test_golden(name: str, rows: str, tmp_path: Path) -> None:
    paths = figures.draw(name, records(rows), tmp_path)
    assert [path.suffix for path in paths] == [".png", ".pdf", ".csv", ".md"]
    assert all(path.stat().st_size > 0 for path in paths)
    assert paths[2].read_text() == expected(name)


def test_figure_2_is_of_its_budget_only(tmp_path: Path) -> None:
    drawn = pd.read_csv(figures.draw("simrd_fig2", records("simrd_chain"), tmp_path)[2])
    assert set(drawn["budget"]) == {8, 12, 16, 23}
    full = drawn[(drawn["strategy"] == "full") & (drawn["dealloc"] == "banish")]
    assert full.set_index("length")["additional"].to_dict()[128] == 105


def test_figure_6_counts_accesses(tmp_path: Path) -> None:
    paths = figures.draw("simrd_fig6", records("simrd_fig4"), tmp_path)
    drawn = pd.read_csv(paths[2])
    assert set(drawn["curve"]) == {"full", "eqclass", "local"}
    assert "geometric mean of" in paths[3].read_text()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "trace.csv").write_text(
        "event,tensor,clock\ncomputed,t1,2\ncomputed,t2,3\nevicted,t1,3\ncomputed,g2,4\n"
        "recomputed,t1,5\nbanished,t2,5\n"
    )
    return folder


def test_trace_intervals(trace: Path) -> None:
    found = intervals(trace / "trace.csv")
    assert found.to_dict("split")["data"] == [
        [1, "forward", 2, 3],
        [2, "forward", 3, 5],
        [2, "gradient", 4, 5],
        [1, "forward", 5, 5],
    ]
    assert gaps(found) == [2]  # only layer 2 is kept when the first gradient is computed


def test_trace_is_drawn(trace: Path, tmp_path: Path) -> None:
    extra = {"length": 101, "heuristic": "full", "dealloc": "banish", "evictions": 1}
    extra |= {"experiment": "simrd_fig7"}
    row = make_row(
        model="toy_chain",
        strategy="dtr",
        status="ok",
        budget_bytes=21,
        peak_bytes=3,
        extra=extra | {"rematerializations": 1},
    )
    paths = figures.draw("simrd_fig7", [Record(row, trace / "row.json", "0")], tmp_path)
    assert pd.read_csv(paths[2])["layer"].tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize("name", figures.NAMES)
def test_without_data_the_command_is_named(name: str, tmp_path: Path) -> None:
    if name == "checkmate_table1":  # the strategies' traits are all it needs
        assert figures.draw(name, [], tmp_path)
        return
    with pytest.raises(ConfigError, match=f"rematbench.* -m experiment={name}"):
        figures.draw(name, [], tmp_path)


def test_the_experiments_exist() -> None:
    there = Path(__file__).parents[2] / "conf" / "experiment"
    assert [name for name in figures.NAMES if not (there / f"{name}.yaml").exists()] == []
    assert DATA.is_dir()


def test_the_distance_from_the_optimum() -> None:
    """The cheapest static plan and the highest bound, whoever they are of; no number is made up."""
    same = {"model": "net", "ops": 9, "status": "ok", "checkpoint_all_cost": 100.0}
    rows = [
        make_row(**same, strategy="dtr", budget_fraction=0.5, overhead=0.3),
        make_row(**same, strategy="chen_greedy", budget_fraction=0.5, overhead=0.2),
        make_row(
            **same,
            **{"strategy": "anytime", "budget_fraction": 0.5, "overhead": 0.1},
            **{"bound": 105.0, "bound_of": "F"},
        ),
        make_row(**same, strategy="dtr", budget_fraction=0.9, overhead=0.0),
        make_row(**same | {"status": "thrashed"}, strategy="dtr", budget_fraction=0.3),
        make_row(**same, strategy="chen_greedy", budget_fraction=0.3, overhead=0.4),
    ]
    found = distances(rows).replace({float("nan"): None}).to_dict("records")
    known = {"log": "net", "ops": 9}
    half, less = found
    assert half.pop("bound") == pytest.approx(0.05)
    assert half == known | {
        **{"ratio": 0.5, "dtr": 0.3, "best": 0.1, "by": "anytime", "bound_of": "F"}
    }
    assert less == known | {
        **{"ratio": 0.3, "dtr": None, "best": 0.4, "by": "chen_greedy"},
        **{"bound": None, "bound_of": None},
    }


def test_the_page_s_distances_are_those_of_the_rows() -> None:
    rows = collect([HOUSE / "runs/reference/simrd-distance.csv"]).rows
    assert len({row["commit"] for row in rows}) == 1
    assert "dirty" not in rows[0]["commit"]
    page, found = (HOUSE / "docs/papers/simrd.md").read_text(), distances(rows)
    names = {"densenet_bc": "DenseNet-BC", "lstm_lm": "LSTM", "resnet32": "ResNet-32"}
    names |= {"tree_lstm": "TreeLSTM", "unet": "U-Net"}
    assert set(found["log"]) == set(names)
    for each in found.itertuples():
        shares = (each.dtr, each.best, each.bound)
        cells = ["–" if pd.isna(share) else f"{100 * share:.1f} %" for share in shares]
        line = f"| {names[each.log]} ({each.ops:,}) | {each.ratio:g} | {' | '.join(cells)} |"
        assert line in page
    assert {*found["bound_of"].dropna()} == {"any", "9", "F"}  # as the page says of the bounds
    met = found.dropna(subset=["dtr", "best"])
    factors = met["dtr"] / met["best"]
    said = f"for {factors.min():.2f} times the best plan's overhead"
    assert said in page
    assert f"to {factors.max():.0f} times" in page
    assert f"in the median, {factors.median():.1f} times" in page
    assert f"DTR has a plan at {len(met)} of these {len(found)}" in page
    assert f"The search has one at {found['best'].count()}:" in page
