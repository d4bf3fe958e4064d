"""Finished jobs, kept under the hash of everything that their results depend on."""

from __future__ import annotations

from pathlib import Path

from rematbench.graphs.files import write_bytes
from rematbench.row import LASTING, Row, read_row, unmarked, write_row
from rematbench.settings import Settings

_FILES = ("plan.json", "trace.csv", "graph.json.gz")


def recall(settings: Settings, folder: Path) -> Row | None:
    """Copy a finished job's files into ``folder``; None where there is none."""
    entry = _entry(settings)
    if entry is None or not (entry / "row.json").exists():
        return None
    row = read_row(entry / "row.json")
    unmarked(row)["cached"] = True
    row["extra"] |= settings.mark  # of who asks now, not of who made the entry
    copy_files(entry, folder)
    write_row(folder / "row.json", row)
    return row


def remember(settings: Settings, folder: Path, row: Row) -> None:
    """Keep a job's files, unless its end was an accident (a crash, no memory, a job's limit)."""
    entry = _entry(settings)
    if entry is not None and row["status"] in LASTING and "job_limit" not in row["extra"]:
        copy_files(folder, entry)
        write_row(entry / "row.json", row)  # last: it marks the entry as complete


def _entry(settings: Settings) -> Path | None:
    if settings.cache is None:
        return None
    key = settings.key()
    return Path(settings.cache) / "jobs" / key[:2] / key


def copy_files(source: Path, target: Path) -> None:
    """Copy a job's files, but not its row."""
    for name in _FILES:
        file = source / name
        if file.exists():
            content = file.read_bytes()
            write_bytes(target / name, content)
