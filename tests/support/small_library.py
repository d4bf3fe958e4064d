"""A small library in a folder of its own, its command, and what is sent to it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

import pytest

from rematbench.engines.plans.stages import plan_with_checkpoints
from rematbench.graphs.builders.synthetic import join, unit_chain
from rematbench.graphs.files import write_graph, write_plan
from rematbench.graphs.floors import once_floor
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.instances import app
from rematbench.instances.records import LibraryProblem
from rematbench.instances.table import write_table
from rematbench.rows.row import make_row, write_row

CHAIN = unit_chain(8)
JOIN = join([2, 3])
VERSIONS = "python 3.11.7; rematbench 0.1.0"
Command = Callable[..., tuple[int, str]]


def problems(graph: Graph, family: str, budgets: list[int], hundred: int) -> list[LibraryProblem]:
    facts = (len(graph.ops), len(graph.values), graph.floor_bytes(), once_floor(graph)[0])
    peak = simulate(graph, program_order(graph)).peak_bytes
    path = f"{family}/{graph.name}.graph.json.gz"
    return [
        LibraryProblem(f"{graph.name}@{n}", path, budget, family, *facts, peak, hundred)
        for n, budget in enumerate(budgets, 1)
    ]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A library of a chain with three budgets and a join with two."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "instances"
    rows = [*problems(CHAIN, "chains", [5, 7, 9], 1), *problems(JOIN, "joins", [5, 7], 0)]
    columns = [field.name for field in fields(LibraryProblem)]
    table = [dict(zip(columns, astuple(row), strict=True)) for row in rows]
    write_graph(folder / rows[0].graph, CHAIN)
    write_graph(folder / rows[3].graph, JOIN)
    write_table(folder / "problems.csv", columns, table)
    return folder


@pytest.fixture
def command(place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> Command:
    def run(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["rematbench-instances", *map(str, words)])
        code = 0
        try:
            app.main()
        except SystemExit as exit_:
            code = int(exit_.code or 0)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return run


def chain_plan(*kept: int) -> Plan:
    """The chain's plan that keeps some layers and recomputes the others from them."""
    plan = plan_with_checkpoints(CHAIN, list(kept))
    return Plan(plan.statements, CHAIN.name, "by_hand")


def plan_file(plan: Plan, budget: int | None, name: str = "mine.plan.json") -> Path:
    path = Path(name)
    write_plan(path, plan.labelled("by_hand", budget))
    return path


def run_folder(plan: Plan, name: str = "run", **columns: Any) -> Path:
    """A run as ``rematbench`` leaves it."""
    folder = Path(name)
    trace = simulate(CHAIN, plan)
    extra = {"time_limit": 1.0, "plan_hash": plan.hash(CHAIN), "plan_cpu_seconds": 0.5}
    known = {
        "model": CHAIN.name,
        "graph_hash": CHAIN.hash,
        "strategy": "anytime",
        "budget_bytes": trace.peak_bytes,
        "status": "ok",
        "cost": trace.cost,
        "peak_bytes": trace.peak_bytes,
        "checkpoint_all_cost": 17.0,
        "overhead": trace.cost / 17 - 1,
        "versions": VERSIONS,
        "utc": "2026-01-31T12:00:00Z",
        "extra": extra | columns.pop("extra", {}),
    }
    write_row(folder / "row.json", make_row(**(known | columns)))
    write_plan(folder / "plan.json", plan.labelled("anytime", trace.peak_bytes))
    return folder


def peak_and_cost(plan: Plan) -> tuple[int, float]:
    trace = simulate(CHAIN, plan)
    return trace.peak_bytes, trace.cost


FOUR, SPARSE = chain_plan(1, 3, 5), chain_plan(3)
TWICE = Plan([*FOUR.statements[:1] * 2, *FOUR.statements], CHAIN.name)
"""No plan of space 9: it computes an op twice in a stage."""
