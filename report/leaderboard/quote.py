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
from rematbench.report.leaderboard.tables import AT, gaps, summary, winners
from rematbench.row import Row, costs_of

_KINDS = {"CNN": "convolutional", "joins": "several towers"}
_MOST = 3  # names in a cell
_OF = ("best", "quick")
_HEAD = """# {title}

What the committed rows say. Costs are **modelled** ({costs}); nothing in the first three tables
was measured. A planner had 20 s (`profile=quick`: 3 s) and one thread. Overheads are over
*checkpoint-all*, ordinary training that recomputes nothing, and budgets are fractions of its peak.

This page is made from the rows by `python -m rematbench.report.leaderboard.quote`, and a test holds
it against them; the page with figures, filters and every strategy's curves is
`rematbench-report {places} --leaderboard`. Rows name the commit that made them: {commits}.

Networks, {count} of them: {networks}.

![Performance profiles](../{picture})"""
_BESIDE = (
    "Named are the strategies with the lowest median overhead, a problem without a plan being "
    "infinitely dear; names within 0.1 points share the place. `monet` may choose other, "
    "faster implementations of ops than those that PyTorch takes, with rounding of its own: a "
    "negative overhead is faster than ordinary training. `checkmate_d` is left out: it is "
    "`anytime`, blind to workspaces."
)
_MEASURED = (
    "Executed on a CPU with eager training's gradients, planned by modelled costs; "
    "equal plans count once. Over {problems} problems the rank correlation of modelled and "
    "measured overheads is {median:.2f} at the median, and below 0.5 on {low}. A roofline knows no "
    "workspaces: the peak error, the largest of simulated against measured, is what the CPU's "
    "convolutions take, and why plans were measured above their budget; with profiled costs they "
    "are in the graph, and in the budget. "
    "Times on a CPU scatter by several per cent: a plan may look faster than eager training."
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
            line += [_first(row.get(each, ""), row.get(f"{each}_overhead", nan)) for each in _OF]
        lines.append(line)
    head = ["network", *(name for at in AT for name in (f"at {at:g}", "in a second"))]
    return _table(head, lines)


def _first(names: str, overhead: float) -> str:
    """A cell: who is best, and how dear."""
    return "–" if not names else f"{_percent(overhead)} {_names(names, 1)}"


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
            _percent(row["monet_overhead"]),
        ]
        for row in winners(field).to_dict("records")
    ]
    head = ["network", "budget", "problems", "cheapest plans", "overhead"]
    head += ["of those made in a second", "overhead", "`monet`'s"]
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
            picture=re.sub(r"(-\*)?\.csv\.gz$", ".png", places),
        ),
        "## Which strategy should I use?",
        front_table(field),
        _BESIDE,
        "## What it says",
        "\n".join(f"- {text}  \n  `{query}`" for text, query in sentences(field)),
        "## Strategies",
        "Shares are of the problems that a strategy was asked; best: no known plan of the captured "
        "ops is cheaper. Medians are of the problems that it solved.",
        _summary(field),
        "## How far from optimal may the best known plans be?",
        "By the highest bound of any strategy on every plan in program order, or on every schedule "
        "of Checkmate's problem (9), in no stage of which an op is computed twice; within F: on "
        "the plans that compute again in the backward pass alone, whose bounds are tighter.",
        _gaps(field),
    ]
    if executed:
        parts += [
            "## Does the modelled ranking survive?",
            _MEASURED.format(**_summed(executed)),
            _survival(executed),
        ]
    return "\n\n".join(parts) + "\n"


def _summed(executed: Sequence[Row]) -> dict[str, object]:
    found = survival(executed)
    low = _shortened(found["problem"])[found["rank_correlation"] < 0.5]
    return {
        "problems": len(found),
        "median": found["rank_correlation"].median(),
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
            *(f"{100 * line[key]:.0f} %" for key in ("solved", "best", "within_1", "within_5")),
            _percent(line["overhead"]),
            "–" if pd.isna(line["seconds"]) else f"{line['seconds']:.2g}",
        ]
        for name, line in summary(field).to_dict("index").items()
    ]
    head = ["strategy", "problems", "solved", "best", "within 1 %", "within 5 %"]
    return _table([*head, "overhead, median", "seconds, median"], lines)


def _gaps(field: Board) -> str:
    lines = [
        [
            _KINDS.get(row["family"], row["family"]),
            row["problems"],
            f"{100 * row['proven']:.0f} %",
            *(_share(row[key]) for key in ("median", "worst", "median_in_F", "worst_in_F")),
        ]
        for row in gaps(field).to_dict("records")
    ]
    head = ["networks", "problems", "proven optimal", "gap, median", "gap, worst"]
    return _table([*head, "within F, median", "within F, worst"], lines)


def _survival(executed: Sequence[Row]) -> str:
    found = survival(executed)
    lines = [
        [
            name,
            row["plans"],
            f"{row['rank_correlation']:.2f}",
            _names(row["modelled_best"]),
            f"{100 * row['modelled_best_overhead']:+.0f} %",
            f"{100 * row['best_overhead']:+.0f} %",
            _share(row["peak_error"]),
            row["over_budget"],
        ]
        for name, row in zip(_shortened(found["problem"]), found.to_dict("records"), strict=True)
    ]
    head = ["problem", "plans", "rank correlation", "cheapest by the model"]
    return _table(
        [
            *head,
            "measured overhead",
            "of the quickest plan",
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
