"""docs/start.md and docs/tutorial.md print what the committed rows of their commands hold."""

from __future__ import annotations

import json

from committed import HOUSE, lines

ROWS = {
    (row["model"], row["strategy"], row["budget_fraction"]): row
    for row in lines("runs/reference/first-pages.csv")
}
MIB = 2**20


def test_the_rows_are_of_one_clean_commit() -> None:
    assert len({row["commit"] for row in ROWS.values()}) == 1
    assert not any("dirty" in row["commit"] for row in ROWS.values())


def test_the_tutorial_s_numbers() -> None:
    page = (HOUSE / "docs/tutorial.md").read_text()
    plain = ROWS["mine:make", "checkpoint_all", ""]
    floor = json.loads(plain["extra"])["floor_bytes"]
    assert f"`peak_bytes={plain['peak_bytes']}` (simulated)" in page
    assert f"`measured_peak_bytes={plain['measured_peak_bytes']}`" in page
    assert f"can go ({floor:,}: a sixth)" in page
    assert round(int(plain["peak_bytes"]) / floor) == 6
    for budget in ("0.6", "0.4"):
        for strategy in ("anytime", "dtr", "ap_sqrt"):
            assert line_of(strategy, budget) in page


def line_of(strategy: str, budget: str) -> str:
    row = ROWS["mine:make", strategy, budget]
    peak = f"{int(row['peak_bytes']) / MIB:.1f}"
    if row["status"] == "infeasible":
        return f"| `{strategy}` | {budget} | infeasible | | {peak} | |"
    assert row["gradient_bitwise"] == "true"
    costs = (100 * float(row[name]) for name in ("overhead", "measured_overhead"))
    measured = f"{int(row['measured_peak_bytes']) / MIB:.1f}"
    cells = " | ".join([*(f"{cost:+.1f} %" for cost in costs), peak, measured])
    return f"| `{strategy}` | {budget} | {cells} |"


def test_the_first_job_s_numbers() -> None:
    page = (HOUSE / "docs/start.md").read_text()
    row = ROWS["resnet50", "ap_sqrt", ""]
    for name in ("overhead", "peak_bytes", "measured_peak_bytes", "measured_overhead"):
        assert f"\n{name}={row[name]}" in page
    costs = (f"{100 * float(row[name]):+.1f} %" for name in ("overhead", "measured_overhead"))
    assert "ok: {} cost (measured {}), peak".format(*costs) in page
