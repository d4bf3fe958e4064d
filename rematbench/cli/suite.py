"""``rematbench-suite``: every strategy on many models in the minutes that a device is at hand.

For each model the device gives the graph, the costs and checkpoint-all's measured peak. Processes
then plan on the CPU from the saved graph, while the device measures the model before. Plans of
one model are measured in turns, so that a device that slows down slows them all. Each row is
written when it is known and again when it is measured; a run that is cut off keeps them, and the
next one goes on from there.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import Any

from hydra import compose
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf
from rich.console import Console

from rematbench.base.checks import flag, whole
from rematbench.base.errors import ConfigError
from rematbench.cli.app import command
from rematbench.cli.fit import with_strategy
from rematbench.cli.hydra_task import CommandTask, Config
from rematbench.costmodel.device import device_name, require, use_numerics
from rematbench.graphs.budget import parse_budget
from rematbench.graphs.files import write_json
from rematbench.jobs.settings import settings_from
from rematbench.rows.row import Row, find_rows, write_leaderboard
from rematbench.rows.shown import console
from rematbench.strategies import registry
from rematbench.strategies.cards import Turn
from rematbench.suite.environment import environment, warnings
from rematbench.suite.measure import measure_together
from rematbench.suite.plan import PlannedRow, Planners, Prepared, SuiteModel, prepare
from rematbench.suite.summary import headlines, summarise, table

EXPERIMENT = "suite"
"""What its rows say that made them; their group is the chosen ``cases=``."""
AHEAD = {"cpu": 1}
"""Models that have their planners at work, 2 elsewhere: on a CPU none while another is timed."""


@dataclass(frozen=True)
class Suite:
    """What to run.

    Attributes:
        models: each with its rows to be.
        later: the same models with the rows that ``cases.first`` leaves for the time that is left.
        folder: of the rows.
        device: cpu or an accelerator's name.
        seconds: after which nothing new begins.
        planners: processes; None for one per core but two.
        cuda_graphs: replay each plan as a CUDA graph, too.
    """

    models: tuple[SuiteModel, ...]
    later: tuple[SuiteModel, ...]
    folder: Path
    device: str
    seconds: float
    planners: int | None
    cuda_graphs: bool


def suite_from(config: Mapping[str, Any]) -> Suite:
    """Check a resolved ``conf/suite.yaml``.

    Raises:
        ConfigError: a value is bad, or there is no such device.
    """
    device = str(config["device"]["name"])
    require(device)
    cases = {**config["cases"]}
    for key, turns in (("strategies", ("first", "later")), ("alone", ("alone",))):
        if cases.get(key, "") is None:
            cases[key] = _by_their_cards(*turns)
    for key in ("models", "budgets", "strategies", "alone"):
        if not isinstance(cases.get(key), list):
            raise ConfigError(f"cases.{key}={cases.get(key)}: give a list")
    for key in ("seconds", "seed"):
        if type(config[key]) not in (int, float):
            raise ConfigError(f"{key}={config[key]}: give a number")
    name = re.sub(r"\(R\)|\(TM\)", "", device_name(device).removesuffix(", TF32"))
    slug = "-".join(re.findall(r"[\w.]+", name))
    folder = Path(config["out"] or Path("runs", "reference", slug.lower()))
    planners = config["planners"]
    return Suite(
        models=_models(config, cases, folder, late=False),
        later=_models(config, cases, folder, late=True),
        folder=folder,
        device=device,
        seconds=float(config["seconds"]),
        planners=None if planners is None else whole("planners", planners, 1),
        cuda_graphs=flag("cuda_graphs", config["cuda_graphs"]),
    )


def _by_their_cards(*turns: Turn) -> list[str]:
    """Our strategies whose cards give them one of these turns, turn by turn."""
    ours = [name for name in registry.cards() if registry.entry(name).source == "rematbench"]
    return [name for turn in turns for name in ours if registry.cards()[name].turn == turn]


def _models(
    config: Mapping[str, Any], cases: Mapping[str, Any], folder: Path, late: bool
) -> tuple[SuiteModel, ...]:
    return tuple(_model(config, cases, list(given), folder, late) for given in cases["models"])


def _model(
    config: Mapping[str, Any], cases: Mapping[str, Any], given: list[str], folder: Path, late: bool
) -> SuiteModel:
    """A model of the suite, with its rows to be: strategies x budgets, checkpoint-all first.

    Args:
        late: of the strategies that ``cases.first`` does not name the model for.
    """
    own = [f"{key}={config[key]}" for key in ("seed", "time_limit")]
    own += ["costmodel=profiled", f"cache={'null' if config['cache'] is None else config['cache']}"]
    own += [f"device={config['device']['name']}", f"device.repeats={config['device']['repeats']}"]
    made = OmegaConf.to_container(compose("job", [*own, *given]), resolve=True)
    assert isinstance(made, dict)
    plain = {str(k): v for k, v in made.items()}
    plain |= {"experiment": EXPERIMENT, "group": config.get("group")}
    base = with_strategy(settings_from(plain, ""), "checkpoint_all")
    sizes = [base.model.get(key) for key in ("batch_size", "resolution")]
    parts = [base.label.replace(":", "."), *(str(size) for size in sizes if size is not None)]
    place = folder / "-".join([*parts, *(key for key, on in base.numerics.items() if on)])

    only, sooner = cases.get("only") or {}, cases.get("first") or {}

    def asked(strategy: str) -> bool:
        soon = place.name in sooner.get(strategy, [place.name])
        return place.name in only.get(strategy, [place.name]) and soon is not late

    def entries(strategies: list[str], budgets: list[float]) -> Iterator[PlannedRow]:
        for strategy in filter(asked, strategies):
            for budget in budgets:
                job = replace(with_strategy(base, strategy), budget=parse_budget(budget))
                yield PlannedRow(job, place / f"{strategy}-{budget:g}")

    first = PlannedRow(base, place / base.strategy)
    together = (first, *entries(cases["strategies"], cases["budgets"]))
    alone = cases.get("alone_budgets") or cases["budgets"]
    return SuiteModel(base, place, together, tuple(entries(cases["alone"], alone)))


def run(suite: Suite) -> list[Row]:
    """Run what is not there yet; write rows and the tables of :func:`publish`.

    Returns:
        All rows of the suite's folder.
    """
    deadline = monotonic() + suite.seconds
    report = environment(suite.device)
    for words in warnings(report):
        console().print(f"[yellow]{words}[/]")
    write_json(suite.folder / "environment.json", report, indent=1)
    with Planners(suite.planners) as planners:
        for models in (suite.models, suite.later):
            _run(suite, models, planners, deadline)
    return publish(suite)


def _run(suite: Suite, models: tuple[SuiteModel, ...], planners: Planners, deadline: float) -> None:
    """Plan and measure what models lack."""
    coming = deque(_unfinished(models))
    waiting: deque[Prepared] = deque()
    while coming or waiting:
        if coming and len(waiting) < AHEAD.get(suite.device, 2) and monotonic() < deadline:
            prepared = _prepared(coming.popleft(), planners, deadline)
            waiting.extend([] if prepared is None else [prepared])
        elif waiting:
            # An equal share of what is left, for models to come as for this one.
            now = monotonic()
            share = now + (deadline - now) / (len(waiting) + len(coming))
            _measure(suite, waiting.popleft(), share)
        else:
            break


def _prepared(model: SuiteModel, planners: Planners, deadline: float) -> Prepared | None:
    console().print(f"{model.folder.name}: capture and profile")
    _use_numerics(model)
    return prepare(model, planners, deadline)


def _use_numerics(model: SuiteModel) -> None:
    """A model's own: others are captured, or measured, between."""
    if model.base.device != "cpu":
        use_numerics(**model.base.numerics)


