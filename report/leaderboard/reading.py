"""Which rows a field is made of: those that say what they were made with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rematbench.base.errors import ConfigError
from rematbench.rows.row import Row

PROVENANCE = ("machine", "time_limit", "threads", "in_program_order")
"""Without these a row's time, or its plan, does not compare. The last one is of a plan."""

ASK = "python -m rematbench.report.leaderboard.quote PLACE --lacking --html FOLDER"
"""What reads rows without."""


@dataclass(frozen=True)
class Reading:
    """Rows, and what others lack.

    Attributes:
        rows: that are read.
        given: how many there were.
        lacking: how many of them lack something.
        keys: what, and how many lack it.
        kept: are those read, too?
    """

    rows: tuple[Row, ...]
    given: int
    lacking: int
    keys: tuple[tuple[str, int], ...]
    kept: bool

    @property
    def sentence(self) -> str:
        """What is wrong with the rows; empty where nothing is."""
        if not self.lacking:
            return ""
        text = ", ".join(f"{key} ({count})" for key, count in self.keys)
        end = "they are shown all the same" if self.kept else "they are left out"
        return (
            f"{self.lacking} of {self.given} rows do not say what they were made with "
            f"({text}); {end}"
        )

    @property
    def head(self) -> str:
        """The same for the head of a page."""
        if not self.lacking:
            return ""
        of = f"{self.lacking} of {self.given}"
        if self.kept:
            return f"Read with care: {of} rows do not say what they were made with."
        return f"{of} rows are left out: they do not say what they were made with."


class NothingRead(ConfigError):
    """No row says what it was made with."""

    def __init__(self, reading: Reading) -> None:
        super().__init__(
            f"leaderboard: {reading.sentence}, and none is left; run their jobs again, or ask for "
            f"them: {ASK}"
        )
        self.reading = reading


def read(rows: Iterable[Row], *, lacking: bool) -> Reading:
    """Tell rows that say what they were made with from those that do not.

    Args:
        lacking: read those, too.
    """
    given = list(rows)
    missing = [lacks(row) for row in given]
    keys = Counter(key for each in missing for key in each)
    found = [row for row, each in zip(given, missing, strict=True) if lacking or not each]
    text = tuple((key, keys[key]) for key in PROVENANCE if key in keys)
    return Reading(tuple(found), len(given), sum(map(bool, missing)), text, lacking)


def lacks(row: Row) -> Sequence[str]:
    """Which of :data:`PROVENANCE` a row does not say."""
    known = {key for key in PROVENANCE if key in row["extra"]}
    if row["threads"] is not None:
        known.add("threads")
    if row["status"] != "ok":  # there is no plan
        known.add("in_program_order")
    return [key for key in PROVENANCE if key not in known]
