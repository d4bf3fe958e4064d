"""Which PyTorch we run with: what is declared, what is told apart, what was run."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rematbench.base.errors import ConfigError
from rematbench.tracing.releases import RELEASES, release_of

HOUSE = Path(__file__).parents[2]
RECORD = HOUSE / "runs" / "benchmarks" / "versions.json"
DECLARED = tomllib.loads((HOUSE / "pyproject.toml").read_text())["project"]["dependencies"]


def after(minor: str) -> str:
    major, number = minor.split(".")
    return f"{major}.{int(number) + 1}"


@pytest.mark.parametrize("package", ["torch", "torchvision"])
def test_the_declared_range_is_that_of_the_table(package: str) -> None:
    found = list(RELEASES) if package == "torch" else [r.torchvision for r in RELEASES.values()]
    assert f"{package}>={found[0]},<{after(found[-1])}" in DECLARED


def test_the_record_is_of_the_oldest_the_pinned_and_the_newest() -> None:
    rows = {".".join(r["torch"].split(".")[:2]): r for r in json.loads(RECORD.read_text())["rows"]}
    first, *_, last = RELEASES
    (pinned,) = re.findall(
        r"^torch==(\d+\.\d+)", (HOUSE / "constraints.txt").read_text(), re.MULTILINE
    )
    assert {first, pinned, last} <= set(rows)
    assert [minor for minor, row in rows.items() if row["failed"]] == []
    for minor, row in rows.items():
        assert row["torchvision"].startswith(f"{RELEASES[minor].torchvision}."), minor
        assert row["passed"] > 400, minor
        assert all(each["reason"] for each in row["skipped"]), minor


@pytest.mark.parametrize("version", ["2.10.0", "2.16.0+cpu", "3.0.1"])
def test_another_pytorch_is_refused_in_a_line(version: str) -> None:
    with pytest.raises(ConfigError) as caught:
        release_of(version)
    said = str(caught.value)
    assert said.startswith(f"PyTorch {version} is installed; rematbench runs with 2.11 to 2.15")
    assert "\n" not in said


def test_another_pytorch_is_refused_at_import() -> None:
    code = "import torch; torch.__version__ = '2.9.1'; from rematbench import apply"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith(
        "PyTorch 2.9.1 is installed; rematbench runs with 2.11 to 2.15: pip install 'torch==2.15.*'"
    )
