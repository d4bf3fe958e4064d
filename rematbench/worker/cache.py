"""Finished jobs, kept under all that their results depend on.

A job's place is named by its settings, the contents of its input files and the versions of what
it plans with (:meth:`Settings.key`): what is known before it runs. There it has an entry for each
state of the code that it ran (:mod:`rematbench.worker.manifest`): one JSON file, written by atomic
rename. An entry counts only while that code is still what would run.
"""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path

from rematbench.base.errors import ConfigError, RematbenchError, UnwritableError
from rematbench.base.json_files import read_json, write_bytes, write_json
from rematbench.jobs.settings import Settings
from rematbench.rows.row import COLUMNS, LASTING, Row, unmarked, write_row
from rematbench.worker.manifest import HOUSE, Loaded, Manifest, house, manifest, read_manifest

FILES = ("plan.json", "trace.csv", "graph.json.gz")
"""What a job writes beside its row."""
_FORMAT = "rematbench-job"


@dataclass(frozen=True)
class CachePlace:
    """A job's place in the cache.

    Args:
        settings: of the job; ``cache`` may be null: then nothing is kept.
    """

    settings: Settings

    @cached_property
    def _folder(self) -> Path | None:
        """As the job's input files are now."""
        return _folder(self.settings)

    def recall(self, folder: Path) -> Row | None:
        """Copy a finished job's files into ``folder``; None where there is none."""
        if self._folder is None:
            return None
        for path in _latest_first(self._folder):
            entry = _read(path)
            if entry is not None and entry.manifest.holds():
                unmarked(entry.row)["cached"] = True
                entry.row["extra"] |= self.settings.mark  # of who asks now, not of who made it
                _write_files(folder, entry.files)
                write_row(folder / "row.json", entry.row)
                return entry.row
        return None

    def remember(self, folder: Path, row: Row, of: Loaded, began: int) -> None:
        """Keep a job's files, unless its end was an accident (a crash, no memory, a job's limit).

        Nor is a job kept whose input files or code have changed since it began: nobody knows what
        it saw.

        Args:
            of: what its process has loaded.
            began: when that began, in nanoseconds since the epoch.
        """
        place = self._folder
        if place is None or row["status"] not in LASTING or "job_limit" in row["extra"]:
            return
        if row["status"] == "time_limit":  # a planner that was stopped cannot say what it ran
            if not self.settings.target.startswith(f"{HOUSE}."):
                return
            of = replace(of, modules=of.modules | house())
        made = manifest(of, began)
        if made is None or place != _folder(self.settings):
            return
        entry = {
            "format": _FORMAT,
            "manifest": asdict(made),
            "row": row,
            "files": {name: _packed(folder / name) for name in _present(folder)},
        }
        try:
            write_json(place / f"{made.id}.json", entry)
        except UnwritableError as error:
            _warn_once(f"cache={self.settings.cache}: finished jobs are not kept", str(error))


@dataclass(frozen=True)
class _Entry:
    manifest: Manifest
    row: Row
    files: dict[str, bytes]


def _folder(settings: Settings) -> Path | None:
    if settings.cache is None:
        return None
    key = settings.key()
    return Path(settings.cache) / "jobs" / key[:2] / key


def _latest_first(folder: Path) -> list[Path]:
    dated = []
    for path in folder.glob("*.json"):
        with suppress(OSError):  # another process has just dropped it
            dated.append((path.stat().st_mtime_ns, path))
    return [path for _, path in sorted(dated, reverse=True)]


def _read(path: Path) -> _Entry | None:
    """An entry; None where it is damaged, and then it goes."""
    try:
        found = read_json(path, ConfigError)
        if found["format"] != _FORMAT or not set(COLUMNS) <= set(found["row"]):
            raise ValueError("it is no job of this program")
        files = {name: _unpacked(name, text) for name, text in found["files"].items()}
        if not set(files) <= set(FILES):
            raise ValueError("it is no job of this program")
        return _Entry(read_manifest(found["manifest"]), found["row"], files)
    except (RematbenchError, ValueError, TypeError, KeyError, AttributeError) as error:
        if not path.exists():  # another process has just dropped it
            return None
        why = str(error) if isinstance(error, RematbenchError) else f"{path}: damaged ({error!r})"
        _warn_once(why, "dropped from the cache, the job runs again")
        with suppress(OSError):
            path.unlink()
        return None


_warned: set[str] = set()


def _warn_once(what: str, then: str) -> None:
    if what not in _warned:
        _warned.add(what)
        print(f"rematbench: {what}: {then}", file=sys.stderr)


def _packed(path: Path) -> str:
    content = path.read_bytes()
    return base64.b64encode(content).decode() if path.suffix == ".gz" else content.decode()


def _unpacked(name: str, text: str) -> bytes:
    return base64.b64decode(text, validate=True) if name.endswith(".gz") else text.encode()


def _present(folder: Path) -> Iterator[str]:
    return (name for name in FILES if (folder / name).exists())


def _write_files(folder: Path, files: dict[str, bytes]) -> None:
    clear(folder)
    for name, content in files.items():
        write_bytes(folder / name, content)


def copy_files(source: Path, target: Path) -> None:
    """Copy a job's files, but not its row; the target keeps none that the source has not."""
    _write_files(target, {name: (source / name).read_bytes() for name in _present(source)})


def clear(folder: Path) -> None:
    """Remove what an earlier job left: none of its files may stand beside another's row.

    Raises:
        UnwritableError: the system refuses.
    """
    handed_over = folder.glob("handed_over*.json")  # of a planner that was killed
    for path in (folder / "row.json", *(folder / name for name in FILES), *handed_over):
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise UnwritableError(path, error) from None
