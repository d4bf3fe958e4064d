"""Rows of a small field, whose numbers are worked out by hand."""

from __future__ import annotations

from typing import Any

from rematbench.rows.row import Row, make_row


def entry(model: str, fraction: float, strategy: str, cost: float | None, **known: Any) -> Row:
    """A row at a checkpoint-all cost of 100; without a cost, an infeasible one."""
    found: dict[str, Any] = {"status": "infeasible"}
    if cost is not None:
        found = {"status": "ok", "cost": cost, "overhead": cost / 100 - 1}
    same = {"batch_size": 4, "costmodel": "roofline", "checkpoint_all_cost": 100.0, "threads": 1}
    place = {"model": model, "budget_fraction": fraction, "strategy": strategy}
    times = {"plan_seconds": 0.1, "utc": "2026-01-01T00:00:00Z"}
    made = {"machine": "here", "time_limit": 20.0, "in_program_order": True}
    known["extra"] = made | known.get("extra", {})
    return make_row(**same | place | times | found | known)


# anytime: best on three of four; dtr: best on one (a tie) and 25 % above on another;
# ap_sqrt: best on one, where anytime ran out of time.
ROWS = (
    entry("resnet50", 0.7, "anytime", 100.0, bound=100.0, bound_of="any", plan_seconds=20.0),
    entry("resnet50", 0.7, "dtr", 100.0 + 1e-6),
    entry("resnet50", 0.7, "ap_sqrt", 130.0),
    entry("resnet50", 0.5, "anytime", 104.0, bound=100.0, bound_of="9", plan_seconds=20.0),
    entry("resnet50", 0.5, "dtr", 130.0),
    entry("resnet50", 0.5, "ap_sqrt", None),
    entry("unet", 0.7, "anytime", None, status="time_limit", plan_seconds=20.0),
    entry("unet", 0.7, "dtr", None),
    entry("unet", 0.7, "ap_sqrt", 140.0),
    entry("unet", 0.5, "anytime", 120.0, bound=90.0, bound_of="C", plan_seconds=20.0),
    entry("unet", 0.5, "dtr", None),
    entry("unet", 0.5, "ap_sqrt", None),
)
