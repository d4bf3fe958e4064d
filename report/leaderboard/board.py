"""Rows as a field: each problem's strategies beside the best plan that is known for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pandas as pd

from rematbench.base.errors import ConfigError
from rematbench.report.leaderboard.families import family
from rematbench.report.leaderboard.held import HELD, PREPARED, held, history, limit, took
from rematbench.report.leaderboard.names import OLD, WITH_OURS
from rematbench.report.leaderboard.reading import NothingRead, Reading, read
from rematbench.report.style import ours
from rematbench.rows.row import Row, costs_of, known, memories_of
from rematbench.strategies.registry import cards

TIE = 1e-4
"""Costs that differ by less, relatively, are equal: planners that prove stop at such a gap, so that
which of two is lower by less says nothing of either."""
ROUNDING = 1e-9
"""Costs are sums of up to a million numbers: no plan may be cheaper than a bound by more."""
SAME = 1e-6
"""Sums of costs in two orders differ by less."""
PROVEN = 1e-4
"""A best plan within this of a bound is called optimal: the solvers' own tolerance."""
CLOSE = 0.01
"""A plan that costs at most so much more than the best known one is close to it."""
OTHER_OPS = frozenset(card.name for card in cards().values() if card.implementations)
"""They may run other implementations than the captured ops; Gist's are lossy."""
_BOUNDS = {"any": ("any",), "9": ("any", "9"), "F": ("any", "9", "F")}
_GIVEN = ("length", "lengths", "optimizer", "master_weights")
_COLUMNS = (
    *("problem", "network", "brief", "model", "family", "fraction", "strategy", "status"),
    *("base", "cost", "overhead", "seconds", "limit", "moved", "below"),
    *(*(f"held_{at}" for at in HELD), "history", *_BOUNDS),
)


@dataclass(frozen=True)
class Board:
    """A line per problem and strategy.

    Attributes:
        entries: ``problem`` (``network`` and budget), ``network`` (model, batch, size, costs),
            ``model`` (with what tells it apart where it stands there more than once), ``family``,
            ``fraction`` (of checkpoint-all's peak), ``strategy``, ``status``; ``overhead`` (ratio;
            infinite where there is no plan), ``seconds`` of planning (:func:`.held.took`; of
            :data:`PREPARED` the network's slowest, which prepared the others), ``limit`` (seconds;
            :func:`.held.limit`), ``ratio`` (cost / best known cost of the problem; infinite where
            there is no plan), ``ratio_1``, ``ratio_5``, ``ratio_20`` (of the plan that it had
            after so many seconds; missing: :func:`.held.held`), ``best`` (is it one of the best?),
            ``soon`` (seconds until its plan was within :data:`CLOSE` of the best known cost;
            infinite: never), ``applies`` (could the strategy be asked at all?), ``gap`` (of the
            problem: how far the best known plan may be from optimal; missing: nothing is proven),
            ``gap_in_F`` (the same, to the bound of plans that recompute forward ops alone, after
            the forward pass), ``optimal`` (is the problem's best plan proven optimal?), ``below``
            (does no plan within its budget compute each backward op once? Missing: not known),
            ``other`` (does it run other ops than the captured ones?) and ``ours`` (does our own
            search make its plans?).
        notes: rows that were left out or that lack, by name.
        reading: the rows, and what they lack.
    """

    entries: pd.DataFrame
    notes: tuple[str, ...]
    reading: Reading

    @cached_property
    def problems(self) -> pd.DataFrame:
        """A line per problem: network, model, family, fraction, gap, gap_in_F, optimal, below."""
        columns = ["problem", "network", "model", "family", "fraction"]
        columns += ["gap", "gap_in_F", "optimal", "below"]
        return self.entries[columns].drop_duplicates("problem").reset_index(drop=True)

    @cached_property
    def strategies(self) -> list[str]:
        """By most best plans, then by most plans, then by the alphabet."""
        found = self.entries.assign(has=np.isfinite(self.entries["cost"]))
        counts = found.groupby("strategy")[["best", "has"]].sum()  # by the alphabet
        order = counts.sort_values(["best", "has"], ascending=False, kind="stable")
        return list(order.index)


