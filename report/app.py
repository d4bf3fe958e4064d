"""``rematbench-report``: rows into a leaderboard and figures."""

from __future__ import annotations

import argparse
import difflib
import importlib
import sys
from pathlib import Path

from graphs.errors import ConfigError, RematbenchError
from rematbench.mistakes import one_line
from rematbench.row import Row, find_rows, write_leaderboard

# Each figure is a module of this package with ``draw(rows, out) -> paths``.
FIGURES = ("overhead",)


def draw(name: str, rows: list[Row], out: Path) -> list[Path]:
    """Draw one figure.

    Raises:
        ConfigError: there is no such figure, or the rows hold nothing to draw.
    """
    if name not in FIGURES:
        near = difflib.get_close_matches(name, FIGURES, n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        raise ConfigError(f"--figure {name}: unknown; {hint}there are: {', '.join(FIGURES)}")
    paths: list[Path] = importlib.import_module(f"report.{name}").draw(rows, out)
    return paths


def main() -> None:
    """The command. Exits 2 for a bad argument, with one line that says what."""
    parser = argparse.ArgumentParser(prog="rematbench-report", description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path, help="run or sweep folders")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--figure", action="append", default=[], help=", ".join(FIGURES))
    which.add_argument("--all", action="store_true", help="every figure that the rows allow")
    parser.add_argument("--out", type=Path, default=Path("runs/report"), help="output folder")
    given = parser.parse_args()
    try:
        rows = find_rows(given.runs)
        written = [given.out / "leaderboard.csv"]
        write_leaderboard(written[0], rows)
        for name in FIGURES if given.all else given.figure:
            written += draw(name, rows, given.out)
    except RematbenchError as error:
        print(f"rematbench-report: {one_line(error)}", file=sys.stderr)
        sys.exit(2)
    print(*written, sep="\n")


if __name__ == "__main__":
    main()
