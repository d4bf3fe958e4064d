"""Overhead against budget, per model: simulated above, with what is proven, measured below."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rematbench.base.errors import ConfigError
from rematbench.report.style import colour, marker, order
from rematbench.rows.row import Row

_KINDS = {"overhead": "simulated", "measured_overhead": "measured"}


def table(rows: list[Row]) -> pd.DataFrame:
    """What the figure shows: one line per feasible row and kind of overhead.

    ``low`` and ``high`` are the 95 % interval of a measured one.
    """
    ids = ["model", "strategy", "budget_fraction", "budget_bytes", "low", "high"]
    lines = [row | _interval(row) for row in rows if row["status"] == "ok"]
    frame = pd.DataFrame(lines, columns=[*ids, *_KINDS])
    long = frame.melt(ids, list(_KINDS), "kind", "value")
    long["kind"] = long["kind"].map(_KINDS)
    long.loc[long["kind"] == "simulated", ["low", "high"]] = float("nan")
    return long.dropna(subset=["budget_fraction", "value"]).reset_index(drop=True)


def _interval(row: Row) -> dict[str, float | None]:
    """The 95 % interval of the measured overhead, where the row has one."""
    low, high = row["extra"].get("measured_overhead_interval") or (None, None)
    return {"low": low, "high": high}


def bounds(rows: list[Row]) -> pd.DataFrame:
    """What is proven: per model and budget, the overhead that no plan of a bound's space beats.

    What holds within a budget holds within a smaller one.
    """
    proven = [
        {
            "model": row["model"],
            "budget_fraction": row["budget_fraction"],
            "value": row["bound"] / row["checkpoint_all_cost"] - 1,
        }
        for row in rows
        if row["bound"] is not None and row["budget_fraction"] and row["checkpoint_all_cost"]
    ]
    columns = ["model", "budget_fraction", "value"]
    frame = pd.DataFrame(proven, columns=columns).astype({"value": float})
    best = frame.groupby(columns[:2], as_index=False)["value"].max()
    falling = best.sort_values("budget_fraction", ascending=False)
    return best.assign(value=falling.groupby("model")["value"].cummax())


def in_words(rows: list[Row]) -> str | None:
    """What the figure shows, in a sentence: the cheapest and the dearest plan near half the memory.

    Measured overheads where there are any; None where no two strategies have a plan.
    """
    data = table(rows)
    kinds = [kind for kind in reversed(_KINDS.values()) if kind in set(data["kind"])]
    tight = data[(data["budget_fraction"] < 1) & (data["kind"] == kinds[0])] if kinds else data
    if tight.empty:
        return None
    shared = tight.groupby("budget_fraction")["model"].nunique()
    most = shared.index[shared == shared.max()]
    fraction = float(min(most, key=lambda each: abs(each - 0.5)))
    text = []
    for model, mine in tight[tight["budget_fraction"] == fraction].groupby("model", sort=False):
        best, worst = mine.loc[mine["value"].idxmin()], mine.loc[mine["value"].idxmax()]
        if best["strategy"] != worst["strategy"]:
            words = f"{best['value']:+.0%} ({best['strategy']}) to {worst['value']:+.0%}"
            text.append(f"{model} {words} ({worst['strategy']})")
    if not text:
        return None
    what = f"{kinds[0]} time over training that recomputes nothing"
    return f"Within {fraction:g} of the memory, {what}: {'; '.join(text)}."


def draw(rows: list[Row], out: Path) -> list[Path]:
    """Draw ``overhead.png`` and ``.pdf``, and write ``overhead.csv`` with what they show.

    Raises:
        ConfigError: no row has a plan at a fractional budget.
    """
    data = table(rows)
    if data.empty:
        raise ConfigError(
            "figure overhead: no ok row has a fractional budget; sweep budget=0.5,..."
        )
    figure = _figure(data, bounds(rows))
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"overhead.{ending}" for ending in ("png", "pdf", "csv")]
    for path in paths[:2]:
        figure.savefig(path, dpi=160, bbox_inches="tight")
    plt.close(figure)
    data.to_csv(paths[2], index=False)
    return paths


def _figure(data: pd.DataFrame, proven: pd.DataFrame) -> Figure:
    sns.set_theme("paper", "whitegrid")
    strategies = order(set(data["strategy"]))
    kinds = [kind for kind in _KINDS.values() if kind in set(data["kind"])]
    grid = sns.relplot(
        data,
        x="budget_fraction",
        y="value",
        col="model",
        row="kind",
        row_order=kinds,
        hue="strategy",
        style="strategy",
        hue_order=strategies,
        style_order=strategies,
        palette={name: colour(name) for name in strategies},
        markers={name: marker(name) for name in strategies},
        dashes=False,
        kind="line",
        estimator=None,
        height=2.6,
        aspect=1.15,
        facet_kws={"sharey": "row"},
    )
    grid.set_titles("{col_name}")
    for kind, axes in zip(kinds, grid.axes, strict=True):
        axes[0].set_ylabel(f"{kind} overhead")
        axes[0].yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        for axis in axes:
            axis.axhline(0, color="0.4", linewidth=0.8, zorder=0)
        if kind == "simulated":
            _draw_bounds(grid, axes, proven)
        else:
            _draw_intervals(grid, axes, data[data["kind"] == kind])
    grid.set_xlabels("budget / checkpoint-all's peak")
    figure: Figure = grid.figure
    return figure


def _draw_intervals(grid: sns.FacetGrid, row: Sequence[Axes], data: pd.DataFrame) -> None:
    """The 95 % interval of each measured overhead, as a bar through its point.

    The frame is that of the points, and half as much around: other work on the machine may stretch
    a bar to ten times all that is compared.
    """
    bottom, top = row[0].get_ylim()
    for model, axis in zip(grid.col_names, row, strict=True):
        known = data[data["model"] == model].dropna(subset=["low", "high"])
        for name, mine in known.groupby("strategy"):
            ends = [mine["value"] - mine["low"], mine["high"] - mine["value"]]
            look: dict[str, Any] = {"ecolor": colour(str(name)), "elinewidth": 0.9}
            axis.errorbar(
                mine["budget_fraction"], mine["value"], yerr=ends, fmt="none", capsize=2, **look
            )
    row[0].set_ylim(bottom - (top - bottom) / 2, top + (top - bottom) / 2)


def _draw_bounds(grid: sns.FacetGrid, row: Sequence[Axes], proven: pd.DataFrame) -> None:
    """A dotted line under the curves of each model: no plan is below it."""
    for model, axis in zip(grid.col_names, row, strict=True):
        mine = proven[proven["model"] == model].sort_values("budget_fraction")
        axis.plot(mine["budget_fraction"], mine["value"], ":", color="0.1", label="proven bound")
    if len(proven):
        row[0].legend(handles=[row[0].lines[-1]], fontsize="x-small", loc="upper right")
