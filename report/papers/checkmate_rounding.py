"""Figure 7 of the Checkmate paper: two-phase rounding, deterministic and randomized."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from rematbench.report.collect import Record
from rematbench.report.figures import ClaimLine, Drawing
from rematbench.report.style import colour, shown
from rematbench.rows.row import Row, known

_GB = 1e9
_SOLVED = {"checkmate_ilp": "ILP", "anytime": shown("anytime")}
"""Beside the roundings: the paper's program, and our search."""


def draw(name: str, records: Sequence[Record]) -> Drawing | None:
    """Figure 7, at one budget: the last row's."""
    rows = [record.row for record in records if record.row["budget_bytes"]]
    return _draw_rounding([row for row in rows if row["budget_bytes"] == rows[-1]["budget_bytes"]])


def rounding_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Every rounded plan, the ILP's and our search's: memory and cost in milliseconds."""
    found = []
    for row in rows:
        if row["strategy"] == "checkmate_rounding" and row["status"] == "ok":
            points = row["extra"].get("curve", [])
        elif row["strategy"] in _SOLVED and row["status"] == "ok":
            points = [{"cost": row["cost"], "peak_bytes": row["peak_bytes"]}]
        else:
            continue
        scale = {"second": 1e3, "nanosecond": 1e-6}.get(str(row["cost_unit"]), 1.0)
        kind = _SOLVED.get(str(row["strategy"]), row["variant"])
        found += [
            {
                "model": row["model"],
                "kind": kind,
                "epsilon": point.get("epsilon"),
                "threshold": point.get("threshold"),
                "memory_GB": point["peak_bytes"] / _GB,
                "cost_ms": point["cost"] * scale,
            }
            for point in points
        ]
    solved = _SOLVED.values()
    with_rounding = {each["model"] for each in found if each["kind"] not in solved}
    return pd.DataFrame([each for each in found if each["model"] in with_rounding])


_KINDS = {
    "deterministic": ("checkmate_rounding", "o"),
    "randomized": ("random_checkpoints", "x"),
    "ILP": ("checkmate_ilp", "*"),
    shown("anytime"): ("anytime", "P"),
}


def _draw_rounding(rows: Sequence[Row]) -> Drawing | None:
    data = rounding_table(rows)
    if data.empty:
        return None
    budget = known(rows[0]["budget_bytes"]) / _GB
    sns.set_theme("paper", "whitegrid")
    models = sorted(set(data["model"]), reverse=True)
    figure = Figure(figsize=(3.4 * len(models), 3.1), layout="constrained")
    panels = figure.subplots(1, len(models), squeeze=False)[0]
    for axes, model in zip(panels, models, strict=True):
        mine = data[data["model"] == model]
        for kind, (like, sign) in _KINDS.items():
            points = mine[mine["kind"] == kind]
            size, above = (90, 4) if kind in _SOLVED.values() else (22, 3)
            axes.scatter(points["memory_GB"], points["cost_ms"], color=colour(like), marker=sign,
                         s=size, zorder=above)  # fmt: skip
        drawn = mine[mine["kind"] == "randomized"]["cost_ms"]
        if len(drawn):
            axes.axhline(drawn.mean(), color=colour("random_checkpoints"), linestyle=":")
        axes.axvline(budget, color="0.3", linestyle="--", linewidth=0.8)
        axes.set(title=model, xlabel="memory (GB)")
    panels[0].set_ylabel("cost (ms, modelled)")
    handles = [
        Line2D([], [], color=colour(like), marker=sign, linestyle="", label=kind)
        for kind, (like, sign) in _KINDS.items()
        if kind in set(data["kind"])
    ]
    if "randomized" in set(data["kind"]):
        handles.append(Line2D([], [], color=colour("random_checkpoints"), linestyle=":",
                              label="mean of randomized"))  # fmt: skip
    handles.append(Line2D([], [], color="0.3", linestyle="--", linewidth=0.8, label="budget"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=7.5, frameon=False)
    title = f"Figure 7: two-phase rounding, deterministic and randomized, at {budget:g} GB"
    notes = [*_rounding_notes(data, budget), *_without_plan(rows)]
    return Drawing(title, data, figure, tuple(notes))


def _without_plan(rows: Sequence[Row]) -> list[ClaimLine]:
    """Roundings, or the ILP, without a plan within the budget: nothing of them is drawn."""
    lines = [
        ClaimLine(
            f"{row['model']}: a rounding without a plan at {known(row['budget_bytes']) / _GB:g} GB",
            "not printed",
            str(row["reason"]),
            "the relaxation was not solved: no schedule was rounded"
            if row["status"] in ("not_applicable", "time_limit")
            else "few of the rounded schedules fit a tight budget",
        )
        for row in rows
        if row["strategy"] == "checkmate_rounding" and row["status"] != "ok"
    ]
    lines += [
        ClaimLine(
            f"{row['model']}: the ILP (checkmate_ilp)", "solved", str(row["reason"]),
            "HiGHS and a short limit in place of Gurobi and an hour",
        )
        for row in rows
        if row["strategy"] == "checkmate_ilp" and row["status"] != "ok"
    ]  # fmt: skip
    return list(dict.fromkeys(lines))  # one reason for both roundings is told once


def _rounding_notes(data: pd.DataFrame, budget: float) -> list[ClaimLine]:
    lines = []
    for model, mine in data.groupby("model"):
        fits = mine[mine["memory_GB"] <= budget]
        text = []
        for kind in _KINDS:
            points, all_of = fits[fits["kind"] == kind], mine[mine["kind"] == kind]
            if len(all_of):
                best = f"cheapest {points['cost_ms'].min():.1f} ms" if len(points) else "none fits"
                text.append(f"{kind}: {best}, {len(points)} of {len(all_of)} within the budget")
        lines.append(
            ClaimLine(
                f"{model}: deterministic rounding is cheaper than randomized",
                "'consistently lower cost' (appendix D)",
                "; ".join(text),
                "our deterministic rounding tries several epsilons and thresholds",
            )
        )
    return lines
