"""What README and docs quote from committed rows; a test makes it again.

``python -m rematbench.report.leaderboard.quote 'FOLDER/full-*.csv.gz' MEASURED.csv.gz`` prints
docs/leaderboard.md, and with ``--table`` README's table; ``FOLDER/quick.csv.gz "A title"`` makes
another page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from glob import glob
from math import nan
from pathlib import Path

import pandas as pd

from rematbench.report.collect import collect
from rematbench.report.leaderboard.board import Board, board
from rematbench.report.leaderboard.findings import sentences
from rematbench.report.leaderboard.measured import survival
from rematbench.report.leaderboard.paired import paired, reference
from rematbench.report.leaderboard.tables import (
    AT,
    common,
    gaps,
    gaps_by_budget,
    summary,
    winners,
)
from rematbench.row import Row, costs_of

_KINDS = {"CNN": "convolutional", "joins": "several towers"}
_MOST = 3  # names in a cell
FEW = 4
"""Networks below which a cell says how many it rests on."""
_SHARES = ("solved", "best", "within_5", "within_1", "within_1_at_1", "within_1_at_10")
_OF = ("best", "quick")
_HEAD = """# {title}

What the committed rows say. Costs are **modelled** ({costs}); nothing in the first three tables
was measured. A planner was given 20 s (`profile=quick`: 3 s); its row says what it took. Overheads
are over *checkpoint-all*, ordinary training that recomputes nothing, and budgets are fractions of
its peak. Costs within 0.01 % of each other are equal: planners that prove stop at such a gap, and
which of two is lower by less says nothing.{warning}

This page is made from the rows by `python -m rematbench.report.leaderboard.quote`, and a test holds
it against them; the page with figures, filters and every strategy's curves is
`rematbench-report {places} --leaderboard`. Rows name the commit that made them: {commits}.

Networks, {count} of them: {networks}.

What counts how is in [the rules](rules.md).

![Share of problems on which a plan costs at most so much more than the best](../{picture}.png)

![Share of problems with a plan within 1 % of the best, by when](../{picture}-time.png)"""
_BESIDE = (
    "Each cell: the strategy with the lowest median overhead; no plan counts as infinite, and "
    "names within 0.1 points share the place. After a second: of the plans that each planner had "
    "by then. A line on fewer than four networks says little of other networks. "
    "`anytime_joint` may choose other, faster implementations of ops than those that PyTorch "
    "takes, with rounding of its own: a negative overhead is faster than ordinary training. "
    "`checkmate_d` is left out: it is `anytime`, blind to workspaces."
)
_MEASURED = (
    "Executed on a CPU with eager training's gradients, planned by modelled costs; equal plans "
    "count once. Over {problems} problems the rank correlation of modelled and measured overheads "
    "is {median:.2f} at the median, and below 0.5 on {low}; among the plans within 5 points of "
    "the cheapest, which a choice is made among, it is {near:.2f}. A roofline knows no "
    "workspaces: the peak error, the largest of simulated against measured, is what the CPU's "
    "convolutions take, and why plans were measured above their budget; with profiled costs they "
    "are in the graph, and in the budget. Steps are timed in turns with eager steps; ± is half of "
    "the 95 % interval of the measured overhead, in points, at the median of the plans. Whatever "
    "is nearer than that was not told apart."
)


def small_table(field: Board) -> str:
    """README's: a line per family; per budget the cheapest plans, and those made in a second."""
    found = winners(field).set_index(["family", "fraction"])
    lines = []
    for kind in found.index.unique("family"):
        line = [_KINDS.get(kind, kind)]
        for fraction in AT:
            known = (kind, fraction) in found.index
            row = found.loc[(kind, fraction)].to_dict() if known else {}
            of = row.get("problems", 0)
            line += [_first(row.get(e, ""), row.get(f"{e}_overhead", nan), of) for e in _OF]
        lines.append(line)
    head = ["network", *(name for at in AT for name in (f"at {at:g}", "after a second"))]
    return _table(head, lines)


