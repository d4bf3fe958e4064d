"""Tables of a field: each is made of :attr:`Board.entries` alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from rematbench.report.leaderboard.board import TIE, Board
from rematbench.report.leaderboard.held import HELD
from rematbench.report.leaderboard.shares import CountOf, share

AT = (0.7, 0.5, 0.35)
"""Budgets at which overheads are compared, as fractions of checkpoint-all's peak."""
_EDGES = (0.0, 0.3, 0.45, 0.65, 0.85, 1.0)
_BUDGETS = ("below 0.3", "0.3 to 0.45", "0.45 to 0.65", "0.65 to 0.85", "0.85 and more")
MOST = 0.8
"""Share of the problems that anybody solves, from which on a strategy takes part in medians."""
BLIND = "checkmate_d"  # to workspaces; where there are none, anytime
QUALITY = ("best", "alone", "within_5", "within_1", *(f"within_1_at_{at}" for at in HELD))
"""Shares of plans that are nearly the best of the captured ops."""
ALL = "all kinds"
"""The family of every network, in the lines of all."""


def profile(board: Board, factors: np.ndarray) -> pd.DataFrame:
    """Performance profiles (Dolan and Moré, 2002).

    Args:
        factors: of the best known cost, at least 1.

    Returns:
        A line per factor, a column per strategy: the share of problems on which its plan costs at
        most ``factor`` times the best known one. Where it has no plan, its cost is infinite. Who
        runs other ops than the captured ones has no column: their plans are not of this measure.
    """
    columns = {
        name: [(mine["ratio"] <= factor * (1 + TIE)).mean() for factor in factors]
        for name, mine in board.entries.groupby("strategy", sort=False)
        if not mine["other"].all()
    }
    shown = [name for name in board.strategies if name in columns]
    return pd.DataFrame(columns, index=pd.Index(factors, name="factor"))[shown]


def summary(board: Board) -> pd.DataFrame:
    """A line per strategy: where it has a plan, how good, how soon.

    Returns:
        ``problems`` asked, ``applicable`` (of them it could be asked); shares (:class:`.CountOf`)
        of
        those: ``solved``, ``best`` (no plan is cheaper), ``alone`` (every other is dearer),
        ``within_1`` and ``within_5`` (per cent of the best cost), ``within_1_at_1`` and so on
        (within 1 per cent after 1, 5 and 20 seconds, of those of which it is known: of none, where
        none was given so long, and some would have gone on); the same of
        all problems, ``solved_all`` and so on; ``overhead`` (median of the problems of
        :func:`common`; missing: it has no plan for one) and ``seconds`` of planning (median of
        solved problems). Who runs other ops than the captured ones is cheaper by those, and has no
        share of :data:`QUALITY`: None.
    """
    shared_problems = common(board)
    shared = board.entries.groupby("problem")["best"].transform("sum")
    lines = []
    for name, mine in board.entries.groupby("strategy", sort=False):
        solved = np.isfinite(mine["cost"])
        alike = mine[mine["problem"].isin(shared_problems)]
        has_all = len(alike) and np.isfinite(alike["cost"]).sum() == len(shared_problems)
        alone = mine["best"] & (shared[mine.index] == 1)
        lines.append(
            {
                "strategy": name,
                "problems": len(mine),
                "applicable": share(mine["applies"], mine),
                **_shares(mine[mine["applies"]], alone, ""),
                **_shares(mine, alone, "_all"),
                "overhead": alike["overhead"].median() if has_all else np.nan,
                "seconds": mine.loc[solved, "seconds"].median(),
            }
        )
    return pd.DataFrame(lines).set_index("strategy").loc[board.strategies]


def _shares(mine: pd.DataFrame, alone: pd.Series, ending: str) -> dict[str, CountOf | None]:
    """Of the problems of some lines of one strategy."""
    found = {
        "solved": share(np.isfinite(mine["cost"]), mine),
        "best": share(mine["best"], mine),
        "alone": share(alone[mine.index], mine),
        "within_5": share(mine["ratio"] <= 1.05, mine),
        "within_1": share(mine["ratio"] <= 1.01, mine),
    }
    for at in HELD:
        known = _known(mine, at)
        found[f"within_1_at_{at}"] = share(known[f"ratio_{at}"] <= 1.01, known)
    otherwise = len(mine) > 0 and bool(mine["other"].all())
    return {
        f"{key}{ending}": None if otherwise and key in QUALITY else each
        for key, each in found.items()
    }


def _known(mine: pd.DataFrame, at: float) -> pd.DataFrame:
    """Lines of a strategy that say what it had after so many seconds.

    Where some runs were cut short before, only those count that were given so long: those that
    were done before are the easy problems, and a share of them alone says nothing.
    """
    known = mine[f"ratio_{at}"].notna()
    cut = ~known & mine["limit"].notna()
    return mine[known & (mine["limit"] >= at)] if cut.any() else mine[known]


def common(board: Board) -> list[str]:
    """Problems for which each strategy has a plan that solves most of what anybody solves.

    Medians of other problems would reward who fails where plans are dear.
    """
    solved = board.entries[np.isfinite(board.entries["cost"])]
    anybody = solved["problem"].nunique()
    counts = solved.groupby("strategy")["problem"].nunique()
    most = counts.index[counts >= MOST * anybody]
    each = solved[solved["strategy"].isin(most)].groupby("problem")["strategy"].nunique()
    return list(each.index[each == len(most)])


