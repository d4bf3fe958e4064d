"""The suite on the CPU: the code that a CUDA device runs, at toy sizes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from time import monotonic
from types import SimpleNamespace

import pandas as pd
import pytest
import suites
import torch
from fake_device import TOTAL, fake_device
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

import rematbench.cli.suite as suite_module
from rematbench.base.errors import ConfigError
from rematbench.cli.plugins import register_plugins
from rematbench.cli.resolvers import register_resolvers
from rematbench.cli.suite import Suite, publish, run, suite_from
from rematbench.jobs import job, sources
from rematbench.jobs.settings import Settings
from rematbench.report.leaderboard.page import write_leaderboard_pages
from rematbench.report.leaderboard.reading import lacks
from rematbench.rows.row import Row, find_rows, make_row
from rematbench.strategies import registry
from rematbench.suite import environment, measure, plan
from rematbench.suite.environment import warnings
from rematbench.suite.plan import Planners, SuiteModel
from rematbench.suite.summary import THEIRS, headlines, summarise, table

NETWORK = """
from torch import nn
import torch

def deep(batch_size=256):
    layers = [layer for _ in range(12) for layer in (nn.Linear(16, 16), nn.Tanh())]
    batch = (torch.randn(batch_size, 16),)
    return nn.Sequential(*layers), batch, lambda module, x: module(x).sum()
"""
MODEL = ["model=python", "model.target=suite_networks:deep", "device.within=null"]
CASES = {
    "models": [MODEL, [*MODEL, "dtype=float64"]],
    "budgets": [0.7, 0.05],
    "strategies": ["chen_greedy", "dtr"],
    "alone": ["torch_checkpoint"],
}


@pytest.fixture(autouse=True)
def _network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "suite_networks.py").write_text(NETWORK)
    monkeypatch.syspath_prepend(str(tmp_path))


def made(folder: Path, **given: object) -> Suite:
    return suites.made(folder, **{"cases": CASES, **given})


def by_name(rows: list[Row]) -> dict[tuple[str, str, object], Row]:
    return {(r["model"], r["strategy"], r["budget_fraction"]): r for r in rows}


def test_rows_of_a_suite(tmp_path: Path) -> None:
    rows = by_name(run(made(tmp_path / "out")))
    assert len(rows) == 2 * (1 + 2 * 2 + 2)
    plain = "suite_networks:deep"
    base = rows[plain, "checkpoint_all", None]
    assert base["status"] == "ok"
    assert base["gradient_bitwise"]
    assert base["extra"]["overhead_against_checkpoint_all"] == 0
    greedy = rows[plain, "chen_greedy", 0.7]
    assert greedy["status"] == "ok"
    assert greedy["budget_bytes"] == int(0.7 * base["measured_peak_bytes"])
    assert greedy["peak_error"] == 0
    assert greedy["costmodel"] == "profiled"
    for row in (greedy, base, rows[plain, "torch_checkpoint", 0.7]):
        assert row["extra"]["memory"]["parameters"] > 0
        assert sum(row["extra"]["memory"].values()) == row["peak_bytes"]
    assert greedy["extra"]["measured_in_turns_with"] >= 2
    assert all(row["extra"]["experiment"] == "suite" for row in rows.values())
    assert greedy["extra"]["fragmentation_bytes"] is None
    assert rows[plain, "chen_greedy", 0.05]["status"] == "infeasible"
    assert rows[plain, "torch_checkpoint", 0.7]["measured_seconds"] > 0
    double = rows[f"{plain}-float64", "checkpoint_all", None]
    assert double["measured_peak_bytes"] > 1.9 * base["measured_peak_bytes"]
    files = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"environment.json", "leaderboard.csv", "summary.csv"} < files
    summary = pd.read_csv(tmp_path / "out" / "summary.csv")
    assert list(summary.wrong_gradients) == [0, 0]
    assert (summary.worst_peak_error == 0).all()


def test_a_suite_goes_on_where_it_was_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = CASES | {"models": [MODEL], "alone": []}
    suite = made(tmp_path / "out", cases=one)

    def cut(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measure, "_time", cut)
    with pytest.raises(KeyboardInterrupt):
        run(suite)
    rows = by_name(find_rows([suite.folder]))
    assert len(rows) == 5  # planned and judged, but not timed
    assert rows["suite_networks:deep", "chen_greedy", 0.7]["measured_peak_bytes"] > 0
    assert rows["suite_networks:deep", "chen_greedy", 0.7]["measured_seconds"] is None
    monkeypatch.undo()
    monkeypatch.syspath_prepend(str(tmp_path))
    done = by_name(run(made(tmp_path / "out", cases=one)))
    assert done["suite_networks:deep", "chen_greedy", 0.7]["measured_seconds"] > 0
    times = {path: path.stat().st_mtime_ns for path in suite.folder.rglob("row.json")}
    run(made(tmp_path / "out", cases=one))
    assert times == {path: path.stat().st_mtime_ns for path in suite.folder.rglob("row.json")}


class InThisProcess:
    """A planner's process that is none: nothing has to start."""

    def run(self, settings: Settings, folder: Path, say: object) -> Row:
        return job.run(settings, folder)

    def stop(self) -> None:
        pass


