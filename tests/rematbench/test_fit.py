"""The cheapest plan or the largest batch for a memory, and code that runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rematbench import fit
from rematbench.row import COLUMNS
from rematbench.worker import the_worker

NETWORK = """
import torch
from torch import nn

def deep(batch_size=64):
    torch.manual_seed(0)
    layers = [layer for _ in range(8) for layer in (nn.Linear(16, 16), nn.Tanh())]
    return nn.Sequential(*layers), (torch.randn(batch_size, 16),), lambda m, x: m(x).sum()
"""


Call = Callable[..., tuple[int, str, str, Path]]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a model that the worker can import."""
    folder = tmp_path_factory.mktemp("fitting")
    (folder / "fitted_network.py").write_text(NETWORK)
    sys.path.insert(0, str(folder))
    the_worker().stop()  # a new one sees the folder
    yield folder
    sys.path.remove(str(folder))


@pytest.fixture
def call(
    place: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Call:
    """Run the command; gives exit code, standard output and error, and the run folder."""
    monkeypatch.chdir(tmp_path)

    def run(*keys: str) -> tuple[int, str, str, Path]:
        folder = tmp_path / "run"
        given = ["cache=null"]
        if not any(key.startswith("model=") for key in keys):
            given += ["model=python", "model.target=fitted_network:deep", "batch_size=64"]
        given += ["costmodel=flops", "time_limit=5", f"hydra.run.dir={folder}"]
        monkeypatch.setattr(sys, "argv", ["rematbench-fit", *given, *keys])
        code = 0
        try:
            fit.main()
        except SystemExit as leaving:
            code = int(leaving.code or 0)
        told = capsys.readouterr()
        return code, told.out, told.err, folder

    return run


def test_the_cheapest_plan_and_its_code(call: Call, place: Path) -> None:
    keys = ("memory=45kB", "strategy=linearized_sqrt", "strategies=[chen_greedy]")
    code, out, _, folder = call(*keys)
    assert code == 0
    row = json.loads((folder / "row.json").read_text())
    assert set(row) == set(COLUMNS)
    assert row["status"] == "ok"
    tried = row["extra"]["fit"]["tried"]
    assert [t["strategy"] for t in tried] == ["checkpoint_all", "linearized_sqrt", "chen_greedy"]
    assert row["peak_bytes"] <= 45_000 < row["checkpoint_all_peak_bytes"]
    assert row["overhead"] == min(t["overhead"] for t in tried if t["status"] == "ok")
    assert (folder / "train.py").read_text() in out
    environment = {**os.environ, "PYTHONPATH": f"{Path(fit.__file__).parents[1]}:{place}"}
    done = subprocess.run(
        [sys.executable, folder / "train.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(done.stdout.split()) == 3  # losses


SMALL = ("model.options.layers=2", "model.options.width=16", "model.options.heads=2")
SENTENCES = ("model.options.sequence_length=8", "model.options.vocabulary=16", "batch_size=16")
PRINTED = [
    (),
    ("dtype=bfloat16",),
    ("dtype=bfloat16", "optimizer=adamw", "memory=150kB"),
    ("optimizer=momentum", "largest_batch=true", "memory=30kB"),
    ("model=transformer_lm", *SMALL, *SENTENCES, "memory=250kB"),
    ("model=transformer_lm", *SMALL, *SENTENCES, "memory=150kB", "dtype=bfloat16"),
    ("model=gpt2", "model.size=small", "memory=1GiB", "dtype=bfloat16"),
    ("memory=1GiB", "dtype=float64"),
]


@pytest.mark.parametrize("keys", PRINTED, ids=" ".join)
def test_what_is_printed_runs(keys: tuple[str, ...], call: Call, place: Path) -> None:
    pytest.importorskip("transformers", reason="the extra models")
    given = ("memory=45kB", "strategy=linearized_greedy", "strategies=[]")
    code, _, err, folder = call(*given, *keys)
    assert code == 0, err
    row = json.loads((folder / "row.json").read_text())
    assert row["status"] == "ok", row["reason"]
    environment = {**os.environ, "PYTHONPATH": f"{Path(fit.__file__).parents[1]}:{place}"}
    done = subprocess.run(
        [sys.executable, folder / "train.py"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 3  # losses


def test_ordinary_training_is_enough(call: Call) -> None:
    _, out, _, folder = call("memory=1GiB", "reserve=1MiB")
    row = json.loads((folder / "row.json").read_text())
    assert row["strategy"] == "checkpoint_all"
    assert row["extra"]["fit"]["reserve_bytes"] == 2**20
    assert "ordinary training fits" in out


def test_the_largest_batch(call: Call) -> None:
    keys = ("memory=30kB", "strategy=linearized_greedy", "strategies=[]", "largest_batch=true")
    _, out, _, folder = call(*keys, "batch_size=null")
    row = json.loads((folder / "row.json").read_text())
    plain, best = row["extra"]["fit"]["tried"]
    assert row["batch_size"] == best["batch_size"] > plain["batch_size"]
    assert row["extra"]["accounting"] == "full"
    assert f"batch {row['batch_size']}" in out


def test_nothing_fits(call: Call) -> None:
    code, out, _, folder = call("memory=2", "strategy=linearized_sqrt", "strategies=[]")
    row = json.loads((folder / "row.json").read_text())
    assert (code, row["status"]) == (0, "infeasible")
    assert not (folder / "train.py").exists()
    assert "apply(" not in out


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("memory=lots", "give bytes such as"),
        ("reserve=9GiB", "leaves nothing of memory=8GiB"),
        ("budget=0.5", "budget=0.5: give memory"),
        ("strategies=[magic]", "strategies: magic: unknown; it may be one of"),
        ("strategies=magic", "strategies=magic: give a list"),
        ("largest_batch=7", "largest_batch=7: give true or false"),
    ],
)
def test_mistakes(key: str, message: str, call: Call) -> None:
    code, out, error, _ = call(key)
    assert (code, out) == (2, "")
    assert message in error


@pytest.mark.gpu
def test_on_a_device(call: Call) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    code, said, _, folder = call("memory=1GiB", "device=cuda", "costmodel=profiled")
    assert code == 0, said
    row = json.loads((folder / "row.json").read_text())
    assert row["status"] == "ok"
    assert row["gradient_bitwise"]
    assert row["measured_peak_bytes"] <= 2**30
