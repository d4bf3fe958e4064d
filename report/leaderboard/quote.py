"""What README and docs quote from committed rows; a test makes it again.

``python -m rematbench.report.leaderboard.quote 'FOLDER/full-*.csv.gz' --executed MEASURED.csv.gz``
prints docs/leaderboard.md; of several devices that ran plans, each has tables of its own. Options
write the page's pictures beside the rows, README's table into README.md, and the whole field as an
HTML page. Rows that do not say what they were made with are read only by ``--lacking``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from glob import glob
from pathlib import Path

from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.base.origin import one_line
from rematbench.cli.arguments import Arguments
from rematbench.graphs.files import write_bytes
from rematbench.report.collect import collect
from rematbench.report.leaderboard.board import Board, board
from rematbench.report.leaderboard.findings import sentences
from rematbench.report.leaderboard.markdown import (
    front_table,
    gaps_table,
    of_all_table,
    paired_table,
    shortened,
    small_table,
    standings_table,
    summary_table,
    survival_table,
)
from rematbench.report.leaderboard.measured import by_device, survival
from rematbench.report.leaderboard.page import write_leaderboard_pages
from rematbench.report.leaderboard.paired import reference
from rematbench.report.leaderboard.pictures import profile_picture, time_picture
from rematbench.report.leaderboard.reading import Reading, read
from rematbench.report.leaderboard.tables import common, gaps, gaps_by_budget
from rematbench.rows.row import Row, costs_of
from rematbench.strategies.registry import cards

_HEAD = """# {title}

Who finds the cheapest plans, by kind of network and budget, at **modelled** costs ({costs}).{care}

## Which strategy should I use?

{answer}

{beside}

## The rows

{limits} Overheads are over *checkpoint-all*, ordinary training that recomputes nothing, and budgets
are fractions of its peak. Costs within 0.01 % of each other are equal: planners that prove stop at
such a gap, and which of two is lower by less says nothing. {measured}{warning}

This page is made from the rows by `python -m rematbench.report.leaderboard.quote`, and a test holds
it against them{page}`{command}`.{commits}

Networks, {count} of them: {networks}.

What counts how is in [the rules](rules.md).

![Share of problems on which a plan costs at most so much more than the best](../{picture}.png)

{steps}