def test_the_later_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In order of value; a model is captured, costed and its checkpoint-all measured only once."""
    single, double, none = (f"suite_networks.{name}" for name in ("deep", "deep-float64", "none"))
    nothing = ["model=python", "model.target=suite_networks:none"]
    first = {"chen_greedy": [single], "torch_checkpoint": [], "dtr": []}
    strategies = ["dtr", "ap_greedy", "chen_greedy"]  # planned in this order, in each round
    cases = {"models": [*CASES["models"], nothing], "budgets": [0.7], "first": first}
    monkeypatch.setattr(suite_module, "ROUND", 2)
    sources.recall({})  # an earlier test's model would be known
    suite = made(tmp_path, cases=CASES | cases | {"strategies": strategies})
    calls, visits, times = list[str](), list[tuple[str, set[str]]](), list[dict[str, int]]()
    for name in ("_capture", "_cost"):
        monkeypatch.setattr(sources, name, noted(name, getattr(sources, name), calls))

    def visit(model: SuiteModel, *given: object) -> object:
        asked = {entry.settings.strategy for entry in (*model.entries, *model.alone)}
        visits.append((model.folder.name, asked))
        paths = tmp_path.rglob("checkpoint_all/row.json")
        times.append({path.parent.parent.name: path.stat().st_mtime_ns for path in paths})
        return plan.prepare(model, *given)

    monkeypatch.setattr(suite_module, "prepare", visit)
    monkeypatch.setattr(plan, "Worker", InThisProcess)
    rows = run(suite)
    at_first = {"checkpoint_all", "ap_greedy"}
    others = {"chen_greedy", "torch_checkpoint"}
    assert visits == [
        *((single, {*at_first, "chen_greedy"}), (double, at_first), (none, at_first)),
        *((single, {"torch_checkpoint"}), (double, others), (none, others)),
        *((each, {"dtr"}) for each in (single, double, none)),
    ]
    assert calls == ["_capture", "_cost"] * 2 + ["_capture"]
    assert set(times[3]) == {single, double, none}
    assert times[3:] == [times[3]] * 6
    failed = [row["status"] for row in rows if row["model"] == "suite_networks:none"]
    assert failed == ["failed"] * 5
    found, name = by_name(rows), "suite_networks:deep-float64"
    base, late = found[name, "checkpoint_all", None], found[name, "chen_greedy", 0.7]
    assert late["budget_bytes"] == int(0.7 * base["measured_peak_bytes"])
    ratio = (1 + late["measured_overhead"]) / (1 + base["measured_overhead"])
    assert late["extra"]["overhead_against_checkpoint_all"] == pytest.approx(ratio - 1)
    low, high = late["extra"]["overhead_against_checkpoint_all_interval"]
    assert low <= ratio - 1 <= high
    assert not [lacks(row) for row in rows if lacks(row)]


def noted(name: str, real: Callable[..., object], calls: list[str]) -> Callable[..., object]:
    """A function that notes its name."""

    def call(*given: object) -> object:
        calls.append(name)
        return real(*given)

    return call


def test_no_time_left(tmp_path: Path) -> None:
    rows = run(made(tmp_path / "out", seconds=0))
    assert rows == []
    job = made(tmp_path / "out").models[0].base
    with Planners(1) as planners:
        planned: Future[Row] = planners.submit(job, tmp_path, monotonic() - 1)
        assert planned.result()["status"] == "time_limit"


def test_out_of_memory_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One plan's out-of-memory error is its row; the others are measured."""
    judge = plan.Validator.judge
    peaks: list[int] = []

    def short(validator: plan.Validator, program: object) -> object:
        found = judge(validator, program)
        peaks.append(found[1].peak_bytes)
        if peaks[-1] < peaks[0]:  # not checkpoint-all
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return found

    monkeypatch.setattr(plan.Validator, "judge", short)
    one = CASES | {"models": [MODEL], "budgets": [0.7], "alone": [], "strategies": ["chen_greedy"]}
    rows = by_name(run(made(tmp_path / "out", cases=one)))
    assert rows["suite_networks:deep", "chen_greedy", 0.7]["status"] == "out_of_memory"
    assert rows["suite_networks:deep", "checkpoint_all", None]["status"] == "ok"


