"""Rows hold no NaN and no infinity, whatever a planner or a device says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rematbench.cli.closing import closing_line
from rematbench.rows import provenance
from rematbench.rows.row import find_rows, finite, format_row, make_row, read_row, write_row
from rematbench.rows.shown import summarise


def test_what_is_not_finite_is_null_and_named(tmp_path: Path) -> None:
    incumbents = [(0.5, math.inf, -math.inf), (1.0, 3.0, 2.0)]
    row = make_row(cost=3.0, bound=-math.inf, gap=math.nan, extra={"incumbents": incumbents})
    write_row(tmp_path / "row.json", row)
    found = read_row(tmp_path / "row.json")
    assert (found["cost"], found["bound"], found["gap"]) == (3.0, None, None)
    assert found["extra"]["incumbents"] == [[0.5, None, None], [1.0, 3.0, 2.0]]
    assert found["extra"]["not_finite"] == [
        "bound", "gap", "extra.incumbents.0.1", "extra.incumbents.0.2",
    ]  # fmt: skip
    assert row["bound"] == -math.inf  # the caller's own stays


def test_a_finite_row_is_as_it_was() -> None:
    row = make_row(cost=3.0, extra={"forward_cost": 1.0})
    assert finite(row) == row


@pytest.mark.parametrize(
    ("verdict", "bitwise", "error", "said"),
    [
        ("exact", True, 0.0, "bitwise"),
        ("exact", False, 3e-6, "3e-06 off"),
        ("rounding", False, 0.19, "2e-13 off in float64"),
        ("lossy", False, 1e-3, "lossy, 0.001 off"),
        ("unjudged", None, None, ""),
    ],
)
def test_the_summary_says_what_the_gradients_rest_on(
    capsys: pytest.CaptureFixture[str],
    verdict: str,
    bitwise: bool | None,
    error: float | None,
    said: str,
) -> None:
    extra = {"verdict": verdict, "rounding": {"float64_error": 2e-13}}
    row = make_row(
        model="m", strategy="s", status="ok", extra=extra,
        gradient_bitwise=bitwise, gradient_max_error=error,
    )  # fmt: skip
    summarise([row], "sweep")
    last = capsys.readouterr().out.splitlines()[-2]
    assert last.split("│")[-2].strip() == said


def test_the_closing_line_has_what_a_person_wants() -> None:
    row = make_row(status="ok", overhead=0.125, gap=0.01, peak_bytes=2**20, budget_bytes=2**21)
    row |= {"plan_seconds": 2.5, "measured_overhead": 0.13}
    assert closing_line(row, Path("out")) == (
        "ok: +12.5 % cost (measured +13 %; at most 1 % above the bound), peak 1.00 MiB of "
        "2.00 MiB, planned in 2.5 s; all of it: out/row.json"
    )
    refused = make_row(status="not_applicable")
    assert closing_line(refused, Path("out")) == "not_applicable; all of it: out/row.json"


def test_a_printed_row_is_a_line_per_column() -> None:
    """A name from a file forges no column, and moves no cursor."""
    row = make_row(model="net\nstatus=ok\x1b[2J\ud800", status="failed")
    lines = format_row(row).splitlines()
    assert "model=net status=ok?[2J\\ud800" in lines
    assert [line for line in lines if line.startswith("status=")] == ["status=failed"]


def test_a_job_prints_its_columns_and_leaves_extra_to_the_file() -> None:
    row = make_row(model="net", status="ok", extra={"curve": [{"knob": 1}] * 99})
    assert format_row(row, extra=False).splitlines() == ["model=net", "status=ok"]
    first, *rest = format_row(row).splitlines()
    assert first.startswith('extra={"curve": [')
    assert rest == ["model=net", "status=ok"]


def test_a_folder_named_by_a_digit_that_is_no_number_is_read(tmp_path: Path) -> None:
    for name in ("²", "3", "a"):
        (tmp_path / name).mkdir()
        write_row(tmp_path / name / "row.json", make_row(model=name))
    assert {row["model"] for row in find_rows([tmp_path])} == {"²", "3", "a"}


def test_code_that_was_carried_says_its_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REMATBENCH_COMMIT", "0123456789ab")
    assert provenance.commit.__wrapped__() == "0123456789ab"
    monkeypatch.setenv("REMATBENCH_COMMIT", "")
    assert provenance.commit.__wrapped__() != ""
