"""Sweeps through faults: killed processes, a disk that fills up, two sweeps in one folder.

Kills come at random moments, the same in every run of the tests; whatever they hit, no finished
row is lost, none is doubled, and the same command goes on.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from rematbench.graphs.files import read_plan
from rematbench.rows.row import Row, find_rows

KILLS = 12
LENGTHS = range(3, 15)
SWEEP = (
    *("-m", "model=unit_chain", f"model.length={','.join(map(str, LENGTHS))}"),
    *("strategy=chen_sqrt", "cache=cache"),
)


def start(
    folder: Path, *arguments: str, sweep: str = "sweep", **options: object
) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-m", "rematbench", *SWEEP, f"hydra.sweep.dir={sweep}", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        **options,
    )


def finished(process: subprocess.Popen) -> str:
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "Traceback" not in said
    return said


def worker_of(parent: int) -> int | None:
    """The child process that runs jobs."""
    try:
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None


def entries(folder: Path) -> dict[str, bytes]:
    """The finished jobs: what each kill must leave as it is."""
    return {str(path): path.read_bytes() for path in folder.glob("cache/jobs/*/*/*.json")}


def check(folder: Path, sweep: str = "sweep") -> list[Row]:
    """Every job has one whole row, with its plan."""
    rows = find_rows([folder / sweep])
    assert [row["extra"]["length"] for row in rows] == list(LENGTHS)
    for number, row in enumerate(rows):
        assert row["status"] == "ok"
        plan = read_plan(folder / sweep / str(number) / "plan.json")
        assert plan.graph == f"unit_chain{row['extra']['length']}"
    lines = (folder / sweep / "leaderboard.csv").read_text().splitlines()
    assert len(lines) == 1 + len(LENGTHS)
    return rows


def kill_at_a_moment(process: subprocess.Popen, moments: random.Random) -> None:
    """Kill the sweep or its worker: as it starts, or around its next finished jobs."""
    assert process.stdout is not None
    for _ in range(moments.randrange(4)):
        process.stdout.readline()  # a line per job
    time.sleep(moments.random() * 0.1)
    victim = worker_of(process.pid) if moments.random() < 0.5 else None
    with suppress(ProcessLookupError):  # a worker that has just gone
        os.kill(victim or process.pid, signal.SIGKILL)
    process.communicate(timeout=120)


@pytest.mark.parametrize("seed", range(4))
def test_kills_at_random_moments(tmp_path: Path, seed: int) -> None:
    """Again and again, and then the sweep goes on: no row is lost, none is made anew."""
    moments = random.Random(seed)
    for _ in range(KILLS // 4):
        before = entries(tmp_path)
        kill_at_a_moment(start(tmp_path), moments)
        after = entries(tmp_path)
        assert {path: after[path] for path in before} == before
    finished(start(tmp_path))
    rows = check(tmp_path)
    kept = [row for row in rows if row["extra"].get("cached")]
    assert len(kept) == len(after)
    final = entries(tmp_path)
    assert len(final) == len(LENGTHS)
    assert {path: final[path] for path in after} == after
    assert {json.loads(each)["row"]["extra"]["length"] for each in final.values()} == set(LENGTHS)


def test_two_sweeps_in_one_folder_and_one_cache(tmp_path: Path) -> None:
    """Each job is done by one of them, and the other has its row; no file is missing."""
    both = [start(tmp_path), start(tmp_path)]
    for process in both:
        finished(process)
    check(tmp_path)
    for content in entries(tmp_path).values():
        json.loads(content)
    again = finished(start(tmp_path))
    assert again.count("(cached)") == len(LENGTHS)


def test_a_disk_that_fills_up(tmp_path: Path) -> None:
    """Files of more than so many bytes fail, as on a full disk; the smaller jobs' fit."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    large = f"model.length={','.join(map(str, LENGTHS))},2000"
    process = start(tmp_path, large, preexec_fn=limit)
    said, _ = process.communicate(timeout=120)
    assert process.returncode == 2, said
    assert "Traceback" not in said
    assert "cannot be written (File too large); free space" in said
    rows = find_rows([tmp_path / "sweep"])
    statuses = [row["status"] for row in rows]
    assert statuses == ["ok"] * len(LENGTHS) + ["failed"]
    assert "cannot be written (File too large)" in rows[-1]["reason"]
    # With space again, the same command does what is missing.
    finished(start(tmp_path, large))
    rows = find_rows([tmp_path / "sweep"])
    assert {row["status"] for row in rows} == {"ok"}
    assert [bool(row["extra"].get("cached")) for row in rows] == [True] * len(LENGTHS) + [False]


SMALL_DISK = """
mount -t tmpfs -o size=$1,nr_inodes=$2 none disk && (cd disk && shift 2 && "$@"); code=$?
cp -r disk kept; exit $code
"""
ALONE = ("unshare", "--user", "--map-root-user", "--mount")
needs_unshare = pytest.mark.skipif(
    subprocess.run([*ALONE, "true"], capture_output=True, check=False).returncode != 0
    if shutil.which("unshare")
    else True,
    reason="mounts a file system of its own (unshare --map-root-user), which is not allowed here",
)


@needs_unshare
@pytest.mark.parametrize("size", ["200k", "400k"])
def test_a_file_system_without_space(tmp_path: Path, size: str) -> None:
    """A real one, of so few bytes. What it holds at the end is kept, and goes on elsewhere."""
    (tmp_path / "disk").mkdir()
    job = [sys.executable, "-m", "rematbench", *SWEEP, "hydra.sweep.dir=sweep"]
    done = subprocess.run(
        [*ALONE, "sh", "-c", SMALL_DISK, "sh", size, "1000", *job],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 2, said
    assert "Traceback" not in said
    assert "cannot be written (No space left on device); free space" in said
    kept = tmp_path / "kept"
    whole = find_rows([kept / "sweep"]) if (kept / "sweep").exists() else []
    assert len(whole) < len(LENGTHS) or any(row["status"] != "ok" for row in whole)
    cached = entries(kept)
    for content in cached.values():
        json.loads(content)
    finished(start(kept))
    rows = check(kept)
    assert sum(bool(row["extra"].get("cached")) for row in rows) == len(cached)
    assert {path: content for path, content in entries(kept).items() if path in cached} == cached