def test_out_of_memory_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Halves of the plans are timed again, until the one that cannot run is alone."""
    times, asked = plan.Validator.times, list[list[object]]()

    def short(validator: plan.Validator, programs: list, *given: object) -> object:
        asked.append(programs)
        if asked[0][-1] in programs:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return times(validator, programs, *given)

    monkeypatch.setattr(plan.Validator, "times", short)
    budgets = {"budgets": [0.9, 0.7], "strategies": ["chen_greedy"], "alone": []}
    rows = run(made(tmp_path / "out", cases=CASES | budgets | {"models": [MODEL]}))
    statuses = [row["status"] for row in rows]
    assert [len(programs) for programs in asked] == [3, 1, 2, 1, 1]
    assert statuses.count("out_of_memory") == 1
    assert statuses.count("ok") == 2
    assert all(row["measured_seconds"] for row in rows if row["status"] == "ok")


def test_a_model_that_cannot_be_had(tmp_path: Path) -> None:
    bad = ["model=python", "model.target=suite_networks:nothing"]
    one = CASES | {"models": [bad, MODEL], "budgets": [0.7], "alone": [], "strategies": []}
    rows = by_name(run(made(tmp_path / "out", cases=one)))
    assert rows["suite_networks:nothing", "checkpoint_all", None]["status"] == "failed"
    assert "nothing" in rows["suite_networks:nothing", "checkpoint_all", None]["reason"]
    assert rows["suite_networks:deep", "checkpoint_all", None]["status"] == "ok"


def test_one_strategy_that_breaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its rows say so; the model's others are planned and measured."""

    def broken(*arguments: object) -> Row:
        raise RuntimeError("CUDA error: no kernel image is available")

    loaded = plan.load
    monkeypatch.setattr(plan, "run", broken)  # of what plans alone
    monkeypatch.setattr(plan, "load", lambda s: broken() if s.strategy == "dtr" else loaded(s))
    one = CASES | {"models": [MODEL], "budgets": [0.7], "only": {"chen_greedy": ["other"]}}
    rows = by_name(run(made(tmp_path / "out", cases=one)))
    assert {name: row["status"] for (_, name, _), row in rows.items()} == {
        "checkpoint_all": "ok",
        "dtr": "failed",
        "torch_checkpoint": "failed",
    }
    reason = rows["suite_networks:deep", "torch_checkpoint", 0.7]["reason"]
    assert "no kernel image" in reason


def test_each_model_gets_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, text = [0.0], []

    def prepare(model: SuiteModel, planners: object, deadline: float, aside: object) -> object:
        clock[0] += 5
        text.append(("prepare", clock[0]))
        return SimpleNamespace(model=model)

    def measure(prepared: object, deadline: float, graphs: bool) -> None:
        text.append(("measure", deadline))
        clock[0] = deadline

    monkeypatch.setitem(suite_module.AHEAD, "cpu", 2)
    monkeypatch.setattr(suite_module, "monotonic", lambda: clock[0])
    monkeypatch.setattr(suite_module, "prepare", prepare)
    monkeypatch.setattr(suite_module, "measure_together", measure)
    monkeypatch.setattr(plan.Aside, "put", lambda aside, prepared: None)
    run(made(tmp_path, seconds=100, cases=CASES | {"models": [MODEL] * 4, "alone": []}))
    assert text == [
        ("prepare", 5),
        ("prepare", 10),
        ("measure", 10 + 90 / 4),
        ("prepare", 37.5),
        ("measure", pytest.approx(37.5 + 62.5 / 3)),
        ("prepare", pytest.approx(63.3333333)),
        ("measure", pytest.approx(63.3333333 + 36.6666667 / 2)),
        ("measure", 100),
    ]


