"""Writes a field as one page, two figures and tables as CSV."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from markupsafe import Markup, escape
from matplotlib.figure import Figure
from pandas.api.types import is_numeric_dtype

from rematbench.graphs.files import write_bytes
from rematbench.report.leaderboard import tables
from rematbench.report.leaderboard.board import Board, board
from rematbench.report.leaderboard.findings import sentences
from rematbench.report.leaderboard.measured import by_device, survival
from rematbench.report.leaderboard.names import label, labels
from rematbench.report.leaderboard.paired import paired, reference
from rematbench.report.leaderboard.pictures import profile_picture, time_picture
from rematbench.report.leaderboard.reading import ASK, NothingRead, read
from rematbench.report.leaderboard.shares import CountOf, few, plain
from rematbench.report.pages.site import templates
from rematbench.rows.provenance import now
from rematbench.rows.row import Row

FOLDER = "leaderboard"
_RATIOS = (
    *("overhead", "median", "worst", "median_in_F", "worst_in_F"),
    *("best_overhead", "quick_overhead", "joint_overhead", "modelled_best_overhead"),
    "half_width",
)


_ANSWER = {
    **{"family": "kind of network", "fraction": "budget"},
    **{"best": "cheapest plans", "best_overhead": "overhead"},
    **{"quick": "after a second", "quick_overhead": "overhead then"},
    **{"joint_overhead": "anytime_joint's (ours)", "networks": "networks"},
}
"""Columns of the first table, in their order, in words."""
_KEYS = ("strategy", "problems", "applicable")


@dataclass(frozen=True)
class PageTable:
    """A table of the page.

    Attributes:
        name: of its CSV.
        title: its heading.
        about: a sentence on how to read it.
        frame: its content.
        strategies: columns that bear a strategy's name.
    """

    name: str
    title: str
    about: str
    frame: pd.DataFrame
    strategies: Sequence[str] = ()

    @property
    def head(self) -> list[tuple[str, bool]]:
        """Names of columns, in words; and are there numbers below?"""
        kinds = {str(name): _is_number(self.frame[name]) for name in self.frame}
        return [
            (label(name) if name in self.strategies else self._word(name), number)
            for name, number in kinds.items()
        ]

    def _word(self, name: str) -> str:
        words = _ANSWER if self.name == "winners" else {}
        return words.get(name, name.replace("_", " "))

    @property
    def lines(self) -> list[list[tuple[str, str | None]]]:
        """Cells as (what is shown, the number that sorts or None)."""
        columns = [str(column) for column in self.frame.columns]
        return [
            [_cell(column, value) for column, value in zip(columns, line, strict=True)]
            for line in _named(self.frame).itertuples(index=False, name=None)
        ]


def write_leaderboard_pages(
    rows: Iterable[Row], out: Path, source: str, *, lacking: bool = False, up: str = ""
) -> list[Path]:
    """Write ``leaderboard.html`` and ``leaderboard/``: figures and tables.

    Args:
        source: what the rows were read from, in words.
        lacking: read rows, too, that do not say what they were made with.
        up: address of a page that this one leads back to; empty: none.

    Where every row lacks, the page says so, and no more.

    Raises:
        ConfigError: no row has a fractional budget.
    """
    rows = list(rows)
    try:
        field = board(rows, lacking=lacking)
    except NothingRead as nothing:
        return [_write(out, field=None, reading=nothing.reading, ask=ASK, up=up)]
    folder = out / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {"profile": profile_picture(field), "time": time_picture(field)}
    written = [out / "leaderboard.html"]
    for name, (figure, data) in pictures.items():
        written += [folder / f"{name}.{ending}" for ending in ("png", "pdf", "csv")]
        figure.savefig(folder / f"{name}.png", dpi=160)
        figure.savefig(folder / f"{name}.pdf", metadata={"CreationDate": None})
        data.to_csv(folder / f"{name}.csv", float_format="%.6g")
    shown = [*_tables(field), *_measured(read(rows, lacking=lacking).rows)]
    for table in shown:
        written.append(folder / f"{table.name}.csv")
        plain(table.frame).to_csv(written[-1], index=False, float_format="%.6g")
    _write(
        out,
        field=field,
        reading=field.reading,
        source=source,
        utc=now(),
        findings=[(_words(text), query) for text, query in sentences(field)],
        pictures={name: _svg(figure) for name, (figure, _) in pictures.items()},
        answer=shown[0],
        tables=shown[1:],
        folder=FOLDER,
        up=up,
    )
    return written


def _write(out: Path, **known: object) -> Path:
    text = templates().get_template("leaderboard.html").render(**known)
    path = out / "leaderboard.html"
    write_bytes(path, text.encode(errors="backslashreplace"))
    return path


def _tables(field: Board) -> Sequence[PageTable]:
    return (*_of_strategies(field), *_of_problems(field))


def _of_strategies(field: Board) -> Sequence[PageTable]:
    summary = tables.summary(field).reset_index()
    return (
        PageTable(
            "winners",
            "Which strategy should I use?",
            "By kind of network and budget (a fraction of the peak of training that recomputes "
            "nothing): the strategies with the lowest median overhead (no plan counts as "
            "infinite), at the end of their time and after a second. Names within 0.1 points "
            "share the place; who is best on fewer than four networks says little of others. "
            "Ours: our own search, which no paper published; our search: a published method whose "
            "plans our search makes. "
            "Beside them anytime_joint (ours), which may choose other implementations of ops, and "
            "so be cheaper; checkmate_d (our search), which is anytime blind to workspaces, is "
            "left out.",
            tables.winners(field)[list(_ANSWER)],
        ),
        PageTable(
            "strategies",
            "Strategies",
            "Shares of the problems that a strategy applies to. Solved: it has a plan. Best: no "
            "known plan of the captured ops is cheaper; alone: every other is dearer; within: of "
            "the best known cost, per cent, at the end or after so many seconds (of problems on "
            "which it had them, or was always done before). Who runs other ops than the captured "
            "ones has no such share. Overheads are medians over the same "
            f"{len(tables.common(field))} problems, which all solve who have one; seconds of "
            "planning (of the processor, where rows have them) of what it solved.",
            summary.loc[:, [name for name in summary if not name.endswith("_all")]],
        ),
        PageTable(
            "strategies_all",
            "Strategies, of all problems",
            "The same shares, where a problem that a strategy does not apply to counts as one that "
            "it does not solve.",
            summary.loc[:, [n for n in summary if n in _KEYS or n.endswith("_all")]],
        ),
        PageTable(
            "paired",
            f"Beside {label(reference(field))}, on what both solve",
            "How often a strategy's plan is cheaper, equal (within 0.01 %) or dearer; its cost "
            "over the other's (geometric mean), and the ends of that mean's 95 % interval, by "
            "drawing networks with replacement.",
            paired(field),
        ),
    )


def _of_problems(field: Board) -> Sequence[PageTable]:
    return (
        PageTable(
            "budgets",
            "The smallest budget met",
            "Of the fractions asked, per network.",
            tables.smallest_budgets(field).reset_index(),
            field.strategies,
        ),
        PageTable(
            "overheads",
            "Overheads by kind of network",
            "At the budgets that networks share; of the problems that a strategy solved.",
            tables.overheads(field),
        ),
        PageTable(
            "gaps",
            "How far from optimal may the best known plan be?",
            "Certified: by the highest bound of any strategy on every plan in program order; in F: "
            "on the plans that recompute forward ops alone, after the forward pass.",
            tables.gaps(field),
        ),
        PageTable(
            "gaps_by_budget",
            "The same by budget",
            "As above.",
            tables.gaps_by_budget(field),
        ),
    )


def _measured(rows: Sequence[Row]) -> Sequence[PageTable]:
    """The comparison with each device, where rows were executed."""
    found = {device: survival(its) for device, its in by_device(rows).items()}
    return [_survives(found, device) for device, table in found.items() if len(table)]


def _survives(found: Mapping[str, pd.DataFrame], device: str) -> PageTable:
    """Of several devices, each has a table of its own."""
    several = len(found) > 1
    return PageTable(
        "-".join(["measured", *re.findall(r"[\w.]+", device * several)]).lower(),
        f"Does the modelled ranking survive?{f' On {device}' * several}",
        "Plans that ran with eager training's gradients, equal ones once: the rank correlation "
        "of modelled and measured overhead, and what was measured of the plan that is cheapest "
        "by the model beside the quickest plan. Peak error: the largest, simulated against "
        "measured. Half width: of the 95 % interval of the measured overhead, at the median of "
        "the plans. Over budget: plans whose measured peak is above it.",
        found[device],
    )


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """A table whose strategies say whose they are; and on how few networks they are best."""
    named = {
        column: frame[column].map(labels)
        for column in ("strategy", "best", "quick", "modelled_best")
        if column in frame and not _is_number(frame[column])
    }
    if "quick" in named:
        for column in ("best", "quick"):
            few_of = frame["networks"].map(few).where(frame[column] != "", "")
            named[column] = named[column] + few_of
    return frame.assign(**named)


def _is_number(column: pd.Series) -> bool:
    return is_numeric_dtype(column.dtype) or any(isinstance(each, CountOf) for each in column)


def _cell(column: str, value: object) -> tuple[str, str | None]:
    if isinstance(value, str):
        return value, None
    if isinstance(value, CountOf):
        return str(value), repr(value.value) if value.of else "Infinity"
    if value is None or pd.isna(value):
        return "–", "Infinity"
    number = float(value)  # type: ignore[arg-type]
    if column in _RATIOS:
        return f"{100 * number:+.1f} %", repr(number)
    if column in ("gap", "peak_error"):
        return f"{100 * number:.1f} %", repr(number)
    return f"{number:.3g}", repr(number)


def _words(text: str) -> Markup:
    """A sentence whose names in backquotes are code."""
    return Markup(re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text))))


def _svg(figure: Figure) -> Markup:
    """A picture inside the page: as wide as the page allows."""
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "rematbench"}):
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    return Markup(re.sub(r' width="[^"]*pt" height="[^"]*pt"', ' class="picture"', svg, count=1))