def _first(names: str, overhead: float, networks: int) -> str:
    """A cell: who is best, how dear, and on how many networks, where they are few."""
    few = f" (of {networks})" if networks < FEW else ""
    return "–" if not names else f"{_percent(overhead)} {_names(names, 1)}{few}"


def front_table(field: Board) -> str:
    """Which strategy to use, in Markdown."""
    lines = [
        [
            _KINDS.get(row["family"], row["family"]),
            f"{row['fraction']:g}",
            row["problems"],
            _names(row["best"]),
            _percent(row["best_overhead"]),
            _names(row["quick"]),
            _percent(row["quick_overhead"]),
            _percent(row["joint_overhead"]),
        ]
        for row in winners(field).to_dict("records")
    ]
    head = ["kind of network", "budget", "networks", "cheapest plans", "overhead"]
    head += ["after a second", "overhead", "`anytime_joint`'s"]
    return _table(head, lines)


def document(
    rows: Sequence[Row], executed: Sequence[Row], places: str, title: str = "The leaderboard"
) -> str:
    """``docs/leaderboard.md``, or a page like it of other rows.

    Args:
        executed: rows of plans that ran; may be empty.
        places: where the modelled rows are: ``FOLDER/NAME.csv.gz``, whose profiles are drawn in
            ``FOLDER/NAME.png``, or parts of them, ``FOLDER/NAME-*.csv.gz``.
    """
    field = board(rows)
    models = list(dict.fromkeys(field.problems["model"]))
    commits = sorted({str(row["commit"])[:7] for row in rows})
    parts = [
        _HEAD.format(
            title=title,
            places=places,
            count=len(models),
            commits=", ".join(commits),
            costs=" or ".join(sorted({costs_of(row) or "unknown" for row in rows})),
            networks=", ".join(f"`{name}`" for name in models),
            warning=_warning(field),
            picture=re.sub(r"(-\*)?\.csv\.gz$", "", places),
        ),
        "## Which strategy should I use?",
        front_table(field),
        _BESIDE,
        "## What it says",
        "\n".join(f"- {text}  \n  `{query}`" for text, query in sentences(field)),
        "## Strategies",
        "Solved: of the problems that it applies to; other shares are of all. Best: no known plan "
        "of the captured ops is cheaper. Within 1 % after 1 and 10 seconds: by the plan that it "
        f"had by then. Overheads are medians over the same {len(common(field))} problems, for "
        "each of which all strategies with a number here have a plan; seconds of planning are "
        "medians of what a strategy solved.",
        _summary(field),
        f"## Beside `{reference(field)}`, on what both solve",
        "How often a strategy's plan is cheaper, equal or dearer; its cost over the other's "
        "(geometric mean), and the 95 % interval of that mean, by drawing networks with "
        "replacement.",
        _paired(field),
        "## How far from optimal may the best known plans be?",
        "By the highest bound of any strategy on every plan in program order, or on every schedule "
        "of Checkmate's problem (9), in no stage of which an op is computed twice; within F: on "
        "the plans that compute again in the backward pass alone, whose bounds are tighter.",
        _gaps(gaps(field), "family", "networks"),
        _gaps(gaps_by_budget(field), "budget", "budget"),
    ]
    if executed:
        parts += [
            "## Does the modelled ranking survive?",
            _MEASURED.format(**_summed(executed)),
            _survival(executed),
        ]
    return "\n\n".join(parts) + "\n"


def _warning(field: Board) -> str:
    """That rows do not compare as they should."""
    doubts = [note for note in field.notes if note.startswith("rows ")]
    return f"\n\n**Read with care:** {'; '.join(doubts)}." if doubts else ""


