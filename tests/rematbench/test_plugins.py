"""Strategies of other distributions, everywhere; and what other Hydra programs see of us."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import torch
from hydra.core.config_store import ConfigStore

from rematbench.base import imports
from rematbench.base.errors import ConfigError
from rematbench.rows.row import find_rows
from rematbench.strategies import registry

PLUGIN = """
from dataclasses import dataclass
from typing import ClassVar
from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Problem, Solution, Traits

@dataclass(frozen=True)
class Theirs:
    '''Somebody's strategy.

    Attributes:
        patience: how long.
    '''
    traits: ClassVar[Traits] = Traits("yes", "no", "no")
    patience: int = 3

    def plan(self, problem: Problem) -> Solution:
        return Solution(program_order(problem.graph), variant=f"patience {self.patience}")
"""
COSTS = """
from rematbench.costmodel.costs import with_costs

def twos(graph, captured):
    ways = [(op.name, way.name) for op in graph.ops for way in op.implementations]
    return with_costs(graph, dict.fromkeys(ways, (2.0, 0)), "two")
"""
NETWORK = """
import torch
from torch import nn

def small(batch_size=2):
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    batch = (torch.randn(batch_size, 4),)
    return network, batch, lambda module, x: module(x).square().mean()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an installed plug-in, and one that cannot be imported."""
    site = tmp_path / "site"
    info = site / "theirs-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "theirs_strategy.py").write_text(PLUGIN)
    (site / "their_costs.py").write_text(COSTS)
    (site / "plugin_network.py").write_text(NETWORK)
    (site / "leaving.py").write_text("import sys\nsys.exit()\n")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[rematbench.strategies]\ntheirs = theirs_strategy:Theirs\nbroken = no_such_module:X\n"
        "leaving = leaving:Strategy\n"
        "[rematbench.costmodels]\ntwos = their_costs:twos\nbroken = no_such_module:costs\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(site))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *words], capture_output=True, text=True, env=os.environ, check=False
    )


def test_a_plug_in_is_a_strategy_like_any_other(place: Path) -> None:
    shown = run("rematbench", "--cfg", "job", "strategy=theirs")
    assert "  patience: 3\n" in shown.stdout, shown.stderr
    done = run(
        *("rematbench", "-m", "model=unit_chain", "strategy=glob(thei*)", "strategy.patience=4"),
        "hydra.sweep.dir=sweep",
    )
    assert done.returncode == 0, done.stderr
    (row,) = find_rows([Path("sweep")])
    assert (row["strategy"], row["variant"]) == ("theirs", "patience 4")
    wrong = run("rematbench", "strategy=theirs", "strategy.patience=much")
    assert (wrong.returncode, wrong.stderr) == (
        2,
        "rematbench: strategy.patience=much: give a whole number\n",
    )


def test_a_broken_plug_in_is_said_when_it_is_chosen(place: Path) -> None:
    assert run("rematbench", "model=unit_chain").returncode == 0
    broken = run("rematbench", "model=unit_chain", "strategy=broken")
    assert broken.returncode == 2
    assert "strategy 'broken' of theirs cannot be loaded" in broken.stderr
    assert broken.stderr.count("\n") == 1


def test_a_plug_in_that_exits_when_it_is_imported_takes_no_job_along(place: Path) -> None:
    done = run("rematbench", "model=unit_chain", "hydra.run.dir=run")
    assert done.returncode == 0, done.stderr
    assert (place / "run" / "row.json").exists()
    leaving = run("rematbench", "model=unit_chain", "strategy=leaving")
    assert leaving.returncode == 2
    assert "importing leaving failed: SystemExit at leaving.py:2" in leaving.stderr
    assert leaving.stderr.count("\n") == 1


WIDTH = """
from pathlib import Path

import torch
from torch import nn

def drawn():
    width = int(torch.randint(1, 1000, ()))
    network = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 1))
    return network, (torch.randn(2, 4),), lambda module, x: module(x).square().mean()

def fixed():
    network = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))

    def loss(module, x):
        value = module(x).square().mean()
        if type(value) is torch.Tensor and not torch.compiler.is_compiling():  # it is executed
            with Path("first_weights.txt").open("a") as file:
                print(module[0].weight[0, 0].item(), file=file)
        return value

    return network, (torch.randn(2, 4),), loss
