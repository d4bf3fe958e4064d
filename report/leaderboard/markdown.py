"""A field's tables in Markdown; each cell says how many problems it is of."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import pandas as pd

from rematbench.report.leaderboard.board import Board
from rematbench.report.leaderboard.held import HELD
from rematbench.report.leaderboard.measured import standings, survival
from rematbench.report.leaderboard.names import WITH_OURS, label
from rematbench.report.leaderboard.paired import paired
from rematbench.report.leaderboard.shares import FEW, CountOf, few
from rematbench.report.leaderboard.tables import AT, summary, winners
from rematbench.rows.row import Row

_KINDS = {"CNN": "convolutional", "joins": "several towers"}
_MOST = 3  # names in a cell
_SHARES = ("solved", "best", "within_5", "within_1", *(f"within_1_at_{at}" for at in HELD))
_HEADS = ("solved", "best", "within 5 %", "within 1 %", *(f"after {at} s" for at in HELD))
_OF = ("best", "quick")


def small_table(field: Board) -> str:
    """README's: a line per family; per budget the cheapest plans, and those made in a second."""
    found = winners(field).set_index(["family", "fraction"])
    lines = []
    for kind in found.index.unique("family"):
        line = [_KINDS.get(kind, kind)]
        for fraction in AT:
            known = (kind, fraction) in found.index
            row = found.loc[(kind, fraction)].to_dict() if known else {}
            of = row.get("networks", 0)
            line += [_first(row.get(e, ""), row.get(f"{e}_overhead", nan), of) for e in _OF]
        lines.append(line)
    head = ["network", *(name for at in AT for name in (f"at {at:g}", "after a second"))]
    return _table(head, lines)


def _first(names: str, overhead: float, networks: int) -> str:
    """A cell: who is best, how dear, and on how many networks, where they are few."""
    if not names:
        return "–"
    one, *more = names.split(", ")
    named = label(one, "`") if one in WITH_OURS else f"`{one}`"  # README says which are ours
    rest = f" and {len(more)} more" if more else ""
    return f"{_percent(overhead)} {named}{rest}{_few(networks)}"


def _few(networks: int) -> str:
    return f" (of {networks})" if networks < FEW else ""


def front_table(field: Board) -> str:
    """Which strategy to use."""
    lines = []
    for row in winners(field).to_dict("records"):
        few = _few(row["networks"])
        line = [_KINDS.get(row["family"], row["family"]), f"{row['fraction']:g}", row["networks"]]
        for which in _OF:
            line += [_names(row[which]) + few, _percent(row[f"{which}_overhead"], few)]
        lines.append([*line, _percent(row["joint_overhead"], few)])
    head = ["kind of network", "budget", "networks", "cheapest plans", "overhead"]
    head += ["after a second", "overhead", "`anytime_joint`'s (ours)"]
    return _table(head, lines)


def summary_table(field: Board, problems: int) -> str:
    """Shares of the problems that a strategy applies to.

    Args:
        problems: that overheads are medians of.
    """
    lines = [
        [
            label(name, "`"),
            f"{line['applicable'].count} of {line['problems']}",
            *(_counted(line[key]) for key in _SHARES),
            _percent(line["overhead"]),
            "–" if pd.isna(line["seconds"]) else f"{line['seconds']:.2g} {_of(line['solved'])}",
        ]
        for name, line in summary(field).to_dict("index").items()
    ]
    head = ["strategy", "applies to", *_HEADS, f"overhead (of {problems})", "seconds"]
    return _table(head, lines)


def of_all_table(field: Board) -> str:
    """Shares of all problems, for strategies that some do not apply to; empty: there are none."""
    lines = [
        [label(name, "`"), *(_counted(line[f"{key}_all"]) for key in _SHARES)]
        for name, line in summary(field).to_dict("index").items()
        if line["applicable"].count < line["problems"]
    ]
    return _table(["strategy", *_HEADS], lines) if lines else ""


