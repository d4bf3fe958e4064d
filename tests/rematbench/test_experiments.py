"""Every experiment composes under every profile; docs/claims.csv keeps to its words."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.cli.composer import Composer
from rematbench.cli.plugins import register_plugins
from rematbench.cli.resolvers import field, register_resolvers
from rematbench.cli.sweeps import jobs_of as sweep_jobs
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.jobs.settings import settings_from
from rematbench.jobs.sources import load
from rematbench.report.collect import collect
from rematbench.report.figures import NAMES
from rematbench.report.leaderboard.families import family

HOUSE = Path(__file__).parents[2]
EXPERIMENTS = sorted(path.stem for path in (HOUSE / "conf/experiment").glob("*.yaml"))
VERDICTS = ("reproduced", "near", "differs", "not reproduced", "lower bound", "not comparable")
GROUPS = ("model", "strategy", "costmodel", "device")
_composed: set[str] = set()
KINDS = ("planned", "simulated", "modelled", "measured")


@pytest.fixture
def hydra(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(HOUSE)  # logs are named from here
    register_resolvers()
    register_plugins()
    with initialize_config_module("rematbench.conf", version_base="1.3"):
        yield


def jobs_of(name: str, config: str, *overrides: str) -> list[list[str]]:
    """Its jobs; those with a choice or keys that no earlier one had are composed, or the first."""
    given = [f"experiment={name}", *overrides]
    master = compose(config, given, return_hydra_config=True)
    loader = GlobalHydra.instance().config_loader()
    sweeps = OmegaConf.to_container(master.hydra.sweeper.sweeps, resolve=True)
    jobs = sweep_jobs(sweeps, given, loader)
    composer = Composer(loader, master)
    chosen = [
        {each for each in job if each.partition("=")[0] in GROUPS}
        | {" ".join(each.partition("=")[0] for each in job)}  # each sweep's keys are tried, too
        for job in jobs
    ]
    before = len(_composed)
    for least in (2, 1):  # a job with a model and a strategy that are new is one for both
        for job, choices in zip(jobs, chosen, strict=True):
            if len(choices - _composed) >= least:
                settings_from(*composer(job))
                _composed.update(choices)
    if len(_composed) == before:
        settings_from(*composer(jobs[0]))
    return jobs


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_profile_of_an_experiment_is_a_list_of_jobs(hydra: None, name: str) -> None:
    config = "max_batch" if name == "checkmate_fig6" else "config"
    text = (HOUSE / f"conf/experiment/{name}.yaml").read_text()
    if "\nprofile:" not in text:
        assert jobs_of(name, config)
        return
    sizes = {p: len(jobs_of(name, config, f"profile={p}")) for p in ("quick", "full", "gpu")}
    assert 0 < sizes["quick"] <= sizes["full"], sizes
    assert sizes["gpu"] > 0


def test_sweeps_over_nothing_alone_are_refused(hydra: None) -> None:
    loader = GlobalHydra.instance().config_loader()
    some = {"model": "unit_chain", "budget": [0.5, 0.7]}
    nothing = some | {"budget": []}
    assert sweep_jobs([some, nothing], [], loader) == sweep_jobs([some], [], loader)
    with pytest.raises(ConfigError, match="no job: budget has no value in any sweep"):
        sweep_jobs([nothing, nothing], [], loader)


def test_a_pattern_is_looked_up_once(hydra: None, monkeypatch: pytest.MonkeyPatch) -> None:
    loader, asked = GlobalHydra.instance().config_loader(), list[str]()
    options = loader.get_group_options

    def look(group_name: str, **rest: Any) -> list[str]:
        asked.append(group_name)
        return options(group_name, **rest)

    monkeypatch.setattr(loader, "get_group_options", look)
    sweeps = [{"strategy": "glob(checkmate_*)", "budget": share} for share in (0.5, 0.6, 0.7)]
    jobs = sweep_jobs(sweeps, [], loader)
    assert ["strategy=checkmate_ilp", "budget=0.7"] in jobs
    assert asked == ["strategy"]


def test_table_2_s_long_profile_has_the_paper_s_line_up_at_all_budgets(hydra: None) -> None:
    jobs = jobs_of("checkmate_table2", "config", "profile=long")
    found = [dict(word.split("=", 1) for word in job) for job in jobs]
    assert len(found) == len({(job["model"], job["strategy"], job["budget"]) for job in found})
    per_network = {
        model: {job["strategy"] for job in found if job["model"] == model}
        for model in {job["model"] for job in found}
    }
    assert len(per_network) == 10
    assert {len(names) for names in per_network.values()} == {9}


@pytest.mark.parametrize(
    "job",
    [
        ["model=unet", "batch_size=2", "strategy=anytime", "budget=0.5", "hydra.sweep.subdir=7"],
        ["++model.options.base_channels=8", "model=unet", "~strategy.gap", "strategy=anytime"],
        ["strategy=dtr", "costmodel=flops", "hydra.job.config.override_dirname.item_sep='; '"],
        ["hydra/job_logging=disabled", "seed=3", "budget='0.25'"],
    ],
)
def test_a_job_is_composed_as_hydra_composes_it(hydra: None, job: list[str]) -> None:
    job = ["experiment=quickstart", *job]
    given = ["experiment=quickstart", "hydra.sweep.dir=elsewhere"]  # of all jobs
    master = compose("config", given, return_hydra_config=True)
    loader = GlobalHydra.instance().config_loader()
    composer = Composer(loader, master)
    for _ in range(2):  # the second time from what it knows
        found = composer.load_sweep_config(master, job)
        assert found == loader.load_sweep_config(master, job)
        assert found.hydra.sweep.dir == "elsewhere"


def test_the_budgets_of_the_quickstart_can_be_met(hydra: None) -> None:
    """Activations dominate its models: floors are below half the peak, budgets above them."""
    chosen = "experiment=quickstart"
    master = compose("config", [chosen], return_hydra_config=True)
    loader = GlobalHydra.instance().config_loader()
    composer = Composer(loader, master)
    sweeps = OmegaConf.to_container(master.hydra.sweeper.sweeps, resolve=True)
    budgets: dict[str, list[float]] = {}
    jobs = sweep_jobs(sweeps, [chosen], loader)
    each = {tuple(word for word in job if "strategy=" not in word): job for job in jobs}
    for job in each.values():
        settings = settings_from(*composer(job))
        name = str(settings.model["name"])
        if name not in budgets:
            costless = replace(settings, device="none", costmodel="flops")
            graph = load(costless).graph
            peak = simulate(graph, program_order(graph)).peak_bytes
            floor = graph.floor_bytes() / peak
            assert floor < 0.5, name
            budgets[name] = []
        fraction = settings.budget.fraction
        assert fraction is not None
        assert fraction > floor, name
        budgets[name].append(fraction)
    assert len(budgets) == 3
    assert all(len({*each} - {1.0}) >= 5 for each in budgets.values())


def test_the_budgets_of_executed_models_were_met() -> None:
    """Each problem of leaderboard_measured has a row whose plan was executed within its budget."""
    problems = OmegaConf.load(HOUSE / "conf/experiment/leaderboard_measured.yaml").problems
    rows = collect([HOUSE / "runs/reference/leaderboard/measured.csv.gz"]).rows
    known = {
        (row["model"], row["batch_size"], row["budget_fraction"])
        for row in rows
        if row["status"] == "ok" and row["measured_peak_bytes"] is not None
    }
    asked = {
        (each.model + ("-small" if "model.size" in each else ""), each.batch_size, share)
        for each in problems
        for share in each.budget
    }
    assert asked == known
    assert len(asked) == 20


def test_the_leaderboards_budgets_are_above_the_floors() -> None:
    """From 0.9 down to 1.2 times the floor; quick ones are among them."""
    text = OmegaConf.load(HOUSE / "conf/experiment/leaderboard.yaml")
    problems = OmegaConf.to_container(text["problems"])
    assert len(problems) >= 30
    assert len([each for each in problems if "quick" in each]) == 8
    for each in problems:
        budgets = each["budget"]
        assert budgets == sorted(budgets, reverse=True), each
        assert len(budgets) == 5, each
        assert budgets[0] == 0.9, each
        assert -0.001 < budgets[-1] - 1.2 * each["floor"] < 0.012, each  # rounded floors
        assert {*each.get("quick", ())} <= {*budgets}, each
        assert family(each["model"]) != "other", each


def test_the_leaderboards_floors_are_those_of_its_rows() -> None:
    """A part per problem: what the experiment has of each graph, and at what its rows were made."""
    text = OmegaConf.load(HOUSE / "conf/experiment/leaderboard.yaml")
    problems = OmegaConf.to_container(text["problems"])
    for number, each in enumerate(problems, start=1):
        rows = collect([HOUSE / f"runs/reference/leaderboard/full-{number:02}.csv.gz"]).rows
        floors = [
            row["extra"]["floor_bytes"] / row["checkpoint_all_peak_bytes"]
            for row in rows
            if row["checkpoint_all_peak_bytes"]
        ]
        assert max(floors) == pytest.approx(each["floor"], abs=6e-4), each  # monet's may be lower
        assert {row["budget_fraction"] for row in rows} == set(each["budget"]), each
        assert {row["model"] for row in rows} == {each["model"]}
        preset = each.get("costmodel.preset", text["costmodel"]["preset"])
        assert {row["extra"]["preset"] for row in rows} == {preset}, each


@pytest.mark.parametrize("part", ["0/3", "4/3", "3", "a/b", ""])
def test_a_part_is_k_of_n(part: str) -> None:
    with pytest.raises(ConfigError, match=r"give k/n, such as 2/5"):
        field([{"model": "unet", "floor": 0.3, "budget": [0.9]}], "dtr", False, part)


def test_parts_are_the_whole() -> None:
    problems = [{"model": f"m{i}", "floor": 0.1, "budget": [0.9]} for i in range(7)]
    parts = [field(problems, "dtr", False, f"{k}/3") for k in (1, 2, 3)]
    models = [each["model"] for part in parts for each in part]
    assert sorted(models) == [each["model"] for each in problems]
    assert parts[0][0] == {"model": "m0", "strategy": "dtr", "budget": [0.9]}


def claims() -> list[dict[str, str]]:
    with (HOUSE / "docs/claims.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def test_claims_keep_to_their_words() -> None:
    columns = ["paper", "section", "claim", "printed", "ours", "kind", "verdict", "where"]
    for number, line in enumerate(claims(), 2):
        assert list(line) == columns, number
        assert all(line.values()), (number, line)
        assert line["kind"] in KINDS, (number, line["kind"])
        assert line["verdict"].partition(" (")[0].partition(":")[0] in VERDICTS, (number, line)


def test_claims_name_every_paper_and_what_makes_their_numbers() -> None:
    assert {line["paper"] for line in claims()} >= {"simrd", "checkmate", "feng-huang", "joins"}
    known = {*NAMES, *EXPERIMENTS}
    for line in claims():
        for place in line["where"].split("; "):
            path = HOUSE / place.partition("::")[0]
            assert place in known or path.exists(), (line["claim"], place)


def _boldest(printed: str, ours: str) -> str:
    """The best verdict that docs/figures.md allows for two ratios or two percentages."""
    texts = [re.match(r"([\d.]+)(x| %)", text) for text in (printed, ours)]
    if not all(texts) or texts[0][2] != texts[1][2]:
        return "reproduced"
    paper, mine = (float(text[1]) for text in texts)
    if texts[0][2] == " %":
        apart, (best, fair) = abs(paper - mine), (1, 5)
    else:
        low, high = sorted((paper - 1, mine - 1))
        apart, (best, fair) = high / low if low > 0 else math.inf, (1.05, 1.5)
        if high - low <= 0.0101:  # ratios are printed to two digits
            apart = 1 if high - low <= 0.005 else fair
    return "reproduced" if apart <= best else "near" if apart <= fair else "differs"


def test_no_verdict_is_bolder_than_its_numbers() -> None:
    bold = ("reproduced", "near", "differs")
    assert _boldest("1.73x", "1.37x (48)") == "differs"
    assert _boldest("34 %", "29 %") == "near"
    assert _boldest("1.00x", "1.000x") == "reproduced"
    assert _boldest("1.01x", "1.000x") == "near"
    for line in claims():
        verdict = line["verdict"].partition(" (")[0]
        if verdict in bold:
            assert bold.index(verdict) >= bold.index(_boldest(line["printed"], line["ours"])), line
