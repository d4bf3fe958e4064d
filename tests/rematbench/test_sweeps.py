"""Sweeps that last: killed and resumed, with jobs that crash or grow, under every launcher."""

from __future__ import annotations

import csv
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import chain, repeat
from pathlib import Path

import pytest
from enough import AMPLE
from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.cli import progress, terminal
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import write_plan
from rematbench.graphs.plan import program_order
from rematbench.rows.row import Row, find_rows
from rematbench.strategies.anytime_joint.planner import AnytimeJoint
from rematbench.strategies.base import Problem

HOUSE = Path(__file__).parents[2]
STRATEGY = """
import os, signal, time
from dataclasses import dataclass
from pathlib import Path
from rematbench.graphs.plan import program_order
from rematbench.strategies.base import Solution, Traits

@dataclass(frozen=True)
class Odd:
    number: int = 0
    traits = Traits("yes", "no", "no")
    def plan(self, problem):
        with open("began.txt", "a") as file:
            file.write(f"{self.number} {os.getpid()}\\n")
        def is_told_to(do):  # not read: what a job reads is part of what its row is found by
            return Path(f"{do}{self.number}").exists()

        if is_told_to("crash"):
            os.kill(os.getpid(), signal.SIGSEGV)
        if is_told_to("hang"):
            time.sleep(300)
        hoard = []
        while is_told_to("grow"):
            hoard.append(b"x" * 10_000_000)
            time.sleep(0.001)
        return Solution(program_order(problem.graph))
"""
ODD = ("model=unit_chain", "strategy._target_=odd_sweep_strategy.Odd")
NETWORK = """
import torch
from torch import nn

def deep(batch_size):
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU()]
    for _ in range(4):
        layers += [nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU()]
    network = nn.Sequential(*layers)
    images = torch.randn(batch_size, 3, 16, 16)
    return network, (images,), lambda module, images: module(images).square().mean()
"""
LAUNCHERS = ("joblib", "slurm_local", "ray")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "odd_sweep_strategy.py").write_text(STRATEGY)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "rematbench", "-m", *arguments, "hydra.sweep.dir=runs/sweep"]


def environment() -> dict[str, str]:
    return os.environ | {"PYTHONPATH": os.getcwd()}


def sweep(*arguments: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        command(*arguments), env=environment(), capture_output=True, text=True, timeout=AMPLE
    )
    assert done.returncode == 0, done.stderr
    return done


def rows() -> list[Row]:
    return find_rows([Path("runs/sweep")])


def marks(row: Row) -> tuple[str | None, str | None]:
    """Who asked for a row."""
    return row["extra"].get("experiment"), row["extra"].get("group")


def tell(*what: str) -> None:
    """Job 0 to do the first, job 1 the second, and so on."""
    for number, do in enumerate(what):
        for other in ("crash", "hang", "grow"):
            Path(f"{other}{number}").unlink(missing_ok=True)
        if do != "plan":
            Path(f"{do}{number}").touch()