def test_plans_that_find_no_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are left for another run; checkpoint-all is measured, and few turns are enough."""
    monkeypatch.setattr(measure, "JUDGING", 0.0)
    suite = made(
        tmp_path / "out",
        cases=CASES
        | {"models": [MODEL], "budgets": [0.7], "strategies": ["chen_greedy"], "alone": []},
        device={"name": "cpu", "repeats": 2},
    )
    rows = by_name(run(suite))
    assert rows["suite_networks:deep", "checkpoint_all", None]["measured_seconds"] > 0
    late = rows["suite_networks:deep", "chen_greedy", 0.7]
    assert (late["status"], late["measured_seconds"]) == ("time_limit", None)
    assert [entry.finished for entry in suite.models[0].entries] == [True, False]


def test_bad_suites(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cases\.budgets=0\.5: give a list"):
        made(tmp_path, cases=CASES | {"budgets": 0.5})
    with pytest.raises(ConfigError, match="seconds=soon: give a number"):
        made(tmp_path, seconds="soon")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigError, match="PyTorch sees no CUDA device"):
            made(tmp_path, device={"name": "cuda", "repeats": 2})


def test_the_command_without_a_device() -> None:
    asked, hidden = [sys.executable, "-m", "rematbench.cli.suite"], {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        asked, capture_output=True, text=True, timeout=120, env=os.environ | hidden
    )
    assert done.returncode == 2
    assert done.stderr.strip().splitlines() == [
        "rematbench-suite: device=cuda: PyTorch sees no CUDA device here; use device=cpu"
    ]


def test_every_step_of_a_run(tmp_path: Path) -> None:
    """By the command: capture, profiles, plans in processes, turns, rows, summary, and the page."""
    out, models = tmp_path / "rows", '[["model=python","model.target=suite_networks:deep"]]'
    asked = [sys.executable, "-m", "rematbench.cli.suite", "device=cpu", "seconds=3000"]
    asked += ["device.within=null", "device.repeats=3", "planners=1"]
    asked += ["cases=smallest", f"cases.models={models}", f"out={out}", f"cache={tmp_path}/cache"]
    there = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        asked, capture_output=True, text=True, timeout=600, env=os.environ | {"PYTHONPATH": there}
    )
    assert done.returncode == 0, done.stderr
    statuses = {row["strategy"]: row["status"] for row in find_rows([out])}
    # DTR evicts by measured costs: whether it fits depends on the machine's day.
    assert statuses.pop("dtr") in ("ok", "infeasible")
    assert statuses == {"checkpoint_all": "ok", "ap_greedy": "ok", "torch_checkpoint": "ok"}
    assert "suite_networks" in done.stdout  # the summary's table
    assert list((tmp_path / "cache" / "profiles").glob("*.json"))
    write_leaderboard_pages(find_rows([out]), tmp_path / "pages", "measured")
    page = (tmp_path / "pages" / "leaderboard.html").read_text()
    assert "ap_greedy" in page
    assert "torch_checkpoint" in page


def test_every_case_composes(tmp_path: Path) -> None:
    register_plugins()
    register_resolvers()
    names = [
        path.stem for path in sorted((Path(__file__).parents[2] / "conf/cases").glob("*.yaml"))
    ]
    assert {"gpu", "cpu", "monet_cpu"} <= {*names}
    for name in names:
        register_plugins()
        with initialize_config_module("rematbench.conf", version_base="1.3"):
            plain = OmegaConf.to_container(compose("suite", [f"cases={name}"]), resolve=True)
            assert isinstance(plain, dict)
            known = {str(key): value for key, value in plain.items()}
            cpu = {"device": {"name": "cpu", "repeats": 1}}
            if name == "gpu":  # the CPU has no TF32
                models = [[o for o in m if "tf32" not in o] for m in plain["cases"]["models"]]
                cpu["cases"] = plain["cases"] | {"models": models}
            suite = suite_from(known | cpu | {"out": str(tmp_path)})
        assert all(isinstance(model.base, Settings) for model in suite.models)
        for strategy, folders in plain["cases"].get("first", {}).items():
            everywhere = {model.folder.name for model in suite.models}
            assert set(folders) <= everywhere
            found, later = (
                {m.folder.name for m in models for e in (*m.entries, *m.alone)
                 if e.settings.strategy == strategy}
                for models in (suite.models, [m for models in suite.later for m in models])
            )  # fmt: skip
            assert found == set(folders)
            assert later == everywhere - found  # every strategy on every model, in the end


def test_the_gpu_cases_are_of_every_strategy(tmp_path: Path) -> None:
    """But checkpoint-all, which is every model's first row."""
    register_plugins()
    register_resolvers()
    models = "cases.models=[['model=resnet32','batch_size=4']]"
    with initialize_config_module("rematbench.conf", version_base="1.3"):
        given = ["cases=gpu", "device=cpu", "device.repeats=1", models, "cases.first=null"]
        plain = OmegaConf.to_container(compose("suite", given), resolve=True)
        suite = suite_from({str(k): v for k, v in plain.items()} | {"out": str(tmp_path)})
    (model,) = suite.models
    together = [*dict.fromkeys(entry.settings.strategy for entry in model.entries[1:])]
    alone = [*dict.fromkeys(entry.settings.strategy for entry in model.alone)]
    ours = {name for name in registry.names() if registry.entry(name).source == "rematbench"}
    assert sorted([*together, *alone]) == sorted(ours - {"checkpoint_all"})
    assert together.index("anytime") < together.index("dtr")  # whoever uses all of its time first
    assert set(alone) == {n for n, card in registry.cards().items() if card.turn == "alone"}