"""


def test_a_sweep_gives_a_model_the_seed_of_each_job(place: Path) -> None:
    """A model may draw its own sizes; then a job alone must not find a wrong row in the cache."""
    (place / "drawn_width.py").write_text(WIDTH)
    job = ("model=python", "model.target=drawn_width:drawn", "strategy=checkpoint_all")
    done = run("rematbench", "-m", *job, "seed=0,1", "cache=kept", "hydra.sweep.dir=sweep")
    assert done.returncode == 0, done.stderr
    peaks = {row["seed"]: row["peak_bytes"] for row in find_rows([Path("sweep")])}
    assert peaks[0] != peaks[1]
    for cache, cached in (("null", None), ("kept", True)):
        alone = run("rematbench", *job, "seed=1", f"cache={cache}", "hydra.run.dir=alone")
        assert alone.returncode == 0, alone.stderr
        (row,) = find_rows([Path("alone")])
        assert (row["peak_bytes"], row["extra"].get("cached")) == (peaks[1], cached)


def test_a_sweep_gives_a_model_the_parameters_of_each_seed(place: Path) -> None:
    """Also where every seed has the same graph."""
    (place / "drawn_width.py").write_text(WIDTH)
    job = ("model=python", "model.target=drawn_width:fixed", "strategy=checkpoint_all")
    done = run(
        *("rematbench", "-m", *job, "seed=0,1", "device=cpu", "cache=null"),
        "hydra.sweep.dir=sweep",
    )
    assert done.returncode == 0, done.stderr
    assert [row["status"] for row in find_rows([Path("sweep")])] == ["ok", "ok"]
    ran_with = set(Path("first_weights.txt").read_text().split())
    assert ran_with == {str(_first_weight(seed)) for seed in (0, 1)}


def _first_weight(seed: int) -> float:
    torch.manual_seed(seed)
    return torch.nn.Linear(4, 8).weight[0, 0].item()


def test_a_cost_model_is_a_choice_like_any_other(place: Path) -> None:
    job = ("model=unit_chain", "model.length=3", "strategy=checkpoint_all", "hydra.run.dir=run")

    def cost() -> tuple[float, str, bool]:
        done = run("rematbench", *job, "costmodel=twos", "cache=kept")
        assert done.returncode == 0, done.stderr
        (row,) = find_rows([Path("run")])
        assert row["costmodel"] == "twos"
        return row["cost"], row["cost_unit"], bool(row["extra"].get("cached"))

    first, again = cost(), cost()
    assert first == (14.0, "two", False)
    assert again == (14.0, "two", True)
    source = place / "site" / "their_costs.py"
    source.write_text(source.read_text().replace("2.0", "5.0"))
    assert cost() == (35.0, "two", False)  # its code has changed


def test_cost_models_that_there_are_not(place: Path) -> None:
    broken = run("rematbench", "model=unit_chain", "costmodel=broken")
    assert broken.returncode == 2
    assert "costmodel 'broken' of theirs cannot be loaded" in broken.stderr
    assert broken.stderr.count("\n") == 1
    unknown = run("rematbench", "model=unit_chain", "costmodel=two")
    assert unknown.returncode == 2
    assert "costmodel=two: unknown; did you mean twos?" in unknown.stderr
    assert unknown.stderr.count("\n") == 1


def test_a_plug_in_fits(place: Path) -> None:
    code = "import sys; from rematbench.cli.commands import fit; fit()"
    done = subprocess.run(
        [
            *(sys.executable, "-c", code, "model=python", "model.target=plugin_network:small"),
            *("memory=10kB", "strategies=[theirs]", "strategy=theirs", "costmodel=flops"),
            "hydra.run.dir=fit",
        ],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    text = json.loads(Path("fit/row.json").read_text())["extra"]["fit"]["tried"]
    assert text[0]["strategy"] == "checkpoint_all"
    assert {each["strategy"] for each in text} <= {"checkpoint_all", "theirs"}


def test_plug_ins_are_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("mine", "rematbench.strategies.chen:ApGreedy", registry.GROUP)
    monkeypatch.setattr(imports, "entry_points", lambda group: [point])
    registry.registered.cache_clear()
    try:
        assert registry.entry("mine").defaults == registry.entry("ap_greedy").defaults
        assert registry.resolve("mine", "here") == registry.make("ap_greedy")
        with pytest.raises(ConfigError, match="did you mean mine"):
            registry.entry("mime")
    finally:
        registry.registered.cache_clear()


FOREIGN = """
import hydra, sys
@hydra.main(version_base="1.3", config_path=None)
def main(config):
    print(sorted(name for name in sys.modules if name.startswith("rematbench")))
main()
"""


def test_other_hydra_programs_load_nothing_of_ours(tmp_path: Path) -> None:
    (tmp_path / "foreign.py").write_text(FOREIGN)
    done = subprocess.run(
        [sys.executable, "foreign.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_choices_are_in_the_store() -> None:
    from rematbench.cli.plugins import register_plugins

    register_plugins()
    stored = set(ConfigStore.instance().list("strategy"))
    assert {f"{name}.yaml" for name in registry.names()} <= stored
