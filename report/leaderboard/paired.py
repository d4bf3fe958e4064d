"""Strategies two by two, on the problems that both solve."""

from __future__ import annotations

import numpy as np
import pandas as pd

from rematbench.report.leaderboard.board import TIE, Board
from rematbench.report.leaderboard.shares import FEW
from rematbench.report.leaderboard.tables import BLIND

RESAMPLES = 2_000


def paired(board: Board) -> pd.DataFrame:
    """Every strategy beside the first one, on what both have a plan for.

    Problems of one network are alike, so that the bootstrap draws networks, not problems.

    Returns:
        A line per strategy: ``problems`` and ``networks`` that both solve, on how many of them it
        is ``cheaper``, ``equal`` (within :data:`~.board.TIE`) and ``dearer``, the geometric mean of
        its ``cost`` over the first one's, and the ends of that mean's 95 % interval, ``low`` and
        ``high`` (missing below :data:`.FEW` networks).
    """
    first = reference(board)
    others = [n for n in board.strategies if n != first and not _plays_otherwise(board, n)]
    entries = board.entries[np.isfinite(board.entries["cost"])]
    costs = entries.pivot_table("cost", ["network", "problem"], "strategy", observed=True)
    lines = []
    for name in others if first in costs else ():
        both = costs[[first, name]].dropna() if name in costs else costs.iloc[:0]
        if both.empty:
            continue
        ratio = np.log(both[name] / both[first])
        low, high = interval(ratio)
        lines.append(
            {
                "strategy": name,
                "problems": len(both),
                "networks": both.index.get_level_values("network").nunique(),
                "cheaper": int((ratio < -TIE).sum()),
                "equal": int((ratio.abs() <= TIE).sum()),
                "dearer": int((ratio > TIE).sum()),
                "cost": float(np.exp(ratio.mean())),
                "low": low,
                "high": high,
            }
        )
    columns = [
        *("strategy", "problems", "networks", "cheaper", "equal", "dearer"),
        *("cost", "low", "high"),
    ]
    return pd.DataFrame(lines, columns=columns)


def reference(board: Board) -> str:
    """The strategy with most best plans, of those that know what the others know."""
    fair = (n for n in board.strategies if n != BLIND and not _plays_otherwise(board, n))
    return next(fair, board.strategies[0])


def _plays_otherwise(board: Board, name: str) -> bool:
    mine = board.entries[board.entries["strategy"] == name]
    return bool(mine["other"].all())


def interval(ratio: pd.Series) -> tuple[float, float]:
    """Of the geometric mean, by drawing networks with replacement."""
    groups = [mine.to_numpy() for _, mine in ratio.groupby(level="network")]
    if len(groups) < FEW:
        return np.nan, np.nan
    sums = np.array([group.sum() for group in groups])
    sizes = np.array([len(group) for group in groups])
    drawn = np.random.default_rng(0).integers(len(groups), size=(RESAMPLES, len(groups)))
    means = sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)
    low, high = np.exp(np.quantile(means, [0.025, 0.975]))
    return float(low), float(high)
