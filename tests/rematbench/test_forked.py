"""Workers that tests fork beside those that a command starts: they say the same."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from forked import FORKS, READ_AT_THE_START, STARTED, Forked, Subprocess, is_as_started
from job_settings import settings_of

from rematbench.rows.row import Row
from rematbench.worker import worker

TIMES = {"utc", "plan_seconds", "plan_cpu_seconds", "capture_seconds"}
ANYTIME = "rematbench.strategies.anytime.planner.Anytime"


@pytest.fixture(autouse=True)
def as_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever libraries of earlier tests have set."""
    for name in [name for name in os.environ if name.startswith(READ_AT_THE_START)]:
        monkeypatch.delenv(name)
    for name, value in STARTED.items():
        monkeypatch.setenv(name, value)


def row(folder: Path, process: type) -> Row:
    """Of a model whose graph depends on the order of a set of words, as its hashes give it.

    Args:
        process: what the worker is to run as.
    """
    (folder / "mine.py").write_text(
        "import torch\n"
        "def make():\n"
        "    sides = {'one': 3, 'two': 4, 'three': 5, 'four': 6}\n"
        "    first, *rest = [sides[word] for word in set(sides)]\n"
        "    layers = torch.nn.Sequential()\n"
        "    for last, side in zip([first, *rest], [*rest, first]):\n"
        "        layers.append(torch.nn.Linear(last, side))\n"
        "    return layers, (torch.randn(2, first),), lambda module, x: module(x).sum()\n"
    )
    model = {"name": "python", "kind": "python", "target": "mine:make"}
    mine = worker.Worker()
    try:
        found = mine.run(settings_of(model, "anytime", ANYTIME), folder, lambda phase: None)
        assert type(mine._process) is process
        return found
    finally:
        mine.stop()


def said(found: Row) -> Row:
    """All of a row but when it was made, and how long that took."""
    whole = found | found["extra"]
    return {name: whole[name] for name in whole.keys() - TIMES - {"extra"}}


@pytest.mark.skipif(not FORKS, reason="workers are forked on Linux without a GPU")
def test_a_forked_worker_says_what_a_started_one_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert worker.subprocess is Subprocess
    forked = row(tmp_path, Forked)
    monkeypatch.setattr(worker, "subprocess", subprocess)
    started = row(tmp_path, subprocess.Popen)
    assert forked["status"] == "ok"
    assert said(forked) == said(started)


def test_what_is_read_at_the_start_is_not_changed_by_forking() -> None:
    one = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    assert is_as_started(os.environ | one | {"HOME": "/elsewhere"})
    assert not is_as_started(os.environ | one | {"OMP_NUM_THREADS": "2"})
    assert not is_as_started(os.environ | one | {"PYTHONHASHSEED": "1"})
    assert not is_as_started(os.environ | one | {"LC_ALL": "POSIX"})
