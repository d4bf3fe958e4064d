"""The benchmarks' page is made from their records, and has every benchmark."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import figures, table
from benchmarks.figures import Figure

HOUSE = Path(__file__).parents[2]


def test_the_page_is_that_of_the_records() -> None:
    written = (HOUSE / table.PAGE).read_text()
    assert written == table.page(), "make it anew: python -m benchmarks.table"


def test_every_benchmark_is_run() -> None:
    modules = [path for path in (HOUSE / "benchmarks").glob("*.py") if path.stem != "__main__"]
    publishing = {path.stem for path in modules if re.search(r"\bpublish\(\"", path.read_text())}
    assert publishing == set(table.ALL)


def test_a_record_says_what_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(figures, "changed_files", lambda: ["strategies/chen.py"])
    made = [Figure("slow", 3, 2, "s"), Figure("free", 9, None, "s"), Figure("many", 3, 2, "", True)]
    figures.publish("tried", made, note="of a test")
    record: dict[str, Any] = json.loads((tmp_path / "runs/benchmarks/tried.json").read_text())
    assert [row["kept"] for row in record["figures"]] == [False, True, True]
    assert record["commit"] is None or record["commit"].endswith("-dirty")
    assert record["note"] == "of a test"
    assert {"utc", "machine", "versions", "seconds", "cpu_seconds", "load_before"} <= set(record)
    assert not figures.same_code("123456789abc-dirty")


def test_what_is_not_a_benchmark() -> None:
    command = [sys.executable, "-m", "benchmarks", "chekmate", "--dirty"]
    done = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "chekmate: there is no such benchmark; choose report, " in done.stderr
