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
from collections.abc import Iterator, Mapping, Sequence
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
from rematbench.jobs.settings import Settings, settings_from
from rematbench.rows.row import Row, find_rows, write_leaderboard
from rematbench.rows.shown import console
from rematbench.strategies import registry
from rematbench.strategies.cards import Turn
from rematbench.suite.environment import environment, warnings
from rematbench.suite.measure import measure_together
from rematbench.suite.plan import Aside, PlannedRow, Planners, Prepared, SuiteModel, prepare
from rematbench.suite.summary import headlines, summarise, table

EXPERIMENT = "suite"
"""What its rows say that made them; their group is the chosen ``cases=``."""
AHEAD = {"cpu": 1}
"""Models that have their planners at work, 2 elsewhere: on a CPU none while another is timed."""
ROUND = 4
"""Strategies of a later round: of fewer, eager training would be timed again for each."""


@dataclass(frozen=True)
class Suite:
    """What to run.

    Attributes:
        models: each with its rows to be.
        later: the same models with the rows that ``cases.first`` leaves for the time that is left:
            rounds of :data:`ROUND` strategies, in its order.
        folder: of the rows.
        device: cpu or an accelerator's name.
        seconds: after which nothing new begins.
        planners: processes; None for one per core but two.
        cuda_graphs: replay each plan as a CUDA graph, too.
    """

    models: tuple[SuiteModel, ...]
    later: tuple[tuple[SuiteModel, ...], ...]
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
    bases = [_base(config, list(given), folder) for given in cases["models"]]
    order = list(cases.get("first") or {})
    rounds = [order[begin : begin + ROUND] for begin in range(0, len(order), ROUND)]
    return Suite(
        models=tuple(_model(cases, *base, None) for base in bases),
        later=tuple(_asked(_model(cases, *base, each) for base in bases) for each in rounds),
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


def _asked(models: Iterator[SuiteModel]) -> tuple[SuiteModel, ...]:
    """Those of which a round has rows."""
    return tuple(model for model in models if model.entries or model.alone)


def _base(config: Mapping[str, Any], given: list[str], folder: Path) -> tuple[Settings, Path]:
    """Checkpoint-all's job of a model, and the folder of the model's rows."""
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
    return base, folder / "-".join([*parts, *(key for key, on in base.numerics.items() if on)])


def _model(
    cases: Mapping[str, Any], base: Settings, place: Path, late: Sequence[str] | None
) -> SuiteModel:
    """A model of the suite, with its rows to be: strategies x budgets.

    Args:
        late: of these strategies, where ``cases.first`` does not name the model for them; None: of
            those that come at first, checkpoint-all before all others.
    """
    only, sooner = cases.get("only") or {}, cases.get("first") or {}

    def asked(strategy: str) -> bool:
        soon = place.name in sooner.get(strategy, [place.name])
        now = soon if late is None else strategy in late and not soon
        return now and place.name in only.get(strategy, [place.name])

    def entries(strategies: list[str], budgets: list[float]) -> Iterator[PlannedRow]:
        for strategy in filter(asked, strategies):
            for budget in budgets:
                job = replace(with_strategy(base, strategy), budget=parse_budget(budget))
                yield PlannedRow(job, place / f"{strategy}-{budget:g}")

    first = PlannedRow(base, place / base.strategy)
    together = (() if late else (first,)) + tuple(entries(cases["strategies"], cases["budgets"]))
    alone = cases.get("alone_budgets") or cases["budgets"]
    return SuiteModel(base, place, first, together, tuple(entries(cases["alone"], alone)))


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
    aside = Aside()
    with Planners(suite.planners) as planners:
        for models in (suite.models, *suite.later):
            _run(suite, models, planners, deadline, aside)
    return publish(suite)


def _run(
    suite: Suite,
    models: tuple[SuiteModel, ...],
    planners: Planners,
    deadline: float,
    aside: Aside,
) -> None:
    """Plan and measure what models lack."""
    coming = deque(_unfinished(models))
    waiting: deque[Prepared] = deque()
    while coming or waiting:
        if coming and len(waiting) < AHEAD.get(suite.device, 2) and monotonic() < deadline:
            prepared = _prepared(coming.popleft(), planners, deadline, aside)
            waiting.extend([] if prepared is None else [prepared])
        elif waiting:
            # An equal share of what is left, for models to come as for this one.
            now = monotonic()
            share = now + (deadline - now) / (len(waiting) + len(coming))
            _measure(suite, waiting[0], share)
            aside.put(waiting.popleft())
        else:
            break


def _prepared(
    model: SuiteModel, planners: Planners, deadline: float, aside: Aside
) -> Prepared | None:
    if model.folder not in aside:
        console().print(f"{model.folder.name}: capture and profile")
    _use_numerics(model)
    return prepare(model, planners, deadline, aside)


def _use_numerics(model: SuiteModel) -> None:
    """A model's own: others are captured, or measured, between."""
    if model.base.device != "cpu":
        use_numerics(**model.base.numerics)


def _measure(suite: Suite, prepared: Prepared, deadline: float) -> None:
    _use_numerics(prepared.model)
    measure_together(prepared, deadline, suite.cuda_graphs)
    publish(suite)


def _unfinished(models: tuple[SuiteModel, ...]) -> Iterator[SuiteModel]:
    """Models with the rows that they still lack."""
    for model in models:
        entries = tuple(entry for entry in model.entries if not entry.finished)
        alone = tuple(entry for entry in model.alone if not entry.finished)
        if entries or alone:
            yield replace(model, entries=entries, alone=alone)


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