def _measure(suite: Suite, prepared: Prepared, deadline: float) -> None:
    _use_numerics(prepared.model)
    measure_together(prepared, deadline, suite.cuda_graphs)
    publish(suite)


def _unfinished(models: tuple[SuiteModel, ...]) -> Iterator[SuiteModel]:
    """Models with the rows that they still lack; checkpoint-all is always measured again."""
    for model in models:
        entries = [entry for entry in model.entries if not entry.finished]
        alone = [entry for entry in model.alone if not entry.finished]
        if entries or alone:
            first = model.entries[0]
            rest = tuple(entry for entry in entries if entry is not first)
            yield replace(model, entries=(first, *rest), alone=tuple(alone))


def publish(suite: Suite) -> list[Row]:
    """Write ``leaderboard.csv``, ``summary.csv`` and ``headlines.csv`` from the rows."""
    rows = find_rows([suite.folder]) if any(suite.folder.rglob("row.json")) else []
    write_leaderboard(suite.folder / "leaderboard.csv", rows)
    summarise(rows).to_csv(suite.folder / "summary.csv", index=False)
    headlines(rows).to_csv(suite.folder / "headlines.csv", index=False)
    return rows


def _work(config: Config) -> None:
    rows = run(suite_from({**config, "group": HydraConfig.get().runtime.choices["cases"]}))
    if rows:
        Console(width=None if console().is_terminal else 140).print(table(summarise(rows)))


def main() -> None:
    """The ``rematbench-suite`` command."""
    command("rematbench-suite", "suite", CommandTask(_work))


if __name__ == "__main__":
    main()
