"""``rematbench-report``: rows into a leaderboard, pages and figures."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.base.origin import one_line, printable
from rematbench.cli.arguments import Arguments
from rematbench.report import figures
from rematbench.report.collect import Collected, Skipped, collect
from rematbench.report.leaderboard.page import write_leaderboard_pages
from rematbench.report.pages.site import write_pages
from rematbench.rows.row import Row, write_leaderboard

# Each of ours is a module of this package with ``draw(rows, out) -> paths``; the papers' figures
# are in rematbench.report.figures.
FIGURES = ("overhead", "offload")
_MOST_TOLD = 20  # problems on the screen


def draw(name: str, collected: Collected, out: Path) -> list[Path]:
    """Draw one figure.

    Raises:
        ConfigError: there is no such figure, or the rows hold nothing to draw, or too little.
    """
    try:
        return _drawn(name, collected, out)
    except RematbenchError:
        raise
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        what = f"{type(error).__name__}: {error}"
        raise ConfigError(
            f"figure {name}: a row of its experiment lacks what it shows ({what}); run its job "
            "again, or leave its folder out"
        ) from error


def _drawn(name: str, collected: Collected, out: Path) -> list[Path]:
    if name in figures.NAMES:
        return figures.draw(name, collected.records, out)
    if name not in FIGURES:
        there = [*FIGURES, *figures.NAMES]
        hint = did_you_mean(name, there)
        raise ConfigError(f"--figure {name}: unknown; {hint}there are: {', '.join(there)}")
    paths: list[Path] = importlib.import_module(f"rematbench.report.{name}").draw(
        collected.rows, out
    )
    return paths


def draw_all(collected: Collected, out: Path) -> list[Path]:
    """Draw every figure that the rows allow; of the others, say how to make their rows."""
    written = []
    for name in (*FIGURES, *figures.NAMES):
        try:
            written += draw(name, collected, out)
        except ConfigError as error:
            print(f"rematbench-report: {one_line(error)}", file=sys.stderr)
    return written


def _tell(problems: Sequence[Skipped]) -> None:
    """Name what was skipped, on the screen; the page lists more of it."""
    for problem in problems[:_MOST_TOLD]:
        print(f"rematbench-report: {printable(problem)}", file=sys.stderr)
    if len(problems) > _MOST_TOLD:
        rest = len(problems) - _MOST_TOLD
        print(f"rematbench-report: and {rest} more: see index.html", file=sys.stderr)


def _comparable(rows: Sequence[Row]) -> list[Row]:
    """Rows for the leaderboard; where nothing costs anything, no overhead is more than another."""
    found = [r for r in rows if r["status"] != "ok" or None not in (r["cost"], r["overhead"])]
    if left := len(rows) - len(found):
        text = f"{left} ok rows have no cost or no overhead, and are not on the leaderboard"
        print(f"rematbench-report: {text}", file=sys.stderr)
    return found


def _told_costs(rows: Sequence[Row]) -> str:
    """Where costs come from, in words."""
    kinds = {"roofline": "modelled by a roofline", "profiled": "profiled, op by op"}
    text = set()
    for name, preset in {(row["costmodel"], row["extra"].get("preset")) for row in rows}:
        if name:
            machine = f" ({preset})" if preset else ""
            text.add(kinds.get(name, f"of the cost model {name}") + machine)
    return " or ".join(sorted(text))


def main() -> None:
    """The command. Exits 2 for a bad argument, with one line that says what."""
    parser = Arguments(prog="rematbench-report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run or sweep folders")
    which = parser.add_mutually_exclusive_group()
    which.add_argument(
        "--figure", action="append", default=[], help="overhead, offload, simrd_fig4, ..."
    )
    which.add_argument("--all", action="store_true", help="every figure that the rows allow")
    parser.add_argument(
        "--leaderboard", action="store_true", help="the field: profiles, winners, gaps"
    )
    parser.add_argument(
        "--lacking", action="store_true", help="on the leaderboard, rows that lack provenance, too"
    )
    parser.add_argument("--out", type=Path, default=Path("runs/report"), help="output folder")
    given = parser.parse_args()
    try:
        collected = collect(given.runs)
        rows = collected.rows
        given.out.mkdir(parents=True, exist_ok=True)
        written = [given.out / "leaderboard.csv"]
        write_leaderboard(written[0], rows)
        pages = write_pages(collected, given.out)
        _tell(pages.problems)
        written.append(pages.index)
        if given.all:
            written += draw_all(collected, given.out)
        if given.leaderboard:
            written += write_leaderboard_pages(
                _comparable(rows), given.out, _told_costs(rows), lacking=given.lacking
            )
        for name in given.figure:
            written += draw(name, collected, given.out)
    except RematbenchError as error:
        print(f"rematbench-report: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
    except OSError as error:
        place = error.filename or given.out
        why = error.strerror or one_line(error)
        text = f"{place}: cannot be written ({why}); give another folder by --out"
        print(f"rematbench-report: {text}", file=sys.stderr)
        sys.exit(2)
    print(*written, sep="\n")
    if "overhead" in given.figure:
        from rematbench.report.overhead import in_words

        said = in_words(rows) or "No budget at which two strategies have a plan."
        print(printable(said))
        print(f"The page: {pages.index}")


if __name__ == "__main__":
    main()
