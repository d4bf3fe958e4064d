"""``rematbench-instances compare A B``: two strategies, or two versions of one, on the library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from rematbench.base.errors import ConfigError
from rematbench.graphs.link import NONE, Link
from rematbench.instances.offers import judged, plan_files, problems_of, read_offer
from rematbench.instances.records import Library, LibraryProblem, graph_name
from rematbench.report.collect import collect
from rematbench.report.leaderboard.board import TIE
from rematbench.report.leaderboard.paired import interval
from rematbench.report.pages.lanes import link_of
from rematbench.rows.row import Row

RECORDS = "records"
FACTORS = (1.0, 1.001, 1.01, 1.02, 1.05, 1.1, 1.2, 1.5)
"""Of the best known value, at which profiles are shown."""
Costs = Mapping[str, float | None]
"""By instance; None: asked for, and no plan."""


@dataclass(frozen=True)
class TwoOnLibrary:
    """What two sides did on the instances that both were asked for.

    Attributes:
        names: of the sides.
        problems: that both were asked for.
        solved: by each side.
        cheaper, equal, dearer: of those that both solved: A's cost below B's, equal within
            :data:`~rematbench.report.leaderboard.board.TIE`, above.
        mean: geometric mean of A's cost over B's; None where they share none.
        low, high: ends of its 95 % bootstrap interval, which draws graphs rather than problems;
            NaN where there are too few.
        profiles: per factor, the share of the problems on which each side's cost is at most that
            factor of the best known value, or of the better side's where that is lower.
    """

    names: tuple[str, str]
    problems: int
    solved: tuple[int, int]
    cheaper: int
    equal: int
    dearer: int
    mean: float | None
    low: float
    high: float
    profiles: Mapping[float, tuple[float, float]]


def costs_of(side: str, library: Library) -> Costs:
    """What a side costs on each instance that it was asked for.

    Args:
        side: ``records``; or rows of the library's problems: a run, a sweep or its table, of one
            strategy, which may be named behind a colon where there are several (``runs/all:dtr``);
            or a folder of plan files, whoever made them: a problem without a file has no plan.

    Raises:
        ConfigError: there are no such rows, or they are of several strategies; a plan is not valid
            or of none of the library's problems.
        PlanError: a plan file is bad.
    """
    if side == RECORDS:
        return {name: record.value for name, record in library.records.items()}
    if Path(side).is_dir() and (plans := plan_files(Path(side))):
        return _costs_of_plans(plans, library)
    return _costs_of_rows(side, library)


def _costs_of_rows(side: str, library: Library) -> Costs:
    known: dict[tuple[str, int | None, Link], LibraryProblem] = {
        (graph_name(each.graph), each.budget_bytes, each.host_link): each
        for each in library.instances.values()
    }
    hashes, found = library.hashes(), dict[str, float | None]()
    for row in _rows(side):
        name = str(row["model"])
        problem = known.get((name, row["budget_bytes"], link_of(row) or NONE))
        if problem is not None and row["graph_hash"] in (None, hashes.get(name, row["graph_hash"])):
            cost = min(_number(found.get(problem.instance)), _number(row["cost"]))
            found[problem.instance] = cost if cost < np.inf else None
    if not found:
        raise ConfigError(
            f"{side}: no row is of the library's graphs, budgets and links; `rematbench-instances "
            "solve` makes some"
        )
    return found


def _costs_of_plans(paths: Sequence[Path], library: Library) -> Costs:
    """Of each problem the cheapest plan among those whose budget is its own, or holds the peak."""
    found = dict.fromkeys(library.instances, np.inf)
    graph = cache(library.graph)
    for path in paths:
        offer = read_offer(path, None, "")
        for problem in problems_of(offer, library):
            if offer.budget in (None, problem.budget_bytes):
                trace = judged(offer, graph(problem.graph), problem.host_link, offer.budget)
                if trace.peak_bytes <= problem.budget_bytes:
                    found[problem.instance] = min(found[problem.instance], trace.cost)
    return {name: cost if cost < np.inf else None for name, cost in found.items()}


def _rows(side: str) -> list[Row]:
    """The rows of one strategy; the cost of those without a plan in program order is None."""
    place, colon, name = side.rpartition(":")
    rows = collect([Path(place if colon else side)]).rows
    rows = [row for row in rows if not colon or row["strategy"] == name]
    strategies = sorted({str(row["strategy"]) for row in rows})
    if len(strategies) != 1:
        there = ", ".join(strategies) or "none of that strategy"
        raise ConfigError(
            f"{side}: rows of one strategy are needed, there are {there}; give A:NAME"
        )
    return [row if _counts(row) else row | {"cost": None} for row in rows]


def _counts(row: Row) -> bool:
    return row["status"] == "ok" and row["extra"].get("in_program_order") is not False


def compare(
    library: Library, chosen: Sequence[LibraryProblem], sides: tuple[str, str]
) -> TwoOnLibrary:
    """Both sides, on the chosen instances that both were asked for.

    Raises:
        ConfigError: a side has no rows, or they share no instance.
    """
    one, two = (costs_of(side, library) for side in sides)
    asked = [each for each in chosen if each.instance in one and each.instance in two]
    if not asked:
        raise ConfigError(f"{sides[0]}, {sides[1]}: they share no instance of the selection")
    table = _side_by_side(library, asked, one, two)
    both = table[np.isfinite(table["a"]) & np.isfinite(table["b"]) & (table["b"] > 0)]
    ratio = np.log(both["a"] / both["b"])
    low, high = interval(ratio) if len(ratio) else (np.nan, np.nan)
    return TwoOnLibrary(
        names=sides,
        problems=len(table),
        solved=(int(np.isfinite(table["a"]).sum()), int(np.isfinite(table["b"]).sum())),
        cheaper=int((ratio < -TIE).sum()),
        equal=int((ratio.abs() <= TIE).sum()),
        dearer=int((ratio > TIE).sum()),
        mean=float(np.exp(ratio.mean())) if len(ratio) else None,
        low=low,
        high=high,
        profiles=_profiles(table),
    )


def _side_by_side(
    library: Library, asked: Sequence[LibraryProblem], one: Costs, two: Costs
) -> pd.DataFrame:
    """A line per problem, by its graph; what has no plan costs infinitely much."""
    lines = [
        (_number(one[name]), _number(two[name]), _number(library.record(name).value))
        for name in (each.instance for each in asked)
    ]
    networks = pd.Index([each.graph for each in asked], name="network")
    return pd.DataFrame(lines, columns=["a", "b", "best"], index=networks)


def _number(cost: float | None) -> float:
    return np.inf if cost is None else float(cost)


def _profiles(table: pd.DataFrame) -> dict[float, tuple[float, float]]:
    """Performance profiles (Dolan and Moré, 2002), over the best that is known."""
    best = table[["a", "b", "best"]].min(axis=1)
    within = {
        factor: [
            float((np.isfinite(table[side]) & (table[side] <= factor * best * (1 + TIE))).mean())
            for side in ("a", "b")
        ]
        for factor in FACTORS
    }
    return {factor: (shares[0], shares[1]) for factor, shares in within.items()}


def shown(found: TwoOnLibrary) -> str:
    """A comparison as text."""
    a, b = found.names
    mean = "they solve none in common"
    if found.mean is not None:
        ends = f"95 % interval {found.low:.4f} to {found.high:.4f}"
        few = "too few graphs for an interval"
        mean = f"{found.mean:.4f} ({few if np.isnan(found.low) else ends})"
    lines = [
        f"A: {a}",
        f"B: {b}",
        f"{found.problems} problems: A solves {found.solved[0]}, B {found.solved[1]}",
        f"of those that both solve: A cheaper {found.cheaper}, equal {found.equal}, dearer "
        f"{found.dearer}",
        f"A's cost over B's, geometric mean: {mean}",
        "share within a factor of the best known value:",
        f"  {'factor':>7} {'A':>7} {'B':>7}",
        *(f"  {f:7.3f} {one:7.1%} {two:7.1%}" for f, (one, two) in found.profiles.items()),
    ]
    return "\n".join(lines)
