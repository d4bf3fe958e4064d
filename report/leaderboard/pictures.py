"""Pictures of a field: performance profiles, and quality over planning time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rematbench.report.leaderboard.board import Board
from rematbench.report.leaderboard.names import label
from rematbench.report.leaderboard.tables import profile
from rematbench.report.style import colour, dashes, marker

FACTORS = np.concatenate([[1.0], 1 + np.geomspace(1e-5, 1.0, 200)])
"""Of the best known cost."""
_NAMED = 12  # curves in a picture's legend; the table has all
TIMES = np.geomspace(0.01, 100, 81)
"""Seconds."""


def profile_picture(board: Board) -> tuple[Figure, pd.DataFrame]:
    """Performance profiles of the strategies with the largest area under them, and all the data."""
    data = profile(board, FACTORS)
    width = np.diff(np.log10(FACTORS - 1 + 0.001), append=np.nan)[:-1]
    area = (data.iloc[:-1].mul(width, axis=0)).sum().sort_values(ascending=False, kind="stable")
    figure, axes = _curves(FACTORS - 1 + 0.001, data[area.index[:_NAMED]], every=30)
    ticks = (0, 0.01, 0.05, 0.2, 1.0)
    axes.set_xticks(
        [tick + 0.001 for tick in ticks], [f"+{tick:.0%}" for tick in ticks], minor=False
    )
    axes.minorticks_off()
    axes.set_xlabel("cost over the best known plan of the same budget")
    axes.set_ylabel(f"share of {len(board.problems)} problems")
    return figure, data


def time_picture(board: Board) -> tuple[Figure, pd.DataFrame]:
    """On how many problems a planner had a plan within 1 % of the best known cost, by when."""
    data = pd.DataFrame(
        {
            name: [(mine["soon"] <= at).mean() for at in TIMES]
            for name, mine in board.entries[~board.entries["other"]].groupby("strategy", sort=False)
        },
        index=pd.Index(TIMES, name="seconds"),
    )
    spent = board.entries["seconds"].astype(float).max()
    data = data[data.index <= max(spent * 1.1, TIMES[1])]  # of later, nobody knows
    order = data.mean().sort_values(ascending=False, kind="stable")
    figure, axes = _curves(data.index.to_numpy(), data[order.index[order > 0][:_NAMED]], every=12)
    axes.set_xlabel("planning time (seconds)")
    axes.set_ylabel(f"share of {len(board.problems)} problems")
    axes.set_title("With a plan within 1 % of the best known cost", fontsize=9, loc="left")
    return figure, data


def _curves(x: np.ndarray, data: pd.DataFrame, every: int) -> tuple[Figure, Axes]:
    """A step curve per column over a logarithmic axis, with a mark every so many points."""
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    for name in data:
        look: dict[str, Any] = {
            "color": colour(name),
            "linestyle": dashes(name),
            "marker": marker(name),
        }
        axes.step(
            x, data[name], where="post", markevery=every, markersize=4, label=label(name), **look
        )
    axes.set_xscale("log")
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylim(-0.02, 1.02)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure, axes