def smallest_budgets(board: Board) -> pd.DataFrame:
    """The smallest fraction asked that a strategy met: models by strategies; missing: none."""
    solved = board.entries[np.isfinite(board.entries["cost"])]
    found = solved.pivot_table("fraction", "model", "strategy", "min", observed=True)
    models = list(dict.fromkeys(board.entries["model"]))
    return found.reindex(index=models, columns=board.strategies)


def overheads(board: Board) -> pd.DataFrame:
    """By family, fraction of :data:`AT` and strategy.

    Returns:
        ``problems``, ``solved`` (:class:`.CountOf` of those that the strategy applies to),
        ``median`` and ``worst`` overhead of the solved ones.
    """
    near = board.entries[board.entries["fraction"].isin(AT)]
    lines = []
    for (kind, fraction, name), mine in near.groupby(["family", "fraction", "strategy"]):
        found = mine.loc[np.isfinite(mine["cost"]), "overhead"]
        asked = mine[mine["applies"]]
        lines.append(
            {
                "family": kind,
                "fraction": fraction,
                "strategy": name,
                "problems": len(mine),
                "solved": share(np.isfinite(asked["cost"]), asked),
                "median": found.median(),
                "worst": found.max(),
            }
        )
    columns = ["family", "fraction", "strategy", "problems", "solved", "median", "worst"]
    frame = pd.DataFrame(lines, columns=columns)
    return frame.sort_values(["family", "fraction"], ascending=[True, False], kind="stable")


def winners(board: Board) -> pd.DataFrame:
    """Which strategy to use: by family and fraction, of all plans and of those made in a second.

    The last lines are of all families together, where there are several.

    The lowest median overhead wins, a problem without a plan (or row) being infinitely dear; all
    within 0.1 points of it share the place. Where every strategy fails on half, none wins.
    Who chooses other implementations (MONeT, Checkmate-O; Gist's are lossy) or sees no workspaces
    (Checkmate-D) is set beside, not among them.

    Returns:
        ``family``, ``fraction``, ``problems`` and their ``networks``, ``best`` and ``quick``
        (names, the one that solves most first; quick: by the plan that each had after a second),
        the first one's median, ``best_overhead`` and ``quick_overhead``, and ``joint_overhead``.
    """
    entries = board.entries
    groups = [entries] if entries["family"].nunique() < 2 else [entries, entries.assign(family=ALL)]
    lines = [
        _line(str(kind), float(fraction), near)
        for group in groups
        for (kind, fraction), near in group.groupby(["family", "fraction"])
        if fraction in AT
    ]
    columns = [
        *("family", "fraction", "problems", "networks"),
        *("best", "best_overhead", "quick", "quick_overhead", "joint_overhead"),
    ]
    frame = pd.DataFrame(lines, columns=columns)
    last = (frame["family"] == ALL).rename("last")
    keys = ["last", "family", "fraction"]
    frame = frame.assign(last=last).sort_values(keys, ascending=[True, True, False], kind="stable")
    return frame.drop(columns="last")


def _line(kind: str, fraction: float, near: pd.DataFrame) -> dict[str, object]:
    asked = near["problem"].unique()
    line: dict[str, object] = {"family": kind, "fraction": fraction, "problems": len(asked)}
    line["networks"] = near["network"].nunique()
    plain = near[~near["other"] & (near["strategy"] != BLIND)]
    for label, column in (("best", "overhead"), ("quick", "overhead_1")):
        names, overhead = _winner(plain, asked, column)
        line |= {label: ", ".join(names), f"{label}_overhead": overhead}
    joint = near[near["strategy"] == "anytime_joint"]
    line["joint_overhead"] = _winner(joint, asked, "overhead")[1]
    return line


def _winner(field: pd.DataFrame, problems: Sequence[str], column: str) -> tuple[list[str], float]:
    grid = field.pivot_table(column, "problem", "strategy", "last", observed=True)
    grid = grid.reindex(problems).fillna(np.inf)
    medians = grid.median()
    if not np.isfinite(medians).any():
        return [], np.nan
    first = medians.index[medians <= medians.min() + 0.001]
    solved = np.isfinite(grid[first]).sum().sort_values(ascending=False, kind="stable")
    return list(solved.index), float(medians[solved.index[0]])


def gaps(board: Board) -> pd.DataFrame:
    """By family: how far the best known plans may be from optimal.

    Returns:
        ``problems``, ``proven`` (:class:`.CountOf` whose best plan is optimal), ``bounded`` (share
        with any bound), ``median`` and ``worst`` gap of those; the last three from any plan and,
        ``_in_F``, from those that recompute forward ops alone, after the forward pass.
    """
    return _gaps(board.problems.groupby("family"), "family")


def gaps_by_budget(board: Board) -> pd.DataFrame:
    """The same by budget, from wide to tight."""
    kinds = pd.cut(board.problems["fraction"], _EDGES, labels=_BUDGETS)
    return _gaps(board.problems.groupby(kinds, observed=True), "budget").iloc[::-1]


def _gaps(groups: Any, name: str) -> pd.DataFrame:
    lines = []
    for kind, mine in groups:
        line = {name: kind, "problems": len(mine), "proven": share(mine["optimal"], mine)}
        for column, ending in (("gap", ""), ("gap_in_F", "_in_F")):
            line[f"bounded{ending}"] = share(mine[column].notna(), mine)
            line[f"median{ending}"] = mine[column].median()
            line[f"worst{ending}"] = mine[column].max()
        lines.append(line)
    return pd.DataFrame(lines)
