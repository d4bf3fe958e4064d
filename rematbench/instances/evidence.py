"""What a bound rests on: kept for each record, so that whoever doubts it can prove it again.

Of a run of ours that is what its row says of the program and its options; of anybody else's a
**bound file**, which whoever proved the bound writes::

    {"format": "rematbench-bound", "version": 1, "graph": "unit_chain16", "budget_bytes": 5,
     "bound": 51, "bound_of": "any", "by": "A. Person", "proof": "program, version, command; where"}

``"bound": null`` says that the space ``bound_of`` has no plan within the budget.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.base.json_files import read_json
from rematbench.graphs.ir import Graph
from rematbench.instances.records import BestKnown, whole_bound
from rematbench.rows.row import Row, cells, make_row

FORMAT = "rematbench-bound"
SPACES = ("any", "9", "F", "C")
"""Of bounds, the widest first."""
NEEDED = "each needed op once"
"""The credit of the least bound that there is; its proof is the graph."""
_OF_ROW = (
    *("strategy", "variant", "status", "graph_hash", "budget_bytes", "bound", "bound_of", "seed"),
    *("threads", "solver", "versions", "commit", "utc"),
)
_OF_EXTRA = ("time_limit", "plan_cpu_seconds", "no_plan_in", "bound_by", "computes", "machine")
_DECIDED = (
    *("model", "budget", "strategy", "time_limit", "link"),  # told elsewhere
    *("launch", "force", "cache", "hydra"),  # of no consequence
)
_VERSION = re.compile(r"rematbench [^;\s]+")
Evidence = Mapping[str, Any]


def credit(row: Row, options: Sequence[str]) -> str:
    """Who made a run's plan and bound: strategy, seconds, version, commit and options.

    Args:
        options: as they were given.
    """
    made = _VERSION.search(str(row["versions"]))
    program = " ".join(filter(None, [made[0] if made else "rematbench", row["commit"]]))
    more = f", {' '.join(options)}" if options else ""
    return f"{row['strategy']} ({row['extra'].get('time_limit', 0):g} s, {program}{more})"


def options_of(path: Path, row: Row) -> tuple[str, ...]:
    """What a run was given beside problem, strategy and time.

    Args:
        path: of its row; the run's folder has the words of the command line, where there was one.
    """
    words = path.with_name(".hydra") / "overrides.yaml"
    if words.is_file():
        given = (str(word) for word in OmegaConf.load(words))
        return tuple(word for word in given if not _is_decided(word.partition("=")[0]))
    return (f"seed={row['seed']}",) if row["seed"] else ()


def _is_decided(key: str) -> bool:
    return key.partition(".")[0] in _DECIDED and not key.startswith("strategy.")


def of_run(row: Row, options: Sequence[str]) -> Evidence:
    """What is kept of a run."""
    known = {name: cells(row)[name] for name in _OF_ROW}
    known |= {name: row["extra"].get(name) for name in _OF_EXTRA}
    found = {name: value for name, value in known.items() if value is not None}
    return found | {"options": [*options]}


def read_bound(path: Path) -> tuple[Row, Evidence]:
    """A bound file, as a row and as what is kept of it.

    Raises:
        ConfigError: it says too little, or something else.
    """
    told = read_json(path, ConfigError)
    _check_bound_file(path, told)
    space, bound = told["bound_of"], told["bound"]
    known: dict[str, Any] = {"status": "time_limit", "bound": bound, "bound_of": space}
    if bound is None:
        known = {"status": "infeasible", "extra": {"no_plan_in": [space]}}
    return make_row(model=told["graph"], budget_bytes=told["budget_bytes"], **known), told


def _check_bound_file(path: Path, told: Any) -> None:
    if not isinstance(told, dict) or (told.get("format"), told.get("version")) != (FORMAT, 1):
        raise ConfigError(f'{path}: no bound; its "format" must be "{FORMAT}", its "version" 1')
    needed = {"graph": str, "budget_bytes": int, "by": str, "proof": str, "bound_of": str}
    for name, kind in needed.items():
        if not (isinstance(told.get(name), kind) and told[name]):
            raise ConfigError(f"{path}: {name}={told.get(name)!r}: give {', '.join(needed)}, bound")
    space, bound = told["bound_of"], told.get("bound", "")
    if space not in SPACES:
        raise ConfigError(f"{path}: bound_of={space!r}: give one of {', '.join(SPACES)}")
    if type(bound) not in (int, float, type(None)):
        raise ConfigError(f"{path}: bound={bound!r}: give a number, or null where no plan is")


def proven(old: BestKnown, bound: int | None, space: str, by: str | None, date: str) -> BestKnown:
    """A record with a new bound; with None, with a proof that the space has no plan."""
    return replace(old, bound=bound, bound_of=space, bound_by=by, bound_date=date)


def is_bound_file(path: Path) -> bool:
    """Is it one, by its name?"""
    return path.name.endswith((".bound.json", ".bound.json.gz"))


def fault_of(told: Evidence, bound: int | None, space: str | None, budget: int) -> str | None:
    """Where kept evidence is not of a record: what is wrong.

    Args:
        bound, space: of the record; no bound: that the space has no plan.
        budget: of the record, in bytes.
    """
    if not isinstance(told.get("budget_bytes"), int) or told["budget_bytes"] < budget:
        return f"is for a budget of {told.get('budget_bytes')} bytes, the record's is {budget}"
    stated = told.get("bound")
    if bound is None:
        spaces = told.get("no_plan_in", [told.get("bound_of")] if stated is None else [])
        return None if space in spaces else f"does not say that {space} has no plan"
    if stated is None or (whole_bound(stated), told.get("bound_of")) != (bound, space):
        said = f"{stated} ({told.get('bound_of')})"
        return f"is of the bound {said}, the record's is {bound} ({space})"
    return None


def needed_once(graph: Graph) -> int:
    """The least bound that there is: what every plan computes, once, the cheapest way."""
    tables = graph.tables
    least = np.minimum.reduceat(tables.cost, tables.op_first[:-1])
    return int(least[graph.always_needed_ops()].sum())