def board(rows: Iterable[Row], *, lacking: bool = False) -> Board:
    """Set rows side by side, problem by problem.

    Budgets that ordinary training meets are no problem, and left out. A network at one batch, size,
    data type, cost model and accounting is one problem per budget. Of several rows of a strategy on
    a problem the latest counts, and the others are named. The best plan of a problem is the
    cheapest one of those that run the captured ops: MONeT and Checkmate-O, which may choose faster
    ones, and Gist, whose encodings are lossy, are compared with it, not it with them. Nor does any
    other plan set it that costs less than what was proven of every plan in program order (``any``)
    although it keeps to that: it runs something else, or the bound is wrong, and is named. A bound
    counts where the best plan does not cost less: there are plans that are no schedules of
    Checkmate's problem (9), and XLA's pass may put an op off, which is in no program order.

    Args:
        lacking: read rows, too, that do not say what they were made with.

    Raises:
        ConfigError: no row has a budget that is a fraction below 1.
        NothingRead: none of those says what it was made with.
    """
    below = [row for row in rows if (row["budget_fraction"] or 1.0) < 1.0]
    reading = read((row for row in below if row["costmodel"]), lacking=lacking)
    asked = reading.rows
    if not asked and reading.lacking:
        raise NothingRead(reading)
    if not asked:
        raise ConfigError("leaderboard: no row has a budget below 1.0; sweep budget=0.7,0.5,...")
    notes = [
        f"{row['strategy']} on {row['model']} at {known(row['budget_fraction']):g}: never ran "
        f"({row['reason']})"
        for row in below
        if not row["costmodel"]
    ]
    entries = pd.DataFrame([_entry(row) for row in _latest(asked, notes)], columns=list(_COLUMNS))
    notes += [*_lacking(entries), *_unequal(entries), *_origins(asked), *_old(asked)]
    notes += [reading.sentence] if reading.lacking else []
    entries["other"] = entries["strategy"].isin(OTHER_OPS)
    entries["ours"] = entries["strategy"].isin([*ours(), *WITH_OURS])
    entries["model"] = _labels(entries)
    slowest = entries.groupby(["network", "strategy"])["seconds"].transform("max")
    prepared = entries["strategy"].isin(PREPARED)
    entries["seconds"] = slowest.where(prepared, entries["seconds"])
    for at in HELD:
        late = prepared & (entries["seconds"] > at) & entries[f"held_{at}"].notna()
        entries[f"held_{at}"] = entries[f"held_{at}"].mask(late, np.inf)
    undercut = _undercutting(entries) & ~entries["moved"].astype(bool)
    notes += [
        f"{each.strategy} on {each.problem}: cheaper than is proven possible; it runs other ops "
        "than were captured, or a bound is wrong"
        for each in entries[undercut].itertuples()
    ]
    entries["other"] |= undercut
    return Board(_compared(entries), tuple(notes), reading)


def problem(row: Row) -> str:
    """What names a problem on the page: a network at a budget."""
    return f"{_network(row)} at {row['budget_fraction']:g}"


def _network(row: Row) -> str:
    extra: Mapping[str, Any] = row["extra"]
    size = f", {row['resolution']} px" if row["resolution"] else ""
    given = {**extra.get("options", {}), **{k: extra[k] for k in _GIVEN if k in extra}}
    size += "".join(f", {key}={value}" for key, value in given.items())
    kind = extra.get("dtype")
    kind = f", {kind}" if kind and kind != "float32" else ""
    where = "" if extra.get("accounting", "full") == "full" else f", {extra['accounting']}"
    where += f", {memories}" if (memories := memories_of(row)) else ""
    return f"{row['model']}, batch {row['batch_size']}{size}{kind} ({costs_of(row)}{where})"


def _latest(rows: Sequence[Row], notes: list[str]) -> list[Row]:
    kept: dict[tuple[str, str], Row] = {}
    doubled: Counter[tuple[str, str]] = Counter()
    for row in rows:
        key = problem(row), str(row["strategy"])
        if key in kept:
            doubled[key] += 1
            if str(row["utc"]) < str(kept[key]["utc"]):
                continue
        kept[key] = row
    notes += [
        f"{strategy} on {name}: {count + 1} rows; the latest counts"
        for (name, strategy), count in doubled.items()
    ]
    notes += [
        f"{row['strategy']} on {name}: failed ({row['reason']})"
        for (name, _), row in kept.items()
        if row["status"] == "failed"
    ]
    return list(kept.values())


def _origins(rows: Sequence[Row]) -> list[str]:
    """Of which commits and machines the rows are, where they are of several."""
    counts = {
        "commits": Counter(str(row["commit"])[:7] for row in rows),
        "machines": Counter(
            str(row["extra"].get("machine", "unnamed")).replace(", ", " with ") for row in rows
        ),
    }
    return [
        f"rows are of {len(found)} {what}: "
        + ", ".join(f"{name} ({count})" for name, count in sorted(found.items()))
        for what, found in counts.items()
        if len(found) > 1
    ]


def _old(rows: Sequence[Row]) -> list[str]:
    """That rows of two published methods are of the time when our search was their default."""
    found = Counter(str(row["strategy"]) for row in rows if row["strategy"] in OLD)
    return [
        f"rows of `{name.partition('+')[0]}`, {count} of them, were made when our search was its "
        f"default: they are not the published method, and stand as `{name}`"
        for name, count in sorted(found.items())
    ]


