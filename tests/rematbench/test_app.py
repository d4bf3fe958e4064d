"""The command line: rows, files, statuses, cache, sweeps, mistakes."""

from __future__ import annotations

import contextlib
import csv
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import diamond, weights, without_progress
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from omegaconf import DictConfig
from rich.console import Console

from rematbench.cli import terminal
from rematbench.cli.app import main
from rematbench.cli.verify import verify
from rematbench.graphs.builders.synthetic import unit_chain
from rematbench.graphs.files import read_graph, write_graph, write_plan
from rematbench.graphs.ir import Graph, Phase, Value, simple_op
from rematbench.graphs.plan import Compute, Plan, program_order
from rematbench.report.app import main as report
from rematbench.rows import shown
from rematbench.rows.row import COLUMNS, find_rows
from rematbench.worker import ahead

HOUSE = Path(__file__).parents[2]


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    """Run the command in an empty folder; gives exit code, standard output and error."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["rematbench", *arguments])
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


def row_of(folder: str = "runs") -> dict:
    (row,) = find_rows([Path(folder)])
    return row


def test_a_job_prints_its_row_and_writes_its_files(call, tmp_path: Path) -> None:
    code, out, _ = call(
        "model=unit_chain", "strategy=chen_sqrt", "hydra.run.dir=runs/a", "cache=null"
    )
    assert code == 0
    assert {"model=unit_chain", "status=ok", "cost=45", "costmodel=given"} <= set(out.split("\n"))
    names = {path.name for path in Path("runs/a").iterdir()}
    assert {"row.json", "plan.json", "trace.csv", "graph.json.gz"} <= names
    row = row_of()
    assert list(row) == list(COLUMNS)
    assert row["versions"].startswith("python ")
    assert (row["seed"], row["checkpoints"], row["recomputations"]) == (0, 4, 12)
    assert row["extra"]["floor_bytes"] == unit_chain(16).floor_bytes()
    with Path("runs/a/trace.csv").open() as file:
        timeline = list(csv.DictReader(file))
    assert max(int(line["bytes_during"]) for line in timeline) == row["peak_bytes"]


def test_budgets_and_infeasible_rows(call) -> None:
    code, _, _ = call("model=unit_chain", "strategy=chen_sqrt", "budget=0.2", "cache=null")
    assert code == 0
    row = row_of()
    assert (row["status"], row["budget_bytes"], row["peak_bytes"]) == ("infeasible", 3, 8)
    assert "not proven" in row["reason"]


def test_a_budget_below_gradients_that_are_there_once_says_so(call) -> None:
    write_graph("w.graph.json", weights(8))
    budget = "budget=84B"
    call("model=graph_file", "model.path=w.graph.json", "strategy=chen_sqrt", budget)
    row = row_of("runs/jobs")
    assert row["extra"]["once_floor_bytes"] == 85
    assert row["reason"].endswith(
        "every plan in program order below 85 bytes computes some gradient twice: give a larger "
        "budget)"
    )


def test_not_applicable_is_a_row(call) -> None:
    write_graph("d.graph.json", diamond())
    code, _, _ = call("model=graph_file", "model.path=d.graph.json", "strategy=chen_sqrt")
    assert code == 0
    row = row_of("runs/jobs")
    assert (row["status"], row["model"]) == ("not_applicable", "d")
    assert "op 'a' is read by several ops" in row["reason"]


MISTAKES = [
    (["budget=0"], "budget=0: not a budget"),
    (["budget=1.5"], "budget=1.5: not a budget"),
    (["budget='8 bananas'"], "budget=8 bananas: not a budget"),
    (["budget=true"], "budget=True: not a budget"),
    (["strategy=chen_sqr"], "strategy=chen_sqr: unknown; did you mean chen_sqrt?"),
    (["model=vgg17"], "model=vgg17: unknown; did you mean vgg1"),
    (["costmodel=guess"], "costmodel=guess: unknown"),
    (["device=tpu"], "device=tpu: unknown"),
    (["accounting=half"], "accounting=half: unknown; use one of full, activations, checkmate"),
    (["model=graph_file"], "model.path is missing"),
    (["model=graph_file", "model.path=nix"], "nix: cannot be read"),
    (["model=unit_chain", "model.length=0"], "model.length=0: give a whole number, 1 or more"),
    (["model=unit_chain", "device=cpu"], "cannot be executed; use device=none"),
    (["model=unit_chain", "batch_size=4"], "model=unit_chain has no batch_size"),
    (["model=unit_chain", "costmodel=flops"], "needs a captured model"),
    (["time_limit=-1"], "time_limit=-1: give a number of seconds"),
    (["seed=x"], "seed=x: give a whole number"),
    (["strategy.colour=red"], "strategy.colour: strategy=checkpoint_all has no such option"),
    (["budgte=1"], "budgte: there is no such key; did you mean budget?"),
    (["a=["], "a=[: cannot be read; check its commas, brackets and quotes"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES)
def test_mistakes_are_one_line_and_exit_2(call, arguments: list[str], said: str) -> None:
    code, out, err = call(*arguments)
    assert code == 2
    err = without_progress(err)
    assert err.startswith("rematbench: ")
    assert said in err
    assert err.count("\n") == 1
    assert not out
    assert not list(Path().rglob("row.json"))


def test_the_cache_gives_the_same_row_and_force_plans_again(call) -> None:
    job = ("model=unit_chain", "strategy=ap_sqrt")
    for folder, *more in (["a"], ["b"], ["c", "force=true"], ["d", "budget=0.9"]):
        assert call(*job, f"hydra.run.dir=runs/{folder}", *more)[0] == 0
    first, second, third, fourth = (row_of(f"runs/{folder}") for folder in "abcd")
    assert second["extra"].pop("cached") is True
    assert first == second
    assert "cached" not in third["extra"] | fourth["extra"]
    assert Path("runs/a/plan.json").read_bytes() == Path("runs/b/plan.json").read_bytes()


def test_a_changed_graph_file_is_not_recalled(call) -> None:
    job = ("model=graph_file", "model.path=g.graph.json")
    costs = []
    for length in (4, 9):
        write_graph("g.graph.json", unit_chain(length))
        assert call(*job, f"hydra.run.dir=runs/{length}")[0] == 0
        costs.append(row_of(f"runs/{length}")["cost"])
    assert costs == [9, 19]


def test_a_sweep_survives_bad_jobs(call) -> None:
    code, out, err = call(
        *("-m", "model=unit_chain", "model.length=4,9", "strategy=chen_sqrt,nix"),
        *("budget=0.9,8x", "hydra.sweep.dir=sweep"),
    )
    assert code == 2
    with Path("sweep/leaderboard.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 8
    assert tuple(rows[0]) == COLUMNS
    assert [row["status"] for row in rows].count("ok") == 2
    failed = [row for row in rows if row["status"] == "failed"]
    assert all(json.loads(row["extra"])["bad_config"] for row in failed)
    assert any("strategy=nix: unknown" in row["reason"] for row in failed)
    assert any("budget=8x" in row["reason"] for row in failed)
    assert "Traceback" not in err
    assert "8 rows" in out


def test_an_experiment_is_a_list_of_sweeps(call) -> None:
    code, _, _ = call(
        *("-m", "hydra.sweep.dir=sweep", "strategy=checkpoint_all"),
        "hydra.sweeper.sweeps=[{model:unit_chain,model.length:[4,9]},"
        "{model:unit_chain,model.length:9,budget:[1.0,0.9],strategy:ap_sqrt}]",
    )
    assert code == 0
    rows = find_rows([Path("sweep")])
    # The command line's strategy replaces the sweep's.
    assert [(row["ops"], row["budget_fraction"], row["strategy"]) for row in rows] == [
        (9, None, "checkpoint_all"),
        (19, None, "checkpoint_all"),
        (19, 1.0, "checkpoint_all"),
        (19, 0.9, "checkpoint_all"),
    ]


CRASHING = """
import os, signal, time
from dataclasses import dataclass
from rematbench.graphs.plan import Plan
from rematbench.strategies.base import Solution, Traits

