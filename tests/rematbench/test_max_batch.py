"""The largest batch within a memory: the search, its answers on a small network, mistakes."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from helpers import without_progress
from job_settings import settings_of
from rich.console import Console

from rematbench.base.errors import ConfigError
from rematbench.cli import terminal
from rematbench.cli.app import run_job
from rematbench.cli.max_batch import (
    Probe,
    Question,
    answer,
    cost_limit,
    largest,
    line,
    main,
    probe,
    question,
)
from rematbench.jobs.settings import Settings
from rematbench.rows import shown
from rematbench.rows.row import COLUMNS, find_rows, make_row
from rematbench.worker.worker import the_worker

NETWORK = """
import torch
from torch import nn

def deep(batch_size=1, resolution=4):
    width = resolution * resolution
    layers = [layer for _ in range(6) for layer in (nn.Linear(width, width), nn.Tanh())]
    module = nn.Sequential(*layers)
    batch = (torch.randn(batch_size, width),)
    return module, batch, lambda module, x: module(x).sum()

def fixed(batch_size=1):
    return deep(3)
"""
TARGETS = {"checkpoint_all": "checkpoint_all.CheckpointAll"}
TARGETS |= {"chen_sqrt": "chen.ChenSqrt", "chen_greedy": "chen.ChenGreedy"}


@pytest.fixture(scope="module", autouse=True)
def _network(tmp_path_factory: pytest.TempPathFactory):
    """A module that the worker can import."""
    folder = tmp_path_factory.mktemp("network")
    (folder / "networks.py").write_text(NETWORK)
    sys.path.insert(0, str(folder))
    the_worker().stop()  # a new one sees the folder
    yield
    sys.path.remove(str(folder))


def settings(strategy: str, target: str = "networks:deep") -> Settings:
    model = {"kind": "python", "name": "python", "target": target, "batch_size": None}
    path = f"strategies.{TARGETS[strategy]}"
    model |= {"resolution": None, "options": {}}
    return settings_of(model, strategy, path, accounting="checkmate")


@pytest.mark.parametrize("guess", [None, 0, 1, 3, 40, 69, 70, 71, 1000])
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 4, 70, 128])
def test_the_search_finds_the_limit(limit: int, guess: int | None) -> None:
    asked: list[int] = []

    def fits(k: int) -> bool:
        asked.append(k)
        return k <= limit

    assert largest(fits, lambda: guess) == limit
    assert len(asked) == len(set(asked))
    if limit:
        assert {limit, limit + 1} <= set(asked)
    if limit == guess == 70:
        assert len(asked) <= 6


def test_without_monotony_the_answer_still_fits_and_its_successor_does_not() -> None:
    fitting = {1, 2, 4, 5, 6, 9, 11, 12}
    found = largest(fitting.__contains__, lambda: None)
    assert found in fitting
    assert found + 1 not in fitting


MEMORY = 60_000


def test_brute_force(tmp_path: Path) -> None:
    asked = Question(MEMORY, "batch_size", least=1, step=1)
    found = {}
    for strategy in TARGETS:
        folder = tmp_path / strategy
        folder.mkdir()
        row = answer(asked, settings(strategy), folder)
        found[strategy] = best = row["batch_size"]
        assert row["status"] == "ok"
        assert list(row) == list(COLUMNS)
        assert json.loads((folder / "row.json").read_text()) == row
        assert (folder / "plan.json").exists()
        extra = row["extra"]
        assert row["peak_bytes"] <= extra["memory_bytes"] == MEMORY
        assert row["cost"] <= extra["cost_limit"]
        assert extra["cost_limit"] == row["checkpoint_all_cost"] + extra["forward_cost"]
        fits = {p["value"]: p["status"] == "ok" for p in extra["max_batch"]["probes"]}
        for value in {best - 1, best + 2} - set(fits):
            where = tmp_path / f"{strategy} {value}"
            fits[value] = probe(asked, settings(strategy), value, where, True).fits
        assert all(fits[value] == (value <= best) for value in fits)
    assert found["chen_greedy"] >= found["chen_sqrt"] > found["checkpoint_all"] > 2


def test_the_line_through_two_peaks_says_where_to_look() -> None:
    asked = Question(10_000, "batch_size", 1, 1)
    probes: dict[int, Probe] = {}

    def fits(k: int) -> bool:  # resident 90, 30 for each example but the first two
        peak = 90 + 30 * max(k, 2)
        status = "ok" if peak <= asked.memory else "infeasible"
        probes[k] = Probe(k, status, None, make_row(peak_bytes=peak), 0.0)
        return probes[k].fits

    assert fits(1)
    assert line(asked, probes) is None  # of one peak
    assert fits(2)
    assert line(asked, probes) is None  # of none that grows
    assert fits(3)
    assert line(asked, probes) == 330
    assert line(replace(asked, vary="resolution"), probes) is None
    assert largest(fits, lambda: line(asked, probes)) == 330
    assert sorted(probes) == [1, 2, 3, 326, 330, 331]


def test_resolution_in_steps(tmp_path: Path) -> None:
    asked = Question(2_000_000, "resolution", least=2, step=3)
    row = answer(asked, settings("checkpoint_all"), tmp_path)
    best = int(row["resolution"])
    assert best % 3 == 2
    found = row["extra"]["max_batch"]
    statuses = {p["value"]: p["status"] for p in found["probes"]}
    assert (found["value"], found["equation_11"]) == (best, None)
    assert (statuses[best], statuses[best + 3]) == ("ok", "infeasible")


def test_nothing_fits(tmp_path: Path) -> None:
    row = answer(Question(100, "batch_size", 1, 1), settings("chen_sqrt"), tmp_path)
    assert (row["status"], row["batch_size"]) == ("infeasible", 1)
    assert row["extra"]["max_batch"]["value"] is None
    assert [p["status"] for p in row["extra"]["max_batch"]["probes"]] == ["infeasible"]


def test_one_more_forward_pass_is_the_limit(tmp_path: Path, monkeypatch) -> None:
    job = replace(settings("chen_sqrt"), model=settings("chen_sqrt").model | {"batch_size": 4})
    (tmp_path / "job").mkdir()
    row = run_job(job, tmp_path / "job")
    forward = row["extra"]["forward_cost"]
    backward = row["checkpoint_all_cost"] - forward
    assert cost_limit(row) == 2 * forward + backward
    assert row["checkpoint_all_cost"] < row["cost"] < cost_limit(row)
    monkeypatch.setattr("rematbench.cli.max_batch.cost_limit", lambda row: row["cost"] * 0.99)
    (tmp_path / "search").mkdir()
    row = answer(Question(MEMORY, "batch_size", 1, 1), settings("chen_sqrt"), tmp_path / "search")
    assert row["status"] == "infeasible"
    assert "is over the limit of" in row["reason"]
    assert [p["status"] for p in row["extra"]["max_batch"]["probes"]] == ["over_cost_limit"]


def test_measured_beside_predicted(tmp_path: Path) -> None:
    job = replace(settings("chen_sqrt"), device="cpu", accounting="full")
    row = answer(Question(MEMORY, "batch_size", 1, 1), job, tmp_path)
    found = row["extra"]["max_batch"]
    assert found["measured_value"] == found["value"] == row["batch_size"]  # no workspaces here
    assert row["measured_peak_bytes"] == row["peak_bytes"] <= MEMORY
    assert all(probe["measured_peak_bytes"] is None for probe in found["probes"])
    assert found["measured_probes"][0]["measured_peak_bytes"] > 0
    assert {probe["status"] for probe in found["measured_probes"]} == {"ok", "infeasible"}


def test_more_measured_than_simulated(tmp_path: Path) -> None:
    """Without parameters in the accounting a plan looks leaner than it is."""
    job = replace(settings("chen_sqrt"), device="cpu", accounting="activations")
    row = answer(Question(MEMORY, "batch_size", 1, 1), job, tmp_path)
    found = row["extra"]["max_batch"]
    assert found["measured_value"] < found["value"]
    assert row["measured_peak_bytes"] <= MEMORY
    assert "over_memory" in {probe["status"] for probe in found["measured_probes"]}


BAD = [
    ({"memory": 0}, "memory=0: give bytes such as 17179869184 or 16GiB"),
    ({"memory": None}, "memory=None: give bytes"),
    ({"memory": "8 bananas"}, "memory=8 bananas: give bytes"),
    ({"vary": "depth"}, "vary=depth: unknown; use one of batch_size, resolution"),
    ({"least": 0}, "least=0: give a whole number, 1 or more"),
    ({"step": "x"}, "step=x: give a whole number, 1 or more"),
    ({"batch_size": 8}, "batch_size=8: the search decides it; give least and step instead"),
    ({"budget": 0.5}, "budget=0.5: the search decides it; give memory instead"),
]


@pytest.mark.parametrize(("given", "said"), BAD)
def test_bad_questions(given: dict[str, object], said: str) -> None:
    good = {"memory": "2kB", "vary": "batch_size", "least": None, "step": None}
    good |= {"batch_size": None, "resolution": None, "budget": None}
    job = settings("chen_sqrt")
    assert question(good, job) == Question(2000, "batch_size", 1, 1)
    assert question(good | {"vary": "resolution"}, job) == Question(2000, "resolution", 32, 32)
    with pytest.raises(ConfigError, match=said):
        question(good | given, job)


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command in an empty folder; gives exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rematbench-max-batch", *arguments])
        console = Console(stderr=True, highlight=False)
        for module in (shown, terminal):
            monkeypatch.setattr(module, "console", lambda: console)
        code = 0
        try:
            main()
        except SystemExit as leaving:
            code = leaving.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


DEEP = ("model=python", "model.target=networks:deep", "threads=1")
MISTAKES = [
    (["memory=0.5"], "memory=0.5: give bytes such as 17179869184 or 16GiB"),
    (["model=unit_chain"], "vary=batch_size: model=unit_chain has no batch_size"),
    ([*DEEP, "model.target=networks:fixed"], "the model's graph does not depend on it"),
    ([*DEEP, "+model.options.depth=3"], "its options are: batch_size, resolution"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_mistakes_are_one_line_and_exit_2(call, arguments: list[str], said: str) -> None:
    code, out, err = call(*arguments)
    assert (code, out) == (2, "")
    (line,) = without_progress(err).splitlines()
    assert line.startswith("rematbench-max-batch: ")
    assert said in line
    assert not list(Path("runs/jobs").rglob("row.json"))


def test_a_sweep_and_its_cache(call) -> None:
    sweep = (
        "-m",
        *DEEP,
        f"memory={MEMORY}",
        "model.resolution=6",
        "strategy=checkpoint_all,chen_sqrt",
    )
    rows = []
    for folder in ("a", "b"):
        assert call(*sweep, f"hydra.sweep.dir={folder}")[0] == 0
        rows.append(find_rows([Path(folder)]))
        assert len(rows[-1]) == 2  # probes leave no rows
    assert [row["batch_size"] for row in rows[0]] == [row["batch_size"] for row in rows[1]]
    assert all(row["extra"]["cached"] for row in rows[1])
    assert all(row["extra"]["accounting"] == "checkmate" for row in rows[1])
