"""The line that a job ends with."""

from __future__ import annotations

from pathlib import Path

import pytest

from rematbench.cli.closing import closing_line
from rematbench.jobs.columns import of_excess
from rematbench.rows.row import joined, make_row


@pytest.mark.parametrize(
    ("costmodel", "measured", "said"),
    [
        ("flops", 100, "ok: peak 90 B of 100 B; all of it: out/row.json"),
        (
            "flops",
            107,
            "ok: peak 90 B of 100 B (MEASURED 7 bytes ABOVE the budget); all of it: out/row.json",
        ),
        (
            "profiled",
            107,
            "failed: peak 90 B of 100 B (MEASURED 7 bytes ABOVE the budget); all of it: "
            "out/row.json",
        ),
    ],
)
def test_a_measured_peak_above_the_budget_is_not_overlooked(
    costmodel: str, measured: int, said: str
) -> None:
    row = make_row(status="ok", costmodel=costmodel, peak_bytes=90, budget_bytes=100)
    row["measured_peak_bytes"] = measured
    if measured > 100:
        excess = {"extra": {"over_budget_bytes": measured - 100}}
        row = joined(row, of_excess(measured, None, 100, costmodel), excess)
    assert closing_line(row, Path("out")) == said