def paired_table(field: Board) -> str:
    """Strategies beside the first one."""
    lines = [
        [
            label(row["strategy"], "`"),
            f"{row['problems']} of {row['networks']}",
            row["cheaper"],
            row["equal"],
            row["dearer"],
            f"{row['cost']:.3f}{_few(row['networks'])}",
            "–" if pd.isna(row["low"]) else f"{row['low']:.3f} to {row['high']:.3f}",
        ]
        for row in paired(field).to_dict("records")
    ]
    head = ["strategy", "problems of networks", "cheaper", "equal", "dearer", "cost", "95 %"]
    return _table(head, lines)


def gaps_table(found: pd.DataFrame, by: str, title: str) -> str:
    """How far from optimal the best known plans may be, by something."""
    lines = [
        [
            _KINDS.get(row[by], row[by]),
            _counted(row["proven"]),
            *(_gap(row[key], row["bounded"]) for key in ("median", "worst")),
            *(_gap(row[key], row["bounded_in_F"]) for key in ("median_in_F", "worst_in_F")),
        ]
        for row in found.to_dict("records")
    ]
    head = [title, "proven optimal", "gap, median", "gap, worst"]
    return _table([*head, "within F, median", "within F, worst"], lines)


def survival_table(executed: Sequence[Row]) -> str:
    """Modelled rankings beside measured ones."""
    found = survival(executed)
    lines = [
        [
            name,
            row["plans"],
            f"{row['rank_correlation']:.2f}",
            "–" if pd.isna(row["near_correlation"]) else f"{row['near_correlation']:.2f}",
            _names(row["modelled_best"]),
            f"{100 * row['modelled_best_overhead']:+.0f} %",
            f"{100 * row['best_overhead']:+.0f} %",
            "–" if pd.isna(row["half_width"]) else f"± {100 * row['half_width']:.1f}",
            _share(row["peak_error"]),
            row["over_budget"],
        ]
        for name, row in zip(shortened(found["problem"]), found.to_dict("records"), strict=True)
    ]
    head = ["problem", "plans", "rank correlation", "within 5 points", "cheapest by the model"]
    head += ["measured overhead", "of the quickest plan", "points, 95 %", "peak error"]
    return _table([*head, "measured above the budget"], lines)


def standings_table(executed: Sequence[Row]) -> str:
    """Strategies by what was measured on one device."""
    lines = [
        [
            label(row["strategy"], "`"),
            row["plans"],
            row["close"],
            f"{100 * row['behind']:.1f}",
            row["over_budget"],
        ]
        for row in standings(executed).to_dict("records")
    ]
    head = ["strategy", "plans", "within a point of the quickest", "points behind it, median"]
    return _table([*head, "measured above the budget"], lines)


def shortened(problems: pd.Series) -> pd.Series:
    """Names without sizes and options, where that tells them apart."""
    short = problems.str.replace(r", .* at", " at", regex=True)
    return short.where(~short.duplicated(keep=False), problems)


def _table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, rule, *lines))


def _names(text: str) -> str:
    names = text.split(", ") if text else []
    shown = ", ".join(label(name, "`") for name in names[:_MOST])
    return shown + (f" and {len(names) - _MOST} more" if len(names) > _MOST else "") or "none"


def _percent(overhead: float, after: str = "") -> str:
    return "–" if pd.isna(overhead) else f"{100 * overhead:+.1f} %{after}"


def _counted(value: CountOf | None) -> str:
    return "–" if value is None else str(value)


def _of(solved: CountOf) -> str:
    return f"(of {solved.count})"


def _gap(value: float, of: CountOf) -> str:
    return "–" if pd.isna(value) else f"{_share(value)} (of {of.count}{few(of.networks)})"


def _share(value: float) -> str:
    return "–" if pd.isna(value) else f"{100 * value:.1f} %"