def _lacking(entries: pd.DataFrame) -> list[str]:
    """Strategies that were not asked on a problem that others were asked on."""
    everyone = set(entries["strategy"])
    lacking: dict[str, list[str]] = {}
    for name, mine in entries.groupby("problem", sort=False)["strategy"]:
        for strategy in sorted(everyone - set(mine)):
            lacking.setdefault(strategy, []).append(str(name))
    return [
        f"{strategy}: no row on {len(names)} problems, the first: {names[0]}; its shares are of "
        "the others"
        for strategy, names in lacking.items()
    ]


def _labels(entries: pd.DataFrame) -> pd.Series:
    """The shortest name of each line's network that no other network has."""
    found = entries["network"]
    for shorter in ("brief", "model"):
        alone = found.groupby(entries[shorter]).transform("nunique") == 1
        found = entries[shorter].where(alone, found)
    return found


def _unequal(entries: pd.DataFrame) -> list[str]:
    """Problems whose rows disagree on what checkpoint-all costs."""
    ends = entries["base"].astype(float).groupby(entries["problem"], sort=False).agg(["min", "max"])
    found = ends.index[ends["max"] > ends["min"] * (1 + SAME)]
    return [
        f"{name}: by its rows checkpoint-all costs {low:.6g} to {high:.6g}; they are of different "
        "graphs or machines, and their costs do not compare"
        for name, low, high in ends.loc[found].itertuples()
    ]


def _entry(row: Row) -> tuple[object, ...]:
    ok = row["status"] == "ok"
    floor = row["extra"].get("once_floor_bytes")
    return (
        problem(row),
        _network(row),
        f"{row['model']}, batch {row['batch_size']} ({costs_of(row)})",
        row["model"],
        family(row["model"]),
        row["budget_fraction"],
        row["strategy"],
        row["status"],
        row["checkpoint_all_cost"],
        known(row["cost"]) if ok else np.inf,
        known(row["overhead"]) if ok else np.inf,
        took(row),
        limit(row),
        not row["extra"].get("in_program_order", False),
        np.nan if floor is None else float(known(row["budget_bytes"]) < floor),
        *held(row),
        history(row),
        *_proven(row),
    )


def _proven(row: Row) -> Iterator[float]:
    """The highest bound of each space of :data:`_BOUNDS`; missing: nothing was proven."""
    found = [(row["bound_of"], row["bound"])]
    if row["strategy"] not in OTHER_OPS:  # whose own may be of other implementations
        found.append(("any", row["extra"].get("bounds", {}).get("any")))
    for spaces in _BOUNDS.values():
        yield max((known(bound) for of, bound in found if of in spaces and bound), default=np.nan)


def _undercutting(entries: pd.DataFrame) -> pd.Series:
    """Plans of captured ops, as they say, that cost less than the problem's proven bound."""
    return (entries["cost"] < _highest(entries, "any") * (1 - ROUNDING)) & ~entries["other"]


def _compared(entries: pd.DataFrame) -> pd.DataFrame:
    plain = entries["cost"].where(~entries["other"], np.inf)
    least = plain.groupby(entries["problem"]).transform("min")
    highest = partial(_highest, entries)
    nine, every = (
        bound.where(least >= bound * (1 - PROVEN)) for bound in map(highest, ("9", "any"))
    )
    bound = nine.fillna(every)
    gap, gap_in_f = (
        (1 - each / least).clip(lower=0).where(np.isfinite(least))
        for each in (bound, _highest(entries, "F"))
    )
    ratio = (entries["cost"] / least).where(np.isfinite(entries["cost"]), np.inf)
    by_then = {at: (entries[f"held_{at}"] / least).fillna(np.inf) for at in HELD}
    unknown = {at: entries[f"held_{at}"].isna() for at in HELD}
    dropped = [*_BOUNDS, "base", "brief", "moved", "history", *(f"held_{at}" for at in HELD)]
    return entries.drop(columns=dropped).assign(
        ratio=ratio,
        **{f"ratio_{at}": by_then[at].mask(unknown[at]) for at in HELD},
        soon=_soon(entries, least),
        overhead_1=entries["held_1"] / entries["base"].astype(float) - 1,
        applies=entries["status"] != "not_applicable",
        best=(ratio <= 1 + TIE) & ~entries["other"],
        gap=gap,
        gap_in_F=gap_in_f,
        optimal=gap <= PROVEN,
        below=_highest(entries, "below"),
    )


def _soon(entries: pd.DataFrame, least: pd.Series) -> list[float]:
    """Seconds until a planner had a plan within :data:`CLOSE` of the best known cost."""
    found = []
    for line, goal in zip(entries.itertuples(), (1 + CLOSE) * least, strict=True):
        if np.isinf(goal):  # nobody has a plan
            found.append(np.inf)
            continue
        last = float(line.seconds) if line.cost <= goal else np.inf
        text = (seconds for seconds, cost in line.history if cost <= goal)
        found.append(min([last, *text]))
    return found


def _highest(entries: pd.DataFrame, column: str) -> pd.Series:
    """Per line, the highest number of its problem."""
    return entries[column].astype(float).groupby(entries["problem"]).transform("max")
