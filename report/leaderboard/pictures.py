"""Pictures of a field: performance profiles, and planning time against quality."""

from __future__ import annotations

import matplotlib as mpl

mpl.use("Agg")

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from rematbench.report.leaderboard.board import Board
from rematbench.report.leaderboard.tables import profile, summary
from rematbench.report.style import colour, dashes, marker

FACTORS = np.concatenate([[1.0], 1 + np.geomspace(0.001, 1.0, 120)])
"""Of the best known cost."""
_NAMED = 12  # curves in a picture's legend; the table has all
_UNNAMED = 0.03  # a share below which points lie upon each other


def profile_picture(board: Board) -> tuple[Figure, pd.DataFrame]:
    """Performance profiles of the strategies with the largest area under them, and all the data."""
    data = profile(board, FACTORS)
    width = np.diff(np.log10(FACTORS - 1 + 0.001), append=np.nan)[:-1]
    area = (data.iloc[:-1].mul(width, axis=0)).sum().sort_values(ascending=False, kind="stable")
    figure = Figure(figsize=(7.2, 4.2), layout="constrained")
    axes = figure.subplots()
    for name in area.index[:_NAMED]:
        axes.step(
            FACTORS - 1 + 0.001,
            data[name],
            where="post",
            color=colour(name),
            linestyle=dashes(name),
            marker=marker(name),
            markevery=20,
            markersize=4,
            label=name,
        )
    axes.set_xscale("log")
    ticks = (0, 0.01, 0.05, 0.2, 0.5, 1.0)
    axes.set_xticks(
        [tick + 0.001 for tick in ticks], [f"+{tick:.0%}" for tick in ticks], minor=False
    )
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlabel("cost over the best known plan of the same budget")
    axes.set_ylabel(f"share of {len(board.problems)} problems")
    axes.grid(alpha=0.3)
    axes.legend(fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5), frameon=False)
    return figure, data


def time_picture(board: Board) -> tuple[Figure, pd.DataFrame]:
    """How long a strategy plans (median) against how often it is within 1 % of the best cost."""
    data = summary(board)[["seconds", "within_1", "solved"]].dropna()
    figure = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = figure.subplots()
    named: list[tuple[float, float]] = []
    for name, line in data.sort_values("within_1", ascending=False, kind="stable").iterrows():
        place = max(line["seconds"], 1e-3), line["within_1"]
        axes.plot(*place, marker(str(name)), color=colour(str(name)))
        if place[1] < _UNNAMED:
            continue
        near = sum(
            abs(np.log10(place[0] / x)) < 0.6 and abs(place[1] - y) < _UNNAMED for x, y in named
        )
        left = place[0] > 1  # where there is room inside the frame
        axes.annotate(
            str(name),
            place,
            (-5 if left else 5, 2 - 8 * near),
            textcoords="offset points",
            fontsize=6,
            ha="right" if left else "left",
        )
        named.append(place)
    axes.set_xscale("log")
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.set_xlabel("planning time, median (seconds)")
    axes.set_ylabel("problems within 1 % of the best known cost")
    axes.grid(alpha=0.3)
    return figure, data
