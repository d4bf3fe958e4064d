"""The code in docs/train.md runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from committed import figures as committed_figures

DOCUMENT = Path(__file__).parents[2] / "docs" / "train.md"


def test_the_code_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"^```python\n(.*?)^```", DOCUMENT.read_text(), re.MULTILINE | re.DOTALL)
    names: dict[str, object] = {}
    exec(code, names)
    assert "simulated peak" in capsys.readouterr().out
    assert (tmp_path / "net.plan.json").is_file()
    step, model = names["step"], names["model"]
    assert 0 < step.overhead < 0.5
    assert step.trace.peak_bytes <= 0.8 * step.checkpoint_all.peak_bytes
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_each_loop_names_a_test_that_exists() -> None:
    """In both tables, and in what is said of bits."""
    text = DOCUMENT.read_text()
    for title in ("Loops that it was tried with", "What breaks it"):
        (section,) = re.findall(rf"^## {title}$(.*?)^## ", text, re.MULTILINE | re.DOTALL)
        rows = [row for row in section.splitlines() if row.startswith("| ")]
        assert all("[test](" in row.rpartition(" | ")[2] for row in rows[1:])
    named = re.findall(r'\[test\]\(\.\./tests/training/(test_\w+\.py) "(test_\w+)"\)', text)
    assert len(named) > 30
    for file, test in named:
        code = (Path(__file__).parent / file).read_text()
        assert re.search(rf"^def {test}\(", code, re.MULTILINE), f"{file}::{test}"


def test_what_compiling_takes_is_recorded() -> None:
    found = committed_figures("compiling").items()
    shares = [value for name, value in found if name.endswith("ours over aot_eager's")]
    text = f"four networks: {min(shares):.2f} to {max(shares):.2f} of its CPU seconds"
    assert len(shares) == 4
    assert text in DOCUMENT.read_text()


def test_what_ranks_take_is_recorded() -> None:
    figures = committed_figures("ranks")
    peaks = [value for name, value in figures.items() if name.endswith(": peak / budget")]
    slower = [value for name, value in figures.items() if "checkpoint-all: time" in name]
    assert len(peaks) == 12  # of two and four ranks, sharded in two ways
    assert len(slower) == 4
    assert not any(value for name, value in figures.items() if "not FSDP2's, bitwise" in name)
    text = " ".join(DOCUMENT.read_text().split())
    assert f"each rank's peak at most {max(peaks):.2f} of the budget" in text
    assert f"{min(slower):.2f} to {max(slower):.2f} times FSDP2's own time" in text


def test_what_is_measured_is_recorded() -> None:
    figures = committed_figures("step")
    peaks = [value for name, value in figures.items() if name.endswith(": peak / budget, the most")]
    planned = sum(value for name, value in figures.items() if "budgets with a plan" in name)
    apart = max(value for name, value in figures.items() if name.endswith("overheads apart"))
    bits = sum(value for name, value in figures.items() if name.endswith("off by a bit"))
    assert len(peaks) == 11  # ten models, and lengths
    assert max(peaks) <= 1
    assert bits == 0
    text = " ".join(DOCUMENT.read_text().split())
    seconds = figures["lengths: planning a further one, the most"]
    above = figures["lengths: overhead above a minute's plan, of 10"]
    assert f"within the budget in {planned:g} of 150" in text
    assert f"at most {apart:.1f} points apart" in text
    assert (
        f"takes {seconds:.2f} s to plan at most ({figures['lengths: ops of a step']:g} ops)" in text
    )
    assert f"at most {above:.1f} points above" in text
