"""Cached jobs: never an old number, whatever changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rematbench.cli import fit
from rematbench.cli.app import main
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_graph
from rematbench.jobs.settings import Settings
from rematbench.rows.row import Row, find_rows
from rematbench.worker import cache
from rematbench.worker.worker import Worker, the_worker

HOUSE = Path(__file__).parents[2]
STRATEGY = '''
"""A strategy of somebody's own."""
from dataclasses import dataclass
from helper_of_a_strategy import VARIANT
from rematbench.graphs.plan import program_order
from rematbench.strategies.base import Solution, Traits

@dataclass(frozen=True)
class Own:
    """Plans nothing."""
    traits = Traits("yes", "no", "no")
    def plan(self, problem):
        return Solution(program_order(problem.graph), variant=VARIANT)
'''
MODEL = """
import torch
from torch import nn
from parts_of_a_model import WIDTH

def make(batch_size=8):
    layers = nn.Sequential(nn.Linear(16, WIDTH), nn.ReLU(), nn.Linear(WIDTH, 1))
    return layers, (torch.randn(batch_size, 16),), lambda module, x: module(x).sum()
"""
Job = Callable[..., Row]


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Run a job in its own folder and give its row; the cache is for all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)

    def run(*arguments: str, command: Callable[[], None] = main) -> Row:
        number = len(list(tmp_path.glob("run*")))
        folder = f"hydra.run.dir={tmp_path}/run{number}"
        given = [*arguments, folder, f"cache={tmp_path}/cache"]
        monkeypatch.setattr(sys, "argv", ["rematbench", *given])
        command()
        (row,) = find_rows([tmp_path / f"run{number}"])
        return row

    return run


@pytest.fixture
def own(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, str]:
    """A strategy of somebody's own that imports a helper."""
    for name in ("own_strategy", "helper_of_a_strategy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "own_strategy.py").write_text(STRATEGY)
    (tmp_path / "helper_of_a_strategy.py").write_text("VARIANT = 'first'\n")
    the_worker().stop()  # a new one sees the folder
    return "model=unit_chain", "strategy._target_=own_strategy.Own"


def cached(row: Row) -> bool:
    return bool(row["extra"].get("cached"))


def test_a_job_is_kept_and_its_files_with_it(job: Job, tmp_path: Path) -> None:
    given = ("model=unit_chain", "strategy=ap_sqrt")
    first, second = job(*given), job(*given)
    assert (cached(first), cached(second)) == (False, True)
    for name in cache.FILES:
        contents = [(tmp_path / run / name).read_bytes() for run in ("run0", "run1")]
        assert contents[0] == contents[1]


def test_a_changed_helper_of_a_strategy_is_run(job: Job, own, tmp_path: Path) -> None:
    """And what was before is found again; no entry replaces another."""
    helper = tmp_path / "helper_of_a_strategy.py"
    seen = []
    for variant in ("first", "other", "first"):
        helper.write_text(f"VARIANT = '{variant}'\n")
        os.utime(helper, (1e9, 1e9))  # nor does Python's own cache (*.pyc) hide it
        seen += [(row["variant"], cached(row)) for row in (job(*own), job(*own))]
    assert seen == [
        *(("first", False), ("first", True)),
        *(("other", False), ("other", True)),
        *(("first", True), ("first", True)),
    ]


def test_a_changed_docstring_is_no_change(job: Job, own, tmp_path: Path) -> None:
    assert not cached(job(*own))
    text = STRATEGY.replace("Plans nothing", "Plans nothing at all").replace("@", "\n\n@")
    (tmp_path / "own_strategy.py").write_text(text)
    assert cached(job(*own))


def test_the_same_name_in_another_folder_is_another_module(
    job: Job, own, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != str(tmp_path)])
    assert job(*own)["variant"] == "first"
    other = tmp_path / "other"
    other.mkdir()
    (other / "own_strategy.py").write_text(STRATEGY)
    (other / "helper_of_a_strategy.py").write_text("VARIANT = 'third'\n")
    monkeypatch.chdir(other)
    there = job(*own)
    assert (there["variant"], cached(there)) == ("third", False)
    monkeypatch.chdir(tmp_path)
    assert cached(job(*own))
    # Of two that differ nobody should guess which one it will be.
    monkeypatch.syspath_prepend(other)
    assert not cached(job(*own))


def test_a_module_that_changes_while_its_job_runs_is_not_kept(
    job: Job, own, tmp_path: Path
) -> None:
    touching = STRATEGY.replace(
        "        return Solution(",
        "        import os, helper_of_a_strategy as helper\n"
        "        os.utime(helper.__file__)\n"
        "        return Solution(",
    )
    (tmp_path / "own_strategy.py").write_text(touching)
    assert not cached(job(*own))
    assert not cached(job(*own))
    assert not list(tmp_path.glob("cache/jobs/*/*/*"))


def test_an_input_that_changes_while_its_job_runs_is_not_kept(
    job: Job, own, tmp_path: Path
) -> None:
    write_graph(tmp_path / "g.json", unit_chain(4))
    write_graph(tmp_path / "h.json", unit_chain(5))
    swapping = STRATEGY.replace(
        "        return Solution(",
        "        import os; os.path.exists('h.json') and os.replace('h.json', 'g.json')\n"
        "        return Solution(",
    )
    (tmp_path / "own_strategy.py").write_text(swapping)
    given = ("model=graph_file", f"model.path={tmp_path}/g.json", own[1])
    assert job(*given)["ops"] == 9
    again = job(*given)
    assert (again["ops"], cached(again)) == (11, False)
    assert cached(job(*given))


def test_another_version_of_a_package_is_another_job(
    job: Job, own, monkeypatch: pytest.MonkeyPatch
) -> None:
    job(*own)
    assert cached(job(*own))
    monkeypatch.setattr("rematbench.worker.manifest.installed_version", lambda name: "0.0")
    assert not cached(job(*own))


def damaged(entry: bytes) -> Iterator[bytes]:
    """An entry in ways that a full disk or a person may leave it."""
    yield from (b"", b"{", b"[]", b"\x1f\x8b\x08", b'{"format": "rematbench-job"}')
    yield entry[: len(entry) // 2]
    for key, value in (
        *(("row", {}), ("manifest", {}), ("files", {"row.json": ""}), ("files", 3)),
        *(("files", {"graph.json.gz": "=?"}), ("manifest", {"modules": 3})),
    ):
        yield json.dumps(json.loads(entry) | {key: value}).encode()


def test_a_damaged_entry_goes_with_one_warning(
    job: Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("model=unit_chain", "strategy=ap_sqrt")
    job(*given)
    (entry,) = tmp_path.glob("cache/jobs/*/*/*.json")
    whole = entry.read_bytes()
    for content in damaged(whole):
        entry.write_bytes(content)
        capsys.readouterr()
        assert not cached(job(*given)), content
        said = capsys.readouterr().err
        assert said.count("dropped from the cache") == said.count("\n") == 1, said
        cache._warned.clear()
    assert cached(job(*given))
    assert not capsys.readouterr().err


def test_a_changed_model_gives_its_new_peak(job: Job, tmp_path: Path) -> None:
    """With each command, whether the model itself has changed, or what it imports."""
    (tmp_path / "edited_model.py").write_text(MODEL)
    parts = tmp_path / "parts_of_a_model.py"
    parts.write_text("WIDTH = 32\n")
    the_worker().stop()
    given = ("model=python", "model.target=edited_model:make")
    first = job(*given)
    parts.write_text("WIDTH = 64\n")
    alone = [sys.executable, "-m", "rematbench", *given, "hydra.run.dir=alone", "cache=cache"]
    done = subprocess.run(alone, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (second,) = find_rows([Path("alone")])
    (tmp_path / "edited_model.py").write_text(MODEL.replace("nn.ReLU()", "nn.ReLU(), nn.Tanh()"))
    third = job(*given, "batch_size=8", "memory=1GiB", command=fit.main)
    assert first["peak_bytes"] < second["peak_bytes"] < third["peak_bytes"]
    assert not any(map(cached, (first, second, third)))
    # What another command has made is found, and so is what was before.
    (tmp_path / "edited_model.py").write_text(MODEL)
    assert cached(again := job(*given))
    assert again["peak_bytes"] == second["peak_bytes"]
    parts.write_text("WIDTH = 32\n")
    assert job(*given)["peak_bytes"] == first["peak_bytes"]


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        ("null", "without a cache (cache=null) a second run repeats them"),
        ("cache", "finished jobs are kept"),
    ],
)
def test_an_interrupted_sweep_says_what_is_kept(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kept: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Worker.run
    given = ["-m", "model=unit_chain", "model.length=3,4,5", "hydra.sweep.dir=sweep"]

    def interrupted(worker: Worker, settings: Settings, folder: Path, say: Callable) -> Row:
        if settings.model["length"] == 4:
            raise KeyboardInterrupt
        return run(worker, settings, folder, say)

    cached_before = []
    for _ in range(2):
        monkeypatch.setattr(Worker, "run", interrupted)
        monkeypatch.setattr(sys, "argv", ["rematbench", *given, f"cache={kept}"])
        with pytest.raises(SystemExit) as leaving:
            main()
        assert leaving.value.code == 130
        assert said in " ".join(capsys.readouterr().err.split())
        cached_before.append(cached(find_rows([tmp_path / "sweep" / "0"])[0]))
    assert cached_before == [False, kept != "null"]  # what it said is true