def began() -> list[tuple[int, int]]:
    """The numbers of the jobs that were planned, and in which process, in order."""
    path = Path("began.txt")
    lines = path.read_text().splitlines() if path.exists() else []
    return [(int(number), int(pid)) for number, pid in (line.split() for line in lines)]


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + AMPLE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def gone(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return not status.exists() or "zombie" in status.read_text()


def test_a_killed_sweep_goes_on_where_it_was(place: Path) -> None:
    tell("plan", "plan", "plan", "hang", "plan")
    odd = (*ODD, "+strategy.number=0,1,2,3,4")
    running = subprocess.Popen(command(*odd), env=environment(), stderr=subprocess.DEVNULL)
    wait_for(lambda: len(began()) == 4)
    running.kill()
    running.wait()
    wait_for(lambda: gone(began()[-1][1]))  # its worker does not stay behind
    assert [row["status"] for row in rows()] == ["ok"] * 3
    tell("plan", "plan", "plan", "plan", "plan")
    said = sweep(*odd).stderr
    assert [number for number, _ in began()] == [0, 1, 2, 3, 3, 4]  # none of the finished again
    assert [row["status"] for row in rows()] == ["ok"] * 5
    assert [bool(row["extra"].get("cached")) for row in rows()] == [True] * 3 + [False] * 2
    assert "[3/5]" in said
    assert re.search(r"\[4/5, about \d+ (s|min) left\]", said)
    with Path("runs/sweep/leaderboard.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 5


def test_a_crash_and_exhausted_memory_are_rows(place: Path) -> None:
    tell("plan", "crash", "grow", "hang", "plan")
    limits = {"0,1,2": AMPLE, "3": 10, "4": AMPLE}  # only who hangs has to reach it
    listed = [f"{{+strategy.number: '{n}', job_time_limit: {s}}}" for n, s in limits.items()]
    sweeps = f"# @package _global_\nhydra: {{sweeper: {{sweeps: [{', '.join(listed)}]}}}}\n"
    Path("conf/experiment").mkdir(parents=True)
    Path("conf/experiment/limited.yaml").write_text(sweeps)
    odd = (*ODD, "time_limit=600")
    sweep("--config-dir=conf", "experiment=limited", *odd, "job_memory_limit=700MB")
    found = rows()
    wanted = ["ok", "failed", "out_of_memory", "time_limit", "ok"]
    assert [row["status"] for row in found] == wanted
    assert f"signal {int(signal.SIGSEGV)}" in found[1]["reason"]
    assert "job_memory_limit=700000000" in found[2]["reason"]
    assert "job_time_limit=10" in found[3]["reason"]
    # What ended by accident, or at a limit of the job's, runs again; the rest does not.
    tell("plan", "plan", "plan", "plan", "plan")
    sweep(*odd, "+strategy.number=0,1,2,3,4")
    assert [number for number, _ in began() if number != 3] == [0, 1, 2, 4, 1, 2]
    assert began()[-1][0] == 3  # at first it may have been ended before it began
    assert [row["status"] for row in rows()] == ["ok"] * 5


@pytest.mark.parametrize("name", LAUNCHERS)
def test_launchers_run_jobs_side_by_side_and_resume(place: Path, name: str) -> None:
    tell("plan", "crash", "plan")
    experiment = "# @package _global_\nhydra: {sweeper: {sweeps: [{group: odd}]}}\n"
    Path("conf/experiment").mkdir(parents=True)
    Path("conf/experiment/mine.yaml").write_text(experiment)
    jobs = ("--config-dir=conf", "experiment=mine", *ODD, "+strategy.number=0,1,2")
    jobs = (*jobs, f"launch={name}")
    if name == "ray":
        jobs = (*jobs, "hydra.launcher.ray.remote.num_cpus=1")  # two at once, on two cores
    sweep(*jobs)
    assert [row["status"] for row in rows()] == ["ok", "failed", "ok"]
    assert [marks(row) for row in rows()] == [("mine", "odd")] * 3
    assert len({pid for _, pid in began()}) >= 2
    tell("plan", "plan", "plan")
    sweep(*jobs)
    assert sorted(number for number, _ in began()) == [0, 1, 1, 2]
    assert [row["status"] for row in rows()] == ["ok"] * 3
    assert [marks(row) for row in rows()] == [("mine", "odd")] * 3


def test_a_launcher_that_loses_jobs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rematbench.cli.sweeps import Sweep
    from rematbench.rows.row import make_row, write_row

    class Losing:
        def launch(self, batch: list[list[str]], initial_job_idx: int) -> list[object]:
            done = [job for job in batch if "seed=1" in job]
            for job in done:
                write_row(
                    Path("runs", job[-1].partition("=")[2], "row.json"), make_row(status="ok")
                )
            raise RuntimeError("the node is down")

    choices = {"experiment": "simrd_fig2"}
    config = OmegaConf.create({"hydra": {"runtime": {"choices": choices}}})
    sweep = Sweep([], None, None, config, Losing())  # type: ignore[arg-type]
    jobs = {4: ["model=unit_chain", "seed=1"], 7: ["model=unit_chain", "seed=2"]}
    found = sweep.launch(Path("runs"), jobs)
    assert {number: row["status"] for number, row in found.items()} == {4: "ok", 7: "failed"}
    assert found[7]["reason"] == "the launcher lost it: the node is down"
    assert found[7]["extra"]["experiment"] == "simrd_fig2"
    with pytest.raises(ConfigError, match=r"no job came back from Losing: .* the node is down"):
        sweep.launch(Path("runs"), {1: ["seed=2"], 2: ["seed=3"]})


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "time", lambda: 100.0)
    assert progress.advance(tmp_path, "0", "ok", False, 0.0) is None  # no sweep
    progress.start(tmp_path, 10)
    assert str(progress.advance(tmp_path, "0", "ok", True, 1.0)) == "1/10"
    assert str(progress.advance(tmp_path, "2", "ok", False, 40.0)) == "2/10, about 8 min left"
    assert str(progress.advance(tmp_path, "1", "failed", False, 70.0)) == "3/10, about 4 min left"
    with (tmp_path / progress.NAME).open("a") as file:
        file.write("3,ok,0,70")  # cut off
    assert progress.read(tmp_path).done == 3


@pytest.mark.parametrize(
    "left",
    [
        pytest.param(b"7,ok,0,1700000000.0", id="half-a-line"),
        pytest.param(b"sweep,12-34", id="half-a-beginning"),
        pytest.param(b"7,ok,\xff\xfe,1,2,12-34\n", id="not-utf-8"),
        pytest.param(b"\x80\x00,\xc3", id="half-a-line-not-utf-8"),
    ],
)
def test_progress_after_a_file_that_is_damaged(tmp_path: Path, left: bytes) -> None:
    """What a sweep that was killed, or a bad disk, left is no part of the next one."""
    progress.start(tmp_path, 16)
    progress.advance(tmp_path, "0", "ok", False, 1.0)
    with (tmp_path / progress.NAME).open("ab") as file:
        file.write(left)
    progress.start(tmp_path, 2)
    assert str(progress.read(tmp_path)) == "0/2"
    assert str(progress.advance(tmp_path, "0", "ok", True, 1.0)) == "1/2"
    assert str(progress.advance(tmp_path, "1", "ok", True, 1.0)) == "2/2"
    assert b"\n\n" not in (tmp_path / progress.NAME).read_bytes()


def test_progress_of_two_sweeps_in_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress.start(tmp_path, 3)
    progress.advance(tmp_path, "0", "ok", True, 1.0)
    first = dict(os.environ)
    progress.start(tmp_path, 2)  # another sweep, or the same once more
    assert str(progress.read(tmp_path)) == "0/2"
    for _ in range(2):  # a job that ran twice is one job
        progress.advance(tmp_path, "1", "ok", True, 1.0)
    assert str(progress.advance(tmp_path, "0", "ok", True, 1.0)) == "2/2"
    with monkeypatch.context() as patched:
        patched.setattr(os, "environ", first)
        assert str(progress.advance(tmp_path, "1", "ok", True, 1.0)) == "2/3"
    # On a machine of a cluster nobody may have told which sweep it is: the latest.
    monkeypatch.delenv("REMATBENCH_SWEEP")
    assert str(progress.read(tmp_path)) == "2/2"


def test_progress_without_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(terminal, "PERIOD", 0.01)
    clock = chain([100.0], repeat(112.4))
    monkeypatch.setattr(terminal, "monotonic", lambda: next(clock))
    said = ""
    with terminal.working("net greedy") as say:
        say("plan")
        deadline = time.monotonic() + AMPLE
        while "net greedy: plan\n" not in said and time.monotonic() < deadline:
            said += capsys.readouterr().err
    assert "  12 s  net greedy: plan\n" in said


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("job_memory_limit=0.5", "job_memory_limit=0.5: give bytes"),
        ("job_memory_limit=much", "job_memory_limit=much: give bytes"),
        ("job_time_limit=0", "job_time_limit=0: give a number of seconds above 0"),
    ],
)
def test_limits_are_checked(place: Path, override: str, said: str) -> None:
    arguments = [sys.executable, "-m", "rematbench", "model=unit_chain", override]
    done = subprocess.run(arguments, env=environment(), capture_output=True, text=True)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr


