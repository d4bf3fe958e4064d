"""Overhead against budget, per model: simulated above, measured below."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rematbench.graphs.errors import ConfigError
from rematbench.report.style import colour, marker, order
from rematbench.row import Row

_KINDS = {"overhead": "simulated", "measured_overhead": "measured"}


def table(rows: list[Row]) -> pd.DataFrame:
    """What the figure shows: one line per feasible row and kind of overhead."""
    columns = ["model", "strategy", "budget_fraction", "budget_bytes", *_KINDS]
    frame = pd.DataFrame([row for row in rows if row["status"] == "ok"], columns=columns)
    long = frame.melt(columns[:4], list(_KINDS), "kind", "value")
    long["kind"] = long["kind"].map(_KINDS)
    return long.dropna(subset=["budget_fraction", "value"]).reset_index(drop=True)


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
    figure = _figure(data)
    out.mkdir(parents=True, exist_ok=True)
    paths = [out / f"overhead.{ending}" for ending in ("png", "pdf", "csv")]
    for path in paths[:2]:
        figure.savefig(path, dpi=160, bbox_inches="tight")
    plt.close(figure)
    data.to_csv(paths[2], index=False)
    return paths


def _figure(data: pd.DataFrame) -> Figure:
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
    grid.set_xlabels("budget / checkpoint-all's peak")
    figure: Figure = grid.figure
    return figure