![Share of problems with a plan within 1 % of the best, by when](../{picture}-time.png)"""
_STEPS = """A curve over time rises in steps, one where a planner first had a plan that good on a
problem. A planner that tells nothing on the way has its step when it ends; steps of many planners
at the same moment are time limits."""
_MADE = "; the page with figures, filters and every strategy's curves is\n"
_WHOLE = """. [The whole leaderboard](field/leaderboard.html), with filters, every strategy's
curves and tables as CSV, is a part of the site (`make docs`); by itself it is made by
"""
_BESIDE = (
    "Each cell: the strategy with the lowest median overhead over the networks of its line; where "
    "it has no plan, its overhead counts as infinite, and names within 0.1 points share the "
    "place. After a second: of the plans that each planner had by then. A cell on fewer than four "
    "networks says on how many, and little of other networks. *Ours*: our own search, which no "
    "paper published; *our search*: a published method whose plans our search makes. "
    "`anytime_joint` may choose other, faster implementations of ops than those that PyTorch "
    "takes, with rounding of its own: a negative overhead is faster than ordinary training. "
    "`checkmate_d` (our search) is left out: it is `anytime`, blind to workspaces."
)
_STRATEGIES = (
    "Shares are of the problems that a strategy applies to, with their counts; a share on fewer "
    "than four networks says on how many. Solved: it has a plan within the budget. Best: no known "
    "plan of the captured ops is cheaper. Within: its plan costs at most so much more than the "
    "best known one. After 1, 5 and 20 s: within 1 %, by the plan that it had by then, of the "
    "problems on which it was given that long or had finished; –: it was given less, and had "
    "not finished. Rows that do not say what they were given count after 1 s only. Who runs other "
    "ops than the captured ones is cheaper by those, and has no such share. Overheads are medians "
    "over the same {count} problems, for each of which all strategies with a number here have a "
    "plan; seconds of planning, of the processor where the row has them, are medians of what a "
    "strategy solved."
)
_GAPS = (
    "By the highest bound of any strategy on every plan in program order, or on every schedule "
    "of Checkmate's problem (9), where no stage computes an op twice; within F: on "
    "the plans that recompute forward ops alone, after the forward pass, whose bounds are "
    "tighter. Medians and worst gaps are of the problems that have such a bound."
)
_MEASURED = (
    "Executed with eager training's gradients, planned by {costs} costs; equal plans "
    "count once. Over {problems} problems the rank correlation of modelled and measured overheads "
    "is {median:.2f} at the median, and below 0.5 on {low}; among the plans within 5 points of "
    "the cheapest, which a choice is made among, it is {near:.2f}. {workspaces} "
    "Steps are timed in turns with eager steps; ± is half of "
    "the 95 % interval of the measured overhead, in points, at the median of the plans. Whatever "
    "is nearer than that was not told apart.{care}"
)
_WORKSPACES = {
    False: "A roofline knows no "
    "workspaces: the peak error, the largest of simulated against measured, is what "
    "convolutions take, and why plans were measured above their budget; with profiled costs they "
    "are in the graph, and in the budget.",
    True: "Each op's time and workspace are as this device took them, and budgets are fractions of "
    "the peak that it measured of ordinary training; the peak error is the largest of simulated "
    "against measured.",
}
"""By whether costs were profiled."""
_STANDINGS = "By measured time, on the problems where at least two strategies have plans that ran:"
_README = re.compile(r"^\| network \| at .*(?:\n\|.*)*", re.M)


def document(
    rows: Sequence[Row],
    executed: Sequence[Row],
    places: str,
    title: str = "The leaderboard",
    *,
    lacking: bool = False,
) -> str:
    """``docs/leaderboard.md``, or a page like it of other rows.

    Args:
        executed: rows of plans that ran; may be empty.
        places: where the modelled rows are: ``FOLDER/NAME.csv.gz``, whose profiles are drawn in
            ``FOLDER/NAME.png``, or parts of them, ``FOLDER/NAME-*.csv.gz``.
        lacking: read rows, too, that do not say what they were made with.
    """
    field = board(rows, lacking=lacking)
    given = by_device(executed)
    devices = {
        name: found for name, its in given.items() if (found := read(its, lacking=lacking)).rows
    }
    parts = [
        _head(field, places, title, list(devices)),
        "## What it says",
        "\n".join(f"- {text}  \n  `{query}`" for text, query in sentences(field)),
        "## Strategies",
        _STRATEGIES.format(count=len(common(field))),
        summary_table(field, len(common(field))),
    ]
    if table := of_all_table(field):
        parts += [
            "Of all problems, for those strategies that do not apply to all of them:",
            table,
        ]
    parts += [
        f"## Beside `{reference(field)}`, on what both solve",
        "How often a strategy's plan is cheaper, equal or dearer; its cost over the other's "
        "(geometric mean), and the 95 % interval of that mean, by drawing networks with "
        "replacement.",
        paired_table(field),
        "## How far from optimal may the best known plans be?",
        _GAPS,
        gaps_table(gaps(field), "family", "networks"),
        gaps_table(gaps_by_budget(field), "budget", "budget"),
    ]
    if devices:
        parts.append("## Does the modelled ranking survive?")
    for device, ran in devices.items():
        parts += _measured(device, ran)
    return "\n\n".join([*parts, "## Whom to cite", _sources(field, devices)]) + "\n"


def _measured(device: str, ran: Reading) -> list[str]:
    """What one device measured."""
    ranked = [_MEASURED.format(**_summed(ran)), survival_table(ran.rows)]
    return [
        f"### On {device}",
        *([] if survival(ran.rows).empty else ranked),
        _STANDINGS,
        standings_table(ran.rows),
    ]


def _sources(field: Board, devices: Mapping[str, Reading]) -> str:
    """The paper of each strategy with rows here, as its card has it."""
    here = {*field.entries["strategy"]}
    here |= {row["strategy"] for ran in devices.values() for row in ran.rows}
    by: dict[str, list[str]] = {}
    for name, card in cards().items():
        if card.paper and name in here:
            by.setdefault(card.paper.cite(), []).append(f"`{name}`")
    return "\n".join(f"- {', '.join(names)}: {paper}" for paper, names in by.items())


def _head(field: Board, places: str, title: str, devices: Sequence[str]) -> str:
    """The answer, and what it rests on."""
    rows = field.reading.rows
    models = list(dict.fromkeys(field.problems["model"]))
    commits = {str(row["commit"])[:7] for row in rows}  # several are in the warning
    asks = field.reading.kept and field.reading.lacking
    return _HEAD.format(
        title=title,
        costs=" or ".join(sorted({costs_of(row) or "unknown" for row in rows})),
        care=f" **{field.reading.head}**" if field.reading.lacking else "",
        answer=front_table(field),
        beside=_BESIDE,
        limits=_limits(rows),
        page=_page(places),
        measured=(
            f"Only the last tables have measured times, of {' and of '.join(devices)}."
            if devices
            else "Nothing here was measured."
        ),
        warning=_warning(field),
        command=(
            f"python -m rematbench.report.leaderboard.quote '{places}' --lacking --html FOLDER"
            if asks
            else f"rematbench-report {places} --leaderboard"
        ),
        commits=f" All rows are of commit {commits.pop()}." if len(commits) == 1 else "",
        count=len(models),
        networks=", ".join(f"`{name}`" for name in models),
        picture=_pictured(places),
        steps=_STEPS,
    )


def _page(places: str) -> str:
    """How a reader comes to the page with everything."""
    return _WHOLE if Path(places).name.startswith("full-") else _MADE


def _pictured(places: str) -> str:
    return re.sub(r"(-\*)?\.csv\.gz$", "", places)


def _limits(rows: Sequence[Row]) -> str:
    """What planners were given, as the rows have it."""
    found = Counter(row["extra"].get("time_limit") for row in rows if "time_limit" in row["extra"])
    given = [f"{each:g} s" if each is not None else "no limit" for each in sorted(found, key=str)]
    unknown = len(rows) - found.total()
    text = f"A planner was given {' or '.join(given)}." if given else ""
    doubt = f"{unknown} of {len(rows)} rows do not say what their planner was given."
    return " ".join(each for each in (text, doubt if unknown else "") if each)


def _warning(field: Board) -> str:
    """That rows do not compare as they should."""
    doubts = [note for note in field.notes if note.startswith("rows ")]
    doubts += [field.reading.sentence] if field.reading.lacking else []
    return f"\n\n**Read with care:** {'; '.join(doubts)}." if doubts else ""


def _summed(executed: Reading) -> dict[str, object]:
    profiled = all(row["costmodel"] == "profiled" for row in executed.rows)
    found = survival(executed.rows)
    low = shortened(found["problem"])[found["rank_correlation"] < 0.5]
    return {
        "costs": "profiled" if profiled else "modelled",
        "workspaces": _WORKSPACES[profiled],
        "problems": len(found),
        "median": found["rank_correlation"].median(),
        "near": found["near_correlation"].median(),
        "low": ", ".join(low) or "none",
        "care": f" **Read with care:** {executed.sentence}." if executed.lacking else "",
    }


def with_table(readme: str, table: str) -> str:
    """README's text, with another table in the place of its own.

    Raises:
        ConfigError: it has none, or several.
    """
    text, count = _README.subn(lambda _: table, readme)
    if count != 1:
        raise ConfigError(f"README: {count} tables begin with '| network | at', not one")
    return text


def main(arguments: Sequence[str]) -> None:
    """The command. Exits 2 for a bad argument, with one line that says what."""
    parser = Arguments(prog="rematbench.report.leaderboard.quote", description=__doc__)
    parser.add_argument("place", help="of the rows; * stands for what tells parts apart")
    of_plans = "files of rows of plans that ran, of any devices"
    parser.add_argument("--executed", type=Path, nargs="+", default=[], help=of_plans)
    parser.add_argument("--title", default="The leaderboard")
    parser.add_argument("--lacking", action="store_true", help="read rows that lack provenance")
    parser.add_argument("--out", type=Path, help="the page; without: on the screen")
    parser.add_argument("--pictures", action="store_true", help="draw them beside the rows")
    parser.add_argument("--readme", type=Path, help="a README, whose table is made again")
    parser.add_argument("--html", type=Path, help="a folder, for the page with everything")
    given = parser.parse_args(arguments)
    try:
        rows = collect(map(Path, sorted(glob(given.place)))).rows
        executed = collect(given.executed).rows if given.executed else []
        text = document(rows, executed, given.place, given.title, lacking=given.lacking)
        field = board(rows, lacking=given.lacking)
        if given.pictures:
            _draw(field, _pictured(given.place))
        if given.readme:
            readme = with_table(given.readme.read_text(), small_table(field))
            write_bytes(given.readme, readme.encode())
        if given.html:
            source = f"modelled ({', '.join(sorted({str(costs_of(row)) for row in rows}))})"
            write_leaderboard_pages(rows, given.html, source, lacking=given.lacking)
    except RematbenchError as error:
        print(f"{parser.prog}: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
    if given.out:
        write_bytes(given.out, text.encode())
    elif not (given.html or given.readme):
        print(text, end="")


def _draw(field: Board, name: str) -> None:
    for picture, ending in ((profile_picture, ""), (time_picture, "-time")):
        figure, _ = picture(field)
        figure.savefig(f"{name}{ending}.png", dpi=160)


if __name__ == "__main__":
    main(sys.argv[1:])
