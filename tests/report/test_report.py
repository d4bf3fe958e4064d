"""Rows into a leaderboard and figures."""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import pandas as pd
import pytest

from rematbench.base.errors import ConfigError
from rematbench.report import overhead
from rematbench.report.app import main
from rematbench.report.style import colour, marker
from rematbench.rows.row import COLUMNS, find_rows, make_row, read_row, write_leaderboard, write_row


def some_rows() -> list[dict]:
    return [
        make_row(
            model=model,
            strategy=strategy,
            status="ok" if budget > 0.5 else "infeasible",
            budget_fraction=budget,
            budget_bytes=int(10 * budget),
            overhead=0.3 * (1 - budget),
            measured_overhead=0.35 * (1 - budget),
            extra={"floor_bytes": 3},
        )
        for model in ("a", "b")
        for strategy in ("chen_sqrt", "someone_elses")
        for budget in (1.0, 0.7, 0.5)
    ]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    for i, row in enumerate(some_rows()):
        write_row(tmp_path / "runs" / str(i) / "row.json", row)
    return tmp_path / "runs"


def test_leaderboard_holds_every_row(tmp_path: Path, runs: Path) -> None:
    rows = find_rows([runs])
    assert rows == some_rows()  # in the order of their numbers
    write_leaderboard(tmp_path / "leaderboard.csv", rows)
    with (tmp_path / "leaderboard.csv").open() as file:
        read = list(csv.DictReader(file))
    assert tuple(read[0]) == COLUMNS
    assert read[0]["extra"] == '{"floor_bytes": 3}'
    assert read[0]["bound"] == ""


def test_report(runs: Path, tmp_path: Path, monkeypatch, capsys) -> None:
    out = tmp_path / "report"
    arguments = ["rematbench-report", str(runs), "--all", "--out", str(out)]
    monkeypatch.setattr(sys, "argv", arguments)
    main()
    written = capsys.readouterr().out.split()
    assert [Path(path).name for path in written[:1]] == ["leaderboard.csv"]
    for ending in ("png", "pdf", "csv"):  # without a link in a row, `offload` is not drawn
        assert (out / f"overhead.{ending}").stat().st_size > 0
    drawn = pd.read_csv(out / "overhead.csv")
    assert len(drawn) == 2 * 2 * 2 * 2  # only feasible rows, simulated and measured apart
    assert set(drawn["kind"]) == {"simulated", "measured"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nix"], "no such folder"),
        (["{runs}", "--figure", "overhed"], "did you mean overhead?"),
    ],
)
def test_mistakes(runs: Path, monkeypatch, capsys, arguments: list[str], said: str) -> None:
    given = [argument.replace("{runs}", str(runs)) for argument in arguments]
    monkeypatch.setattr(sys, "argv", ["rematbench-report", *given])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert said in capsys.readouterr().err


def test_nothing_to_draw_and_no_row(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no ok row has a fractional budget"):
        overhead.draw([make_row(model="a", status="failed")], tmp_path)
    (tmp_path / "row.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a row"):
        read_row(tmp_path / "row.json")


def test_a_strategy_always_looks_the_same() -> None:
    assert colour("chen_sqrt") == colour("chen_sqrt") != colour("ap_sqrt")
    assert marker("someone_elses") == marker("someone_elses")


def test_bounds_and_a_sentence() -> None:
    """The highest bound at each budget; the cheapest and the dearest plan near half the memory."""
    same = {"model": "net", "status": "ok", "checkpoint_all_cost": 10.0}
    rows = [
        make_row(**same, strategy="slow", budget_fraction=0.5, overhead=0.4, bound=10.5),
        make_row(**same, strategy="fast", budget_fraction=0.5, overhead=0.1, bound=10.8),
        make_row(**same, strategy="fast", budget_fraction=0.9, overhead=0.0),
    ]
    found = overhead.bounds(rows)
    assert found[["model", "budget_fraction"]].to_numpy().tolist() == [["net", 0.5]]
    assert found["value"].tolist() == pytest.approx([0.08])
    tighter = make_row(**same, strategy="fast", budget_fraction=0.3, bound=10.0)
    assert overhead.bounds([*rows, tighter])["value"].tolist() == pytest.approx([0.08, 0.08])
    assert overhead.in_words(rows) == (
        "Within 0.5 of the memory, simulated time over training that recomputes nothing: "
        "net +10% (fast) to +40% (slow)."
    )
    assert overhead.in_words(rows[2:]) is None


def test_a_bar_that_other_work_stretched_leaves_the_frame() -> None:
    """The frame is that of the points: 0 to 30 %, not the bar's 600 %."""
    extra = {"measured_overhead_interval": [0.2, 6.0]}
    same = {"model": "a", "strategy": "someone_elses", "status": "ok"}
    rows = [
        make_row(**same, budget_fraction=1.0, overhead=0.0, measured_overhead=0.0),
        make_row(**same, budget_fraction=0.5, overhead=0.2, measured_overhead=0.3, extra=extra),
    ]
    figure = overhead._figure(overhead.table(rows), overhead.bounds(rows))
    assert figure.axes[1].get_ylim()[1] < 0.6
