"""Rows from run folders, good ones apart from bad ones: a report is drawn from what is sound."""

from __future__ import annotations

import csv
import gzip
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

from rematbench.base.errors import ConfigError
from rematbench.cli import progress
from rematbench.graphs.files import read_json
from rematbench.report.faults import TEXT, fault_of
from rematbench.rows.row import COLUMNS, Row, by_number, marked, values_of

_OURS = ("trace.csv", "leaderboard.csv", progress.NAME)
_OF_A_COPY = ("cached", "experiment", "group", "shared_with")
_VERSION = re.compile(r"(?:^|; )rematbench ([^;\s]+)")


@dataclass(frozen=True, slots=True)
class Mark:
    """Who asked for a row: an experiment, and which of its groups of sweeps."""

    experiment: str
    group: str | None = None


@dataclass(frozen=True)
class Record:
    """A sound row.

    Attributes:
        row: its columns.
        path: the file that it came from.
        id: hex digits of its content, the same in every report.
    """

    row: Row
    path: Path
    id: str

    @property
    def folder(self) -> Path | None:
        """The run folder; None for a line of a leaderboard."""
        return self.path.parent if self.path.suffix == ".json" else None

    @cached_property
    def marks(self) -> tuple[Mark, ...]:
        """Who asked for the row, or for a copy of it; nobody, where a person did."""
        extra = self.row["extra"]
        named = [(extra.get("experiment"), extra.get("group"))]
        named += [
            (each.get("experiment"), each.get("group")) for each in extra.get("shared_with", ())
        ]
        return tuple(Mark(experiment, group) for experiment, group in named if experiment)


@dataclass(frozen=True)
class Skipped:
    """Something that was skipped, by name, and why."""

    path: Path
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


@dataclass(frozen=True)
class Collected:
    """What a report is drawn from."""

    records: tuple[Record, ...]
    problems: tuple[Skipped, ...]

    @property
    def rows(self) -> list[Row]:
        """The rows alone."""
        return [record.row for record in self.records]


def collect(places: Iterable[Path]) -> Collected:
    """Read every row under some run or sweep folders, ``row.json`` files or leaderboards (CSV).

    Rows that are damaged, of another version of this program or there already are skipped, as
    are files that are none of ours; each is named among the problems.

    Raises:
        ConfigError: a place does not exist, or there is no sound row in any of them.
    """
    problems: list[Skipped] = []
    records = [record for place in places for record in _read_place(place, problems)]
    records = _of_one_version(_without_repeats(records, problems), problems)
    if not records:
        found = f"{len(problems)} skipped, the first: {problems[0]}" if problems else "none given"
        raise ConfigError(f"no row to report ({found}); give a run or sweep folder")
    return Collected(tuple(records), tuple(problems))


def _read_place(place: Path, problems: list[Skipped]) -> Iterator[Record]:
    if not place.exists():
        raise ConfigError(f"{place}: no such folder; give a run or sweep folder")
    if place.is_file():
        yield from (
            _read_leaderboard(place, problems)
            if place.name.endswith((".csv", ".csv.gz"))
            else _read_files([place], problems)
        )
        return
    paths, foreign = _scan(place)
    problems += [Skipped(path, "not a file of a run, not read") for path in foreign]
    if not paths:
        problems.append(Skipped(place, "holds no row.json; give a run or sweep folder"))
    yield from _read_files(paths, problems)


def _scan(folder: Path) -> tuple[list[Path], list[Path]]:
    """The ``row.json`` files under a folder, and the CSVs that are neither ours nor a figure's."""
    rows, foreign = [], []
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != ".hydra"]
        names = set(files)
        if "row.json" in names:
            rows.append(Path(where, "row.json"))
        if {"index.html", "leaderboard.csv"} <= names:  # a report, with its tables
            continue
        drawn = {f"{name[:-4]}.csv" for name in names if name.endswith((".png", ".pdf"))}
        tables = {name for name in names if name.endswith(".csv")}
        foreign += [Path(where, name) for name in tables - drawn - {*_OURS}]
    return sorted(rows, key=by_number), sorted(foreign)