def test_finished_plans_are_warm_starts(place: Path) -> None:
    (place / "handed_networks.py").write_text(NETWORK)
    model = ("model=python", "model.target=handed_networks:deep", "batch_size=8")
    jobs = (*model, "strategy=anytime_joint", "strategy.gap=0.1")
    jobs = (*jobs, "threads=1", f"time_limit={AMPLE}")  # which none reaches
    known = ("strategy.variant=noop,full", "strategy.known=sweep", "budget=0.5,0.7")
    sweep(*jobs, *known)
    found = rows()
    fits = [[plan["fits"] for plan in row["extra"].get("known", ())] for row in found]
    assert fits == [[], [True], [True, False], [True, True, True]]
    noop, wide_noop, full, wide_full = (row["cost"] for row in found)
    assert wide_full <= full <= noop
    assert wide_full <= wide_noop <= noop
    sweep(*jobs, *known)
    assert all(row["extra"]["cached"] for row in rows())
    assert "conv" not in AnytimeJoint("output").contained


def test_plans_of_another_graph_are_refused(place: Path) -> None:
    write_plan(place / "plan.json", program_order(unit_chain(3)))
    joint = AnytimeJoint(known=[str(place / "plan.json")])
    with pytest.raises(ConfigError, match="is not of this graph"):
        joint.plan(Problem(unit_chain(2), 5, time_limit=1))