@dataclass(frozen=True)
class Odd:
    what: str = "crash"
    traits = Traits("yes", "no", "no")
    def plan(self, problem):
        if self.what == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.what == "memory":
            raise MemoryError("no room")
        if self.what == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.what == "hang":
            time.sleep(60)
        if self.what == "error":
            return 1 / 0
        return Solution(Plan((), problem.graph.name))
"""


@pytest.mark.parametrize(
    ("what", "status", "said"),
    [
        ("crash", "failed", "the worker was ended by signal 11 (SIGSEGV) during 'plan' at odd_st"),
        ("killed", "failed", "the worker was killed during 'plan' by signal 9 (SIGKILL), sent by"),
        ("memory", "out_of_memory", "no room"),
        ("error", "failed", "ZeroDivisionError at odd_strategy.py"),
        ("invalid", "failed", "the simulator rejected the plan"),
        ("hang", "time_limit", "past its time limit"),
    ],
)
def test_any_end_of_a_job_is_a_row(call, monkeypatch, what: str, status: str, said: str) -> None:
    monkeypatch.setattr("rematbench.worker.time_limits.GRACE", 0.5)
    monkeypatch.syspath_prepend(Path.cwd())
    Path("odd_strategy.py").write_text(CRASHING)
    from rematbench.worker.worker import the_worker

    the_worker().stop()  # a new one sees this folder
    code, _, _ = call(
        *("model=unit_chain", "strategy._target_=odd_strategy.Odd", f"+strategy.what={what}"),
        "time_limit=0.5",
    )
    row = row_of("runs/jobs")
    assert (code, row["status"]) == (0, status)
    assert said in row["reason"]
    # The next job gets a new worker.
    assert call("model=unit_chain", "hydra.run.dir=runs/next")[0] == 0
    assert row_of("runs/next")["status"] == "ok"


def test_unknown_option_of_a_strategy(call) -> None:
    code, _, err = call("model=unit_chain", "+strategy.colour=red")
    assert code == 2
    assert "its options are: none" in err


def test_a_sweep_compiles_ahead(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Once, on a machine where no kernel was compiled, those of all its strategies."""
    asked: list[str] = []

    @contextlib.contextmanager
    def popen(words: list[str], **_: object) -> Iterator[SimpleNamespace]:
        asked.extend(words[-2:])
        yield SimpleNamespace(stdout=["1 of 1\n"])

    monkeypatch.setattr(ahead, "subprocess", SimpleNamespace(Popen=popen, PIPE=-1, DEVNULL=-3))
    monkeypatch.setattr(ahead, "cache_root", lambda: tmp_path / "kernels")
    (tmp_path / "kernels").mkdir()
    code, out, _ = call("-m", "model=unit_chain", "strategy=checkpoint_all,ap_sqrt", "cache=null")
    assert code == 0
    assert "2 rows" in out
    assert asked == ["checkpoint_all", "ap_sqrt"]