def test_environment() -> None:
    found = environment.environment("cpu")
    assert found["versions"].startswith("python 3.")
    json.dumps(found, allow_nan=False)
    assert warnings(found) == []
    busy = found | {"capability": "9.0", "nvidia_smi": None, "other_processes": 2}
    assert len(warnings(busy)) == 2
    assert len(warnings(busy | {"memory_bytes": 80, "free_memory_bytes": 70})) == 3


def test_environment_of_a_stand_in() -> None:
    asked = []

    def smi(words: list[str], **options: object) -> SimpleNamespace:
        asked.append(words[1])
        users = "compute-apps" in words[2]
        said = "7, 10 MiB\n9, 20 MiB\n" if users else ", ".join(environment._FACTS)
        return SimpleNamespace(returncode=0, stdout=said)

    facts = SimpleNamespace(major=9, minor=0, multi_processor_count=132, uuid="12-34")
    fakes = {
        "current_device": lambda: 0,
        "get_device_properties": lambda place: facts,
        "get_allocator_backend": lambda: "native",
        "get_arch_list": lambda: ["sm_90"],
    }
    with fake_device("cuda") as device:
        for name, fake in fakes.items():
            device.patch.setattr(torch.cuda, name, fake)
        device.patch.setattr(environment.subprocess, "run", smi)
        found = environment.environment("cuda")
    assert set(asked) == {"--id=GPU-12-34"}
    assert (found["device"], found["memory_bytes"]) == ("Fake Device 9", TOTAL)
    assert found["other_processes"] == 1
    assert found["nvidia_smi"]["pstate"] == "pstate"
    json.dumps(found, allow_nan=False)


def test_summary_of_hand_made_rows(tmp_path: Path) -> None:
    def measured(strategy: str, cost: float, peak: int, seconds: float) -> Row:
        known = {"model": "m", "batch_size": 1, "device": "d", "status": "ok", "seed": 0}
        row = make_row(strategy=strategy, cost=cost, overhead=cost / 10 - 1, **known)
        row |= {"measured_peak_bytes": peak, "measured_seconds": seconds}
        row |= {"peak_error": 0.01 * (-1) ** peak, "measured_overhead": seconds / 0.9 - 1}
        row["extra"] |= {"eager_seconds": 0.9, "overhead_against_checkpoint_all": seconds - 1}
        row["extra"]["eager_peak_bytes"] = 80
        return row

    rows = [
        measured("checkpoint_all", 10, 90, 1.0),
        measured("a", 11, 60, 1.08),
        measured("b", 13, 30, 1.4),
        measured("c", 14, 29, 1.3),
        measured("c", 14, 29, 1.3),  # the same plan
        make_row(model="m", batch_size=1, device=None, status="infeasible", strategy="d"),
    ]
    (line,) = summarise(rows).to_dict("records")
    assert (line["ok"], line["wrong_gradients"]) == (4, 0)
    assert line["peak_at_10_percent"] == pytest.approx(60 / 90)
    assert line["overhead_at_one_third"] == pytest.approx(0.3)
    assert line["rank_correlation"] == pytest.approx(0.8)
    assert line["worst_peak_error"] == pytest.approx(0.01)
    assert line["overhead_error"] == pytest.approx(0.06)
    assert table(summarise(rows)).row_count == 1
    found = headlines(rows).set_index("strategy").peak_at_10_percent
    assert found["a"] == pytest.approx(60 / 90)
    assert found[["b", "c"]].isna().all()
    found = headlines(rows).set_index("strategy").eager_peak_at_10_percent
    assert found.isna().all()  # 1.0 is more than 10 % above 0.9
    rows[0]["measured_overhead"] = 0.1
    found = headlines(rows).set_index("strategy").eager_peak_at_10_percent
    assert found["checkpoint_all"] == pytest.approx(90 / 80)
    assert THEIRS["resnet50", "anytime_joint"] == pytest.approx(5.7 / 15.1)


def test_nothing_to_summarise(tmp_path: Path) -> None:
    suite = made(tmp_path / "empty", cases=CASES | {"models": []})
    suite.folder.mkdir()
    assert publish(suite) == []
    assert table(summarise([])).row_count == 0
