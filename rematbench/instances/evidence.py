"""What a bound rests on: kept for each record, so that whoever doubts it can prove it again.

Of a run of ours that is what its row says of the program and its options; of anybody else's a
**bound file**, which whoever proved the bound writes::

    {"format": "rematbench-bound", "version": 1, "graph": "unit_chain16", "budget_bytes": 5,
     "bound": 51, "bound_of": "any", "by": "A. Person", "proof": "program, version, command; where"}

``"bound": null`` says that the space ``bound_of`` has no plan within the budget. Of space ``C``,
``"computes"`` is the number; of a problem for two memories, ``"link"`` its link.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
from omegaconf import OmegaConf

from rematbench.base.errors import ConfigError
from rematbench.base.json_files import read_json
from rematbench.graphs.ir import Graph
from rematbench.instances.records import COPY, QUICK, BestKnown, whole_bound
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
_MOST = 2**53
"""Cost units: sums of no more are exact."""
Evidence = Mapping[str, Any]


def credit(told: Evidence) -> str:
    """Who made a run's plan and bound: strategy, seconds, version, commit and options.

    Args:
        told: what is kept of it (:func:`of_run`).
    """
    made = _VERSION.search(str(told.get("versions")))
    program = " ".join(filter(None, [made[0] if made else "rematbench", told.get("commit")]))
    more = f", {' '.join(told['options'])}" if told["options"] else ""
    limit = told.get("time_limit")
    spent = "no limit" if limit is None else f"{limit:g} s"
    return f"{told['strategy']} ({spent}, {program}{more})"


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
    space, bound, link = told["bound_of"], told["bound"], told.get("link")
    extra: dict[str, Any] = {"no_plan_in": [space]} if bound is None else {}
    if link is not None:
        extra["link"] = {"out": link, "in": link, "latency": COPY}
    known = {"model": told["graph"], "budget_bytes": told["budget_bytes"], "extra": extra}
    if bound is None:
        return make_row(status="infeasible", **known), told
    return make_row(status="time_limit", bound=bound, bound_of=space, **known), told


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
    _check_numbers(path, told, space, bound)


def _check_numbers(path: Path, told: Any, space: str, bound: Any) -> None:
    if bound is not None and not (_is_number(bound) and 0 <= bound < _MOST):
        raise ConfigError(f"{path}: bound={bound!r}: give a number, or null where no plan is")
    for name, where in (("computes", space == "C"), ("link", told.get("link") is not None)):
        if where and not (type(told.get(name)) is int and told[name] > 0):
            raise ConfigError(f"{path}: {name}={told.get(name)!r}: give a whole number above 0")


def _is_number(value: object) -> TypeGuard[float]:
    return type(value) is int or (type(value) is float and math.isfinite(value))


def proven(old: BestKnown, bound: int | None, space: str, by: str | None, date: str) -> BestKnown:
    """A record with a new bound; with None, with a proof that the space has no plan."""
    return replace(old, bound=bound, bound_of=space, bound_by=by, bound_date=date)


def is_bound_file(path: Path) -> bool:
    """Is it one, by its name?"""
    return path.name.endswith((".bound.json", ".bound.json.gz"))


def fault_of(told: Any, record: BestKnown, graph: Graph) -> str | None:
    """Where kept evidence is not of a record: what is wrong.

    Args:
        told: what the file holds.
        record: with no bound where its space has no plan.
    """
    if not isinstance(told, dict):
        return "is no JSON object"
    if fault := _fault_of_proof(told, record) or _fault_of_origin(told, record, graph):
        return fault
    return _fault_of_quick_run(told, record) if record.status == "easy" else None


def _fault_of_proof(told: Evidence, record: BestKnown) -> str | None:
    """Is it of that budget, bound and space?"""
    given, stated = told.get("budget_bytes"), told.get("bound")
    bound, space, budget = record.bound, record.bound_of, record.budget_bytes
    unlimited = given is None and "strategy" in told  # a run that might take what it wanted
    if not unlimited and (type(given) is not int or given < budget):
        return f"is for a budget of {given} bytes, the record's is {budget}"
    if bound is None:
        return None if space in _without(told) else f"does not say that {space} has no plan"
    if space == "C" and type(told.get("computes")) is not int:
        return "does not say how often a plan of space C may compute an op"
    if not _is_number(stated) or (whole_bound(stated), told.get("bound_of")) != (bound, space):
        said = f"{stated} ({told.get('bound_of')})"
        return f"is of the bound {said}, the record's is {bound} ({space})"
    return None


def _fault_of_origin(told: Evidence, record: BestKnown, graph: Graph) -> str | None:
    """Is it of that graph, and by whom the record credits?"""
    key, known = ("graph_hash", graph.hash) if "strategy" in told else ("graph", graph.name)
    if told.get(key) != known:
        return f"is of {key} {told.get(key)}, the record's is {known}"
    try:
        by = credit(told) if "strategy" in told else told["proof"] and told["by"]
    except (KeyError, TypeError, ValueError):
        by = None
    if not by or not str(record.bound_by).endswith(by):
        return f"is by {by or 'nobody'}, the record's bound by {record.bound_by}"
    return None


def _fault_of_quick_run(told: Evidence, record: BestKnown) -> str | None:
    """Is an easy problem's of a quick run at its own budget?"""
    if told.get("budget_bytes") != record.budget_bytes:
        return "is for another budget; an easy problem is closed by a run of its own"
    seconds = told.get("plan_cpu_seconds")
    if _is_number(seconds) and seconds <= QUICK:
        return None
    return f"took {seconds} processor seconds; an easy problem is closed in {QUICK:g}"


def _without(told: Evidence) -> list[Any]:
    """The spaces that have no plan."""
    spaces = told.get("no_plan_in", [told.get("bound_of")] if told.get("bound") is None else [])
    return spaces if isinstance(spaces, list) else []


def needed_once(graph: Graph) -> int:
    """The least bound that there is: what every plan computes, once, the cheapest way."""
    tables = graph.tables
    least = np.minimum.reduceat(tables.cost, tables.op_first[:-1])
    return int(least[graph.always_needed_ops()].sum())