def test_a_sweep_composes_each_choice_of_groups_once(call, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []
    load = ConfigLoaderImpl.load_sweep_config

    def counted(self: ConfigLoaderImpl, master: DictConfig, job: list[str]) -> DictConfig:
        asked.append(job)
        return load(self, master, job)

    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", counted)
    code, out, _ = call("-m", "model=unit_chain", "strategy=checkpoint_all,ap_sqrt", "seed=1,2,3")
    assert code == 0
    assert "6 rows" in out
    assert len(asked) == 2


def test_planning_never_imports_torch() -> None:
    code = (
        "import sys, rematbench.cli.app, rematbench.worker.worker, rematbench.report.app; "
        "print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=HOUSE, capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


def test_verify(tmp_path: Path) -> None:
    graph = unit_chain(3)
    write_graph(tmp_path / "g.json", graph)
    write_plan(tmp_path / "bad.json", Plan((Compute("layer1"),), graph.name))
    asked = [sys.executable, "-m", "rematbench.cli.verify", str(tmp_path / "g.json")]
    done = subprocess.run(
        [*asked, str(tmp_path / "bad.json")],
        cwd=HOUSE,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "statement 0: op 'layer1' reads 'layer0'" in done.stderr
    assert "Traceback" not in done.stderr
    row = verify(graph, program_order(graph))
    assert row["status"] == "ok"
    assert set(row["extra"]["memory"]) == {"residents", "activations", "workspace"}
    assert sum(row["extra"]["memory"].values()) == row["peak_bytes"]


def test_verify_refuses_other_random_numbers_than_eager_training_draws(tmp_path: Path) -> None:
    ops = tuple(simple_op(f"drop{i}", Phase.FORWARD, ["x"], [f"drop{i}"], 1) for i in range(2))
    values = (Value("x", 1, resident=True), Value("drop0", 1), Value("drop1", 1))
    plain = Graph("two", values, ops, ("drop0", "drop1"))
    swapped = Plan((Compute("drop1"), Compute("drop0")), "two")
    assert verify(plain, swapped)["status"] == "ok"
    drawing = replace(plain, ops=tuple(replace(op, random=True) for op in ops))
    write_graph(tmp_path / "g.json", drawing)
    kept = read_graph(tmp_path / "g.json")
    assert kept == drawing
    assert verify(kept, program_order(kept))["status"] == "ok"
    row = verify(kept, swapped)
    assert row["status"] == "failed"
    assert "random op 'drop0' is first computed out of program order" in row["reason"]
    write_plan(tmp_path / "swapped.json", swapped)
    write_plan(tmp_path / "kept.json", program_order(kept))
    asked = [sys.executable, "-m", "rematbench.cli.verify", str(tmp_path / "g.json")]
    for name, code in (("kept", 0), ("swapped", 1)):
        done = subprocess.run(
            [*asked, str(tmp_path / f"{name}.json")], cwd=HOUSE, capture_output=True, text=True
        )
        assert done.returncode == code
    assert "random op 'drop0' is first computed out of program order" in done.stderr


def test_rows_say_who_asked_for_them(call) -> None:
    """Whoever made the cache's entry, and whatever the job's end."""

    def marks() -> list[tuple[object, ...]]:
        extras = [row["extra"] for row in find_rows([Path("runs/sweep")])]
        return [
            tuple(each.get(key) for key in ("experiment", "group", "cached")) for each in extras
        ]

    job = ("model=unit_chain", "strategy=chen_sqrt")
    sweep = ("-m", "experiment=checkmate_table1", "hydra.sweep.dir=runs/sweep")
    assert call(*job, "hydra.run.dir=runs/first")[0] == 0
    assert "experiment" not in row_of("runs/first")["extra"]
    assert call(*sweep, *job, "budget=null", "accounting=full", "time_limit=60")[0] == 0
    assert marks() == [("checkmate_table1", None, True)]
    assert call(*sweep, *job, "budget=0.9,nonsense", "group=tight")[0] == 2
    assert marks() == [("checkmate_table1", "tight", None)] * 2
    assert call(*job, "hydra.run.dir=runs/again")[0] == 0
    extra = row_of("runs/again")["extra"]
    assert (extra["cached"], "experiment" in extra, "group" in extra) == (True, False, False)


def test_an_experiment_at_another_batch_draws_its_figure(
    call, monkeypatch: pytest.MonkeyPatch
) -> None:
    smaller = ("batch_size=2", "resolution=32", "strategy=checkpoint_all,ap_sqrt", "budget=1.0")
    assert call("-m", "experiment=checkmate_fig5b", *smaller)[0] == 0
    monkeypatch.setattr(sys, "argv", ["rematbench-report", "runs/figures", "--out", "report"])
    sys.argv += ["--figure", "checkmate_fig5b"]
    report()
    assert "MobileNet, batch 2." in Path("report/checkmate_fig5b.md").read_text()
    with Path("report/checkmate_fig5b.csv").open() as file:
        drawn = [(line["strategy"], line["status"]) for line in csv.DictReader(file)]
    assert drawn == [("ap_sqrt", "ok"), ("checkpoint_all", "ok")]
