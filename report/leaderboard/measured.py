"""Does a modelled ranking survive on a device? Modelled overheads beside measured ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import nan

import pandas as pd

from rematbench.report.leaderboard.board import problem
from rematbench.rows.row import Row, is_over_budget, known

NEAR = 0.05
"""Overheads so close to the cheapest plan's are what a choice is made among."""
LEAST = 3
"""Different plans of a problem, from which on a rank correlation says something."""
_COLUMNS = (
    *("problem", "plan", "strategy", "modelled", "measured"),
    *("half_width", "planned", "executed", "over"),
)


CLOSE = 0.01
"""Measured overheads so close to the quickest plan's are as good: intervals are about as wide."""


def by_device(rows: Iterable[Row]) -> Mapping[str, list[Row]]:
    """Rows of plans that ran, by the device: times and peaks of two are never set side by side.

    Returns:
        By its name, in the order of the first rows.
    """
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["measured_overhead"] is not None:
            found.setdefault(row["device"] or "an unnamed device", []).append(row)
    return found


def executed(rows: Iterable[Row]) -> pd.DataFrame:
    """Plans that ran with eager training's gradients, each one once.

    Returns:
        A line per plan: ``problem``, ``strategy`` (names of those that made it), ``modelled`` and
        ``measured`` overhead (ratios; of equal plans the median), ``half_width`` (of the measured
        one's 95 % interval), ``planned`` and ``executed`` peak (bytes), ``over`` (is the measured
        one above the budget?).
    """
    lines = [
        (
            problem(row),
            row["extra"].get("plan_hash", row["strategy"]),
            row["strategy"],
            known(row["overhead"]),
            row["measured_overhead"],
            _half_width(row),
            row["peak_bytes"],
            row["measured_peak_bytes"],
            is_over_budget(row),
        )
        for row in rows
        if row["status"] == "ok" and row["measured_overhead"] is not None and row["budget_fraction"]
    ]
    found = pd.DataFrame(lines, columns=list(_COLUMNS)).drop_duplicates(["problem", "strategy"])
    same = found.groupby(["problem", "plan"], sort=False)
    return same.agg(
        strategy=("strategy", ", ".join),
        modelled=("modelled", "median"),
        measured=("measured", "median"),
        half_width=("half_width", "median"),
        planned=("planned", "first"),
        executed=("executed", "first"),
        over=("over", "first"),
    ).reset_index()


def survival(rows: Iterable[Row]) -> pd.DataFrame:
    """How well the modelled order of a problem's plans is the measured one.

    Returns:
        A line per problem with at least :data:`LEAST` different plans: ``plans``,
        ``rank_correlation`` (Spearman, modelled and measured overhead), ``near`` (how many
        plans cost at most :data:`NEAR` more by the model than the cheapest) and their
        ``near_correlation`` (missing below :data:`LEAST`), ``modelled_best`` (by
        whom the plan is that is cheapest by the model), ``modelled_best_overhead`` and
        ``best_overhead`` (measured: of that plan, and of the quickest), ``half_width`` (the
        median of the plans' 95 % intervals of the measured overhead), ``peak_error`` (the
        largest, simulated against measured), ``over_budget`` (plans measured above the budget).
    """
    lines = []
    for name, plans in executed(rows).groupby("problem", sort=False):
        if len(plans) < LEAST:
            continue
        first = plans.loc[plans["modelled"].idxmin()]
        near = plans[plans["modelled"] <= first["modelled"] + NEAR]
        lines.append(
            {
                "problem": name,
                "plans": len(plans),
                "rank_correlation": _correlation(plans),
                "near": len(near),
                "near_correlation": _correlation(near),
                "modelled_best": first["strategy"],
                "modelled_best_overhead": first["measured"],
                "best_overhead": plans["measured"].min(),
                "half_width": plans["half_width"].median(),
                "peak_error": (plans["planned"] / plans["executed"] - 1).abs().max(),
                "over_budget": int(plans["over"].sum()),
            }
        )
    columns = [
        *("problem", "plans", "rank_correlation", "near", "near_correlation", "modelled_best"),
        *("modelled_best_overhead", "best_overhead", "half_width", "peak_error", "over_budget"),
    ]
    return pd.DataFrame(lines, columns=columns)


def standings(rows: Iterable[Row]) -> pd.DataFrame:
    """How strategies do by measured times, on problems where two of them have plans that ran.

    Args:
        rows: of one device.

    Returns:
        A line per strategy, those with most ``close`` plans first: ``plans`` (with eager training's
        gradients, one per problem), ``close`` (those within :data:`CLOSE` of the quickest of their
        problem), ``behind`` (measured overhead less that of the quickest, at the median),
        ``over_budget`` (plans measured above the budget).
    """
    lines = [
        (problem(row), row["strategy"], row["measured_overhead"], is_over_budget(row))
        for row in rows
        if row["status"] == "ok" and row["measured_overhead"] is not None and row["budget_fraction"]
    ]
    found = pd.DataFrame(lines, columns=["problem", "strategy", "overhead", "over_budget"])
    found = found.drop_duplicates(["problem", "strategy"])
    same = found.groupby("problem")["overhead"]
    found["behind"] = found["overhead"] - same.transform("min")
    found = found[same.transform("size") > 1]
    return (
        found.assign(close=found["behind"] <= CLOSE)
        .groupby("strategy", as_index=False)
        .agg(
            plans=("problem", "size"),
            close=("close", "sum"),
            behind=("behind", "median"),
            over_budget=("over_budget", "sum"),
        )
        .sort_values("close", ascending=False, kind="stable", ignore_index=True)
    )


def _half_width(row: Row) -> float:
    low, high = row["extra"].get("measured_overhead_interval") or (nan, nan)
    return (high - low) / 2


def _correlation(plans: pd.DataFrame) -> float:
    """Spearman's, of modelled and measured overhead; missing for fewer than :data:`LEAST`."""
    if len(plans) < LEAST:
        return nan
    return float(plans["modelled"].corr(plans["measured"], method="spearman"))
