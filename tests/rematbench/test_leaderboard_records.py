"""The library's records beside the leaderboard's rows on the same networks and budgets."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pandas as pd

from rematbench.instances.records import read_library
from rematbench.report.collect import collect
from rematbench.report.leaderboard.board import OTHER_OPS
from rematbench.rows.row import Row

HOUSE = Path(__file__).parents[2]


def _is_of_the_library_s_plans(row: Row) -> bool:
    """Those in program order, of PyTorch's own implementations, that say what made them."""
    said = row["extra"]
    known = "machine" in said and said.get("in_program_order") is True
    return known and row["status"] == "ok" and row["strategy"] not in OTHER_OPS


def test_no_row_of_today_s_leaderboard_is_cheaper_than_a_record() -> None:
    """Of those parts that have been run again."""
    library = read_library(HOUSE / "instances")
    records = {
        (problem.peak_bytes, problem.budget_bytes, problem.ops): library.record(name)
        for name, problem in library.instances.items()
        if problem.family == "networks"
    }
    compared = set()
    for part in sorted((HOUSE / "runs/reference/leaderboard").glob("full-*.csv.gz")):
        for row in filter(_is_of_the_library_s_plans, collect([part]).rows):
            place = row["checkpoint_all_peak_bytes"], row["budget_bytes"], row["ops"]
            if place not in records:
                continue
            best, cost = records[place], 1e9 * float(row["cost"] or 0.0)  # nanoseconds
            assert best.value is not None, best.instance
            # The library's costs are whole numbers: half a nanosecond for each op.
            assert best.value <= cost + (row["ops"] or 0), (best.instance, row["strategy"], cost)
            compared.add(best.instance)
    assert len(compared) >= 12


def test_no_row_is_a_second_or_a_twentieth_late() -> None:
    """In processor seconds. Four of REMATLIB-100's with one second are: up to 2.08 s."""
    places = sorted((HOUSE / "runs/reference").glob("*/*.csv.gz"))
    boards = [each for each in places if each.name.startswith(("full-", "rematlib-", "families-"))]
    rows = pd.concat(pd.read_csv(each, usecols=["status", "extra"]) for each in boards)
    assert len(rows) > 26_000
    late = []
    for status, extra in zip(rows["status"], map(json.loads, rows["extra"]), strict=True):
        # One that was killed has no plan, and no seconds.
        took = extra.get("plan_cpu_seconds", 0.0 if status == "time_limit" else math.inf)
        limit = extra["time_limit"]
        if took > limit + max(1.0, limit / 20):
            late.append((limit, round(took, 2)))
    assert sorted(late) == [(1.0, 2.0), (1.0, 2.0), (1.0, 2.01), (1.0, 2.08)]
