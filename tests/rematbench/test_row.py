"""Rows hold no NaN and no infinity, whatever a planner or a device says."""

from __future__ import annotations

import math
from pathlib import Path

from rematbench.row import finite, make_row, read_row, write_row


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