def _summed(executed: Sequence[Row]) -> dict[str, object]:
    found = survival(executed)
    low = _shortened(found["problem"])[found["rank_correlation"] < 0.5]
    return {
        "problems": len(found),
        "median": found["rank_correlation"].median(),
        "near": found["near_correlation"].median(),
        "low": ", ".join(low) or "none",
    }


def _shortened(problems: pd.Series) -> pd.Series:
    """Names without sizes and options, where that tells them apart."""
    short = problems.str.replace(r", .* at", " at", regex=True)
    return short.where(~short.duplicated(keep=False), problems)


def _summary(field: Board) -> str:
    lines = [
        [
            f"`{name}`",
            line["problems"],
            line["applicable"],
            *(_whole(line[key]) for key in _SHARES),
            _percent(line["overhead"]),
            "–" if pd.isna(line["seconds"]) else f"{line['seconds']:.2g}",
        ]
        for name, line in summary(field).to_dict("index").items()
    ]
    head = ["strategy", "problems", "applies to", "solved", "best", "within 5 %", "within 1 %"]
    head += ["after 1 s", "after 10 s", "overhead", "seconds"]
    return _table(head, lines)


def _paired(field: Board) -> str:
    lines = [
        [
            f"`{row['strategy']}`",
            f"{row['problems']} of {row['networks']}",
            row["cheaper"],
            row["equal"],
            row["dearer"],
            f"{row['cost']:.3f}",
            "–" if pd.isna(row["low"]) else f"{row['low']:.3f} to {row['high']:.3f}",
        ]
        for row in paired(field).to_dict("records")
    ]
    head = ["strategy", "problems of networks", "cheaper", "equal", "dearer", "cost", "95 %"]
    return _table(head, lines)


def _gaps(found: pd.DataFrame, by: str, title: str) -> str:
    lines = [
        [
            _KINDS.get(row[by], row[by]),
            row["problems"],
            f"{100 * row['proven']:.0f} %",
            *(_share(row[key]) for key in ("median", "worst", "median_in_F", "worst_in_F")),
        ]
        for row in found.to_dict("records")
    ]
    head = [title, "problems", "proven optimal", "gap, median", "gap, worst"]
    return _table([*head, "within F, median", "within F, worst"], lines)


def _survival(executed: Sequence[Row]) -> str:
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
        for name, row in zip(_shortened(found["problem"]), found.to_dict("records"), strict=True)
    ]
    head = ["problem", "plans", "rank correlation", "within 5 points", "cheapest by the model"]
    return _table(
        [
            *head,
            "measured overhead",
            "of the quickest plan",
            "points, 95 %",
            "peak error",
            "measured above the budget",
        ],
        lines,
    )


def _table(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    rule = ["---"] * len(head)
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in (head, rule, *lines))


def _names(text: str, most: int = _MOST) -> str:
    names = text.split(", ") if text else []
    shown = ", ".join(f"`{name}`" for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "") or "none"


def _percent(overhead: float) -> str:
    return "–" if pd.isna(overhead) else f"{100 * overhead:+.1f} %"


def _whole(value: float) -> str:
    return "–" if pd.isna(value) else f"{100 * value:.0f} %"


def _share(value: float) -> str:
    return "–" if pd.isna(value) else f"{100 * value:.1f} %"


def main(arguments: Sequence[str]) -> None:
    """Print the page of a leaderboard, or of all parts of one.

    Args:
        arguments: the rows' place, in which ``*`` stands for what tells parts apart; then that of
            executed rows (``.csv.gz``), a title, or both; ``--table`` is README's table.
    """
    place, *others = (each for each in arguments if each != "--table")
    ran = [Path(each) for each in others if each.endswith(".csv.gz")]
    title = [each for each in others if not each.endswith(".csv.gz")]
    rows = collect(map(Path, sorted(glob(place)))).rows
    if "--table" in arguments:
        print(small_table(board(rows)))
        return
    print(document(rows, collect(ran).rows if ran else (), place, *title), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
