"""What a row says before anything ran: names and options, by which it is told from others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from rematbench.cli.plugins import register_plugins
from rematbench.cli.resolvers import register_resolvers
from rematbench.jobs.first_row import first_row
from rematbench.jobs.handed_over import HandedOver, is_there
from rematbench.jobs.settings import settings_from
from rematbench.report.leaderboard.board import problem
from rematbench.report.pages.compact import problems
from rematbench.rows.row import Row
from rematbench.worker import cache


@pytest.fixture(autouse=True)
def hydra() -> Iterator[None]:
    register_resolvers()
    register_plugins()
    with initialize_config_module("rematbench.conf", version_base="1.3"):
        yield


def row_of(*words: str) -> Row:
    made = compose("config", list(words), return_hydra_config=True)
    strategy = str(made.hydra.runtime.choices.strategy)
    OmegaConf.set_struct(made, False)
    del made["hydra"]
    plain: Any = OmegaConf.to_container(made, resolve=True, throw_on_missing=True)
    return first_row(settings_from(plain, strategy))


def test_options_that_are_no_defaults() -> None:
    chain = "model=unit_chain"
    assert "strategy_options" not in row_of(chain, "strategy=chain_dp")["extra"]
    told = row_of(chain, "strategy=chain_dp", "strategy.slots=20")["extra"]
    assert told["strategy_options"] == {"slots": 20}


def test_a_class_in_place_of_a_named_strategy_has_its_own_name() -> None:
    told = row_of("model=unit_chain", "strategy._target_=mine.Mine", "+strategy.keep=3")
    assert told["strategy"] == "mine.Mine"
    assert told["extra"]["strategy_options"] == {"keep": 3}


def test_random_graphs_are_told_apart() -> None:
    one, two = (
        row_of("model=random_layered", f"model.seed={seed}", "budget=0.5") for seed in (0, 1)
    )
    assert one["extra"]["options"] == {
        **{"width": 0.36, "variability": 0.75, "density": 0.2, "skips": 0.14, "seed": 0}
    }
    assert problem(one) != problem(two)


def test_links_are_told_apart() -> None:
    """On the leaderboard, and on a report's page."""
    rows = []
    for rate in (1, 2):
        row = row_of("model=unit_chain", "budget=0.5")
        link = {"name": "given", "out": rate, "in": rate, "latency": 0.0, "shared": False}
        rows.append(row | {"extra": row["extra"] | {"link": link}})
    assert problem(rows[0]) == (
        "unit_chain, batch None, length=16 (given, link given, 1 and 1) at 0.5"
    )
    assert len({problem(row) for row in rows}) == 2
    assert len({*problems(rows)[1]}) == 2


def test_what_a_killed_planner_left_is_not_the_next_ones(tmp_path: Path) -> None:
    for name in ("handed_over.json", "handed_over.plan.json", "plan.json", "row.json"):
        (tmp_path / name).write_text("{}")
    assert is_there(tmp_path)
    cache.clear(tmp_path)
    assert [*tmp_path.iterdir()] == []
    assert HandedOver(tmp_path).latest is None


def test_each_command_has_a_folder_of_its_own() -> None:
    """Two that begin in the same second, too."""
    made = compose("config", ["model=unit_chain"], return_hydra_config=True)
    raw = OmegaConf.to_container(made.hydra, resolve=False)
    assert all("%f" in raw[key]["dir"] for key in ("run", "sweep"))
