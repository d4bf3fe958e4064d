"""The experiments of simrd's section 5: the toy chain's numbers, and every sweep composed."""

from __future__ import annotations

import csv
import json
import math
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError, GraphError, Stopped
from rematbench.cli.plugins import register_plugins
from rematbench.cli.resolvers import event_logs, register_resolvers
from rematbench.cli.sweeps import _as_override
from rematbench.engines.eviction.compiled import compile_stream
from rematbench.engines.eviction.rules import Dealloc, Rules
from rematbench.engines.eviction.runtime import play
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.job import run
from rematbench.jobs.settings import Settings, settings_from
from rematbench.strategies.base import Problem
from rematbench.strategies.chen import ChenSqrt
from rematbench.strategies.dtr import Dtr
from rematbench.strategies.revolve import Revolve
from rematbench.streams.convert import graph_of_stream
from rematbench.streams.eviction import HEURISTICS
from rematbench.streams.synthetic import toy_chain

HOUSE = Path(__file__).parents[2]
EXPERIMENTS = sorted(path.stem for path in (HOUSE / "conf/experiment").glob("simrd_fig*.yaml"))


def root(length: int) -> int:
    """Figure 2's budget."""
    return math.ceil(2 * math.sqrt(length))


def log(length: int) -> int:
    """Figure 3's budget."""
    return math.ceil(math.log2(length))


def additional(length: int, budget: int, heuristic: str, dealloc: Dealloc) -> int:
    """Additional computations on the toy chain; the clock and the records agree on them."""
    compiled = compile_stream(toy_chain(length))
    found = play(compiled, budget, Rules(HEURISTICS[heuristic], dealloc))
    assert found.status == "ok"
    assert found.peak_bytes <= budget
    assert found.total_compute - 1 - 2 * length == found.remat_compute == found.rematerializations
    return found.remat_compute


@pytest.mark.parametrize(
    ("heuristic", "expected"), [("full", (230, 485, 988)), ("lru", (1982, 6825, 26604))]
)
def test_toy_chain_of_the_original(heuristic: str, expected: tuple[int, ...]) -> None:
    lengths = (256, 512, 1024)
    assert tuple(additional(n, root(n), heuristic, "eager") for n in lengths) == expected


def test_lru_looks_quadratic_at_the_logarithmic_budget() -> None:
    assert [additional(n, log(n), "lru", "banish") for n in (512, 1024)] == [61084, 252796]
    full = [additional(n, log(n), "full", "banish") for n in (256, 512, 1024)]
    assert full == [930, 2175, 5022]
    ratios = [more / (n * math.log2(n)) for n, more in zip((256, 512, 1024), full, strict=True)]
    assert max(ratios) < 1.1 * min(ratios)  # n log n


def test_banishing_and_eager_eviction_nearly_agree() -> None:
    assert [additional(n, root(n), "full", "banish") for n in (256, 512)] == [227, 485]
    assert additional(256, root(256), "lru", "banish") == 1982


def test_static_strategies_beside_it() -> None:
    graph = graph_of_stream(toy_chain(256))
    base = simulate(graph, program_order(graph))
    assert (base.cost, base.peak_bytes) == (511, 256)  # t256 is read by nothing
    found = {}
    for strategy in (ChenSqrt(), Revolve(), Dtr()):
        plan = strategy.plan(Problem(graph, root(256))).plan
        assert plan is not None
        trace = simulate(graph, plan)
        assert trace.peak_bytes <= root(256)
        found[type(strategy).__name__] = trace.cost - base.cost
    assert found == {"ChenSqrt": 238, "Revolve": 224, "Dtr": 230}


def test_a_bad_length() -> None:
    with pytest.raises(GraphError, match="length is 0"):
        toy_chain(0)
    assert graph_of_stream(toy_chain(1)).outputs == ("g1",)


@pytest.fixture(scope="module")
def experiments():  # type: ignore[no-untyped-def]
    """Compose a job's settings, or an experiment's sweeper."""
    register_resolvers()
    register_plugins()
    with initialize_config_module("rematbench.conf", version_base="1.3"):

        def composed(*overrides: str):  # type: ignore[no-untyped-def]
            return compose("config", list(overrides), return_hydra_config=True)

        yield composed


def jobs_of(composed, name: str, *given: str) -> list[list[str]]:  # type: ignore[no-untyped-def]
    """The overrides of each of an experiment's jobs, as the sweeper lists them."""
    sweeper = composed(f"experiment={name}", *given).hydra.sweeper
    assert sweeper._target_.endswith("ExperimentSweeper")
    parser = OverridesParser.create()
    jobs = []
    for sweep in sweeper.sweeps:
        listed = [f"{key}={_as_override(value)}" for key, value in sweep.items()]
        overrides = parser.parse_overrides([f"experiment={name}", *given, *listed])
        jobs += [job for batch in BasicSweeper.split_arguments(overrides, None) for job in batch]
    return jobs


def settings_of(composed, job: list[str]) -> Settings:  # type: ignore[no-untyped-def]
    config = composed(*job)
    OmegaConf.set_struct(config, False)
    strategy = config.hydra.runtime.choices.strategy
    del config["hydra"]
    plain = OmegaConf.to_container(config, resolve=True, throw_on_missing=True)
    return settings_from({str(key): value for key, value in plain.items()}, strategy)


def test_there_is_one_experiment_per_figure() -> None:
    assert set(EXPERIMENTS) == {f"simrd_fig{n}" for n in range(2, 15)}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_job_resolves(experiments, name: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "a, b's.log").touch()
    (tmp_path / "c.log.gz").touch()
    config = (HOUSE / f"conf/experiment/{name}.yaml").read_text()
    on_logs = "logs:" in config
    jobs = jobs_of(experiments, name, *([f"logs={tmp_path}"] if on_logs else []))
    assert len(jobs) == len({tuple(job) for job in jobs})
    folder = f"dir: runs/figures/{name}\n"
    assert folder in config
    for job in (jobs[0], jobs[-1]):
        found = settings_of(experiments, job)
        if on_logs:
            assert Path(found.model["path"]).exists()
        if found.strategy == "dtr":
            Dtr(**found.options)
        if name in ("simrd_fig2", "simrd_fig3"):
            law = root if name == "simrd_fig2" else log
            assert found.budget.bytes == law(found.model["length"])


def test_a_folder_without_logs(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no \*.log or \*.log.gz there; give a folder"):
        event_logs(str(tmp_path))
    (tmp_path / "one.log").touch()
    one = str(tmp_path / "one.log")
    assert event_logs(str(tmp_path)) == event_logs(one) == [one]


def test_a_memory_trace(experiments, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    (job,) = jobs_of(experiments, "simrd_fig9")
    row = run(settings_of(experiments, job), tmp_path)
    assert (row["status"], row["extra"]["length"], row["extra"]["heuristic"]) == ("ok", 101, "full")
    assert json.loads((tmp_path / "row.json").read_text())["extra"]["trace_omitted"] is False
    held: set[str] = set()
    with (tmp_path / "trace.csv").open() as file:
        for line in csv.DictReader(file):
            computed = line["event"] in ("computed", "recomputed")
            held = held | {line["tensor"]} if computed else held - {line["tensor"]}
            assert len(held) <= row["budget_bytes"] == 7
    assert held == {"g1"}


def test_the_time_limit_holds_within_long_steps() -> None:
    with pytest.raises(Stopped, match="time limit") as stopped:
        Dtr(thrash_limit=None).plan(Problem(graph_of_stream(toy_chain(4096)), 13, time_limit=0.2))
    assert stopped.value.status == "time_limit"