def _read_files(paths: Iterable[Path], problems: list[Skipped]) -> Iterator[Record]:
    for path in paths:
        try:
            row = read_json(path, ConfigError)
        except ConfigError as error:
            problems.append(Skipped(path, str(error).removeprefix(f"{path}: ")))
            continue
        yield from _record(row, path, str(path), problems)


def _record(row: Any, path: Path, name: str, problems: list[Skipped]) -> Iterator[Record]:
    fault = fault_of(row)
    try:
        identity = "" if fault else _identity(row, name)
    except ValueError:
        fault = "extra holds a number that is not finite; run its job again"
    if fault:
        problems.append(Skipped(Path(name), fault))
    else:
        yield Record(row, path, identity)


def _identity(row: Row, name: str) -> str:
    # A copy from the cache is the same row, though it says that it is a copy, and for whom. A job
    # whose configuration was bad knows little of itself: two such rows may be alike, and are two.
    extra = {key: value for key, value in row["extra"].items() if key not in _OF_A_COPY}
    place = name if extra.get("bad_config") else None
    text = json.dumps([*values_of(row)[:-1], extra, place], sort_keys=True, allow_nan=False)
    return sha256(text.encode()).hexdigest()[:12]


def _without_repeats(records: Iterable[Record], problems: list[Skipped]) -> list[Record]:
    first: dict[str, Record] = {}
    for record in records:
        known = first.setdefault(record.id, record)
        if known is not record:
            first[record.id] = known = _shared(known, record)
        both = (record.row["extra"], known.row["extra"])
        if known is not record and not any(extra.get("cached") for extra in both):  # as copies are
            problems.append(Skipped(record.path, f"the same row as {known.path}"))
    return list(first.values())


def _shared(known: Record, copy: Record) -> Record:
    """The row of several experiments, which says so."""
    others = [mark for mark in copy.marks if mark not in known.marks]
    if not others:
        return known
    named = [dict(marked(mark.experiment, mark.group)) for mark in others]
    extra = known.row["extra"].copy()
    extra["shared_with"] = [*extra.get("shared_with", ()), *cast(list[dict[str, str]], named)]
    return replace(known, row=known.row | {"extra": extra})


def _of_one_version(records: list[Record], problems: list[Skipped]) -> list[Record]:
    """The rows of the commonest version of this program, and those that do not tell theirs.

    A column may have changed its meaning between two versions, so that they share no page.
    """
    versions = [_VERSION.search(str(record.row["versions"])) for record in records]
    known = Counter(match[1] for match in versions if match)
    if len(known) < 2:
        return records
    (main, _), *_ = known.most_common(1)
    kept = []
    for record, match in zip(records, versions, strict=True):
        if match is None or match[1] == main:
            kept.append(record)
        else:
            reason = f"of rematbench {match[1]}, most rows are of {main}; report on it separately"
            problems.append(Skipped(record.path, reason))
    return kept


def _read_leaderboard(path: Path, problems: list[Skipped]) -> Iterator[Record]:
    csv.field_size_limit(min(sys.maxsize, 2**31 - 1))
    try:
        opened = gzip.open if path.suffix == ".gz" else open
        # Excel puts a byte order mark before its CSVs.
        with opened(path, "rt", newline="", encoding="utf-8-sig") as file:
            lines = list(csv.reader(file))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        problems.append(Skipped(path, f"cannot be read as CSV ({error})"))
        return
    if not lines or tuple(lines[0]) != COLUMNS:
        problems.append(Skipped(path, "not a leaderboard of this program (its columns differ)"))
        return
    for number, line in enumerate(lines[1:], start=2):
        name = f"{path}, line {number}"
        if len(line) != len(COLUMNS):
            problems.append(Skipped(Path(name), f"has {len(line)} cells of {len(COLUMNS)}"))
            continue
        row = {c: _from_cell(c, text) for c, text in zip(COLUMNS, line, strict=True)}
        yield from _record(row, path, name, problems)


def _from_cell(column: str, text: str) -> Any:
    if text == "" or column in TEXT:
        return text or None
    try:
        return json.loads(text, parse_constant=lambda word: word)
    except ValueError:
        return text  # named by fault_of
