"""``make matrix``: tests of tracing, validator and training under several releases of PyTorch.

``python -m benchmarks.versions PYTHON...`` runs them with each interpreter, one after the other (or
with ``--at-once`` side by side), prints a table, and writes ``runs/benchmarks/versions.json``, each
row with its commit. Rows of other releases stay. Exit code 1 where a test failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.figures import RECORDS, commit
from rematbench.graphs.files import read_json, write_json
from rematbench.rows.provenance import machine, now

ROOMS = ("tests/tracing", "tests/validator", "tests/training")
# Held against what this writes.
_LEFT_OUT = ("--deselect=tests/tracing/test_releases.py",)
RECORD = RECORDS / "versions.json"
_FACTS = (
    "import platform, torch, importlib.metadata as m; "
    "print(torch.__version__, m.version('torchvision'), platform.python_version())"
)


def run(python: str) -> dict[str, Any]:
    """What became of the tests with one interpreter."""
    said = subprocess.run([python, "-c", _FACTS], check=True, capture_output=True, text=True)
    names = ("torch", "torchvision", "python")
    facts: dict[str, Any] = dict(zip(names, said.stdout.split(), strict=True))
    facts |= {"commit": commit(), "utc": now(), "machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        asked = ["-m", "pytest", "-q", f"--junit-xml={report}", *_LEFT_OUT, *ROOMS]
        subprocess.run([python, *asked], check=False)
        return facts | outcome(report)


def outcome(report: Path) -> dict[str, Any]:
    """Counts, names and reasons of a report in JUnit's format."""
    (suite,) = ElementTree.parse(report).getroot().iter("testsuite")
    found: dict[str, list[dict[str, Any]]] = {"failure": [], "error": [], "skipped": []}
    cases = list(suite.iter("testcase"))
    for case in cases:
        name = f"{case.get('classname')}::{case.get('name')}"
        for each in case:
            if each.tag in found:
                found[each.tag].append({"test": name, "reason": each.get("message")})
    failed = [each["test"] for each in (*found["failure"], *found["error"])]
    return {
        "passed": len(cases) - len(failed) - len(found["skipped"]),
        "skipped": found["skipped"],
        "failed": failed,
        "seconds": round(float(suite.get("time", 0)), 1),
    }


def main() -> int:
    """Run, print and record; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="+", metavar="PYTHON")
    parser.add_argument("--at-once", action="store_true", help="side by side")
    given = parser.parse_args()
    with ThreadPoolExecutor(len(given.pythons) if given.at_once else 1) as pool:
        for row in pool.map(run, given.pythons):
            known = [each for each in read_json(RECORD)["rows"] if each["torch"] != row["torch"]]
            rows = sorted([*known, row], key=lambda each: str(each["torch"]))
            write_json(RECORD, {"tests": ROOMS, "rows": rows}, indent=1)
    table = Table("PyTorch", "torchvision", "Python", "passed", "skipped", "failed", "commit")
    for row in rows:
        counts = (row["passed"], len(row["skipped"]), len(row["failed"]), row["commit"])
        table.add_row(row["torch"], row["torchvision"], row["python"], *map(str, counts))
    Console().print(table)
    return int(any(row["failed"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
