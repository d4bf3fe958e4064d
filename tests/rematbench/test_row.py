"""Rows hold no NaN and no infinity, whatever a planner or a device says."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from rematbench.row import finite, make_row, read_row, write_row
from rematbench.terminal import summarise


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
