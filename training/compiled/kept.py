"""Plans that are kept on disk for the next run."""

from __future__ import annotations

import hashlib
import json
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

from rematbench.base.cache_dirs import FOR_THE_USER
from rematbench.base.errors import ConfigError, PlanError, UnwritableError
from rematbench.base.kernels import digest
from rematbench.graphs.files import read_plan, write_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import Plan
from rematbench.training.compiled.judging import Judge, Made
from rematbench.training.compiled.options import Options

_NEAREST = 2
"""Plans for smaller budgets that are looked at."""
_log_user = logging.getLogger(FOR_THE_USER)


def place_of(graph: Graph, options: Options, allowed: int, rules: str) -> Path | None:
    """Where the plan of a graph is kept: by graph and costs, strategy, budget and versions.

    Args:
        rules: a hash of the code that plans.
    """
    if options.cache is None:
        return None
    module = type(options.plan).__module__
    file = getattr(sys.modules.get(module), "__file__", None)
    text = {
        "graph": graph.hash,
        "torch": torch.__version__,
        "code": None if file is None else digest(module, file),
        "rules": rules,
        **options.key(),
    }
    name = hashlib.sha256(json.dumps(text, sort_keys=True).encode()).hexdigest()[:24]
    return options.cache / "plans" / f"{name}-{allowed}.json"


def recalled(place: Path | None, judge: Judge) -> Made | None:
    """The plan that is kept there; None: there is none that fits."""
    if place is None or not place.exists():
        return None
    try:
        made = judge.judged(read_plan(place))
        if not judge.fits(made):
            raise PlanError(f"{place}: its plan is above the budget")
    except (PlanError, ConfigError) as error:
        _log_user.warning("%s: dropped from the cache, planned again", error)
        place.unlink(missing_ok=True)
        return None
    return made


def for_less(place: Path | None, judge: Judge) -> Iterator[Made]:
    """Plans that are kept of the same graph for smaller budgets, the largest first."""
    if place is None or judge.allowed is None:
        return
    pattern = f"{place.stem.partition('-')[0]}-*.json"
    kept = {int(path.stem.partition("-")[2]): path for path in place.parent.glob(pattern)}
    for size in sorted((each for each in kept if each < judge.allowed), reverse=True)[:_NEAREST]:
        made = recalled(kept[size], judge)
        if made is not None:
            yield made


def remember(place: Path | None, plan: Plan) -> None:
    """Keep a plan for the next run."""
    if place is None:
        return
    try:
        write_plan(place, plan)
    except UnwritableError as error:
        _log_user.warning("the plan is not kept: %s", error)


def remember_part(judge: Judge, plan: Plan, rules: str) -> None:
    """Keep the plan of a step's only call as one of its graph, too: it fits where it peaks.

    Args:
        judge: of the graph by itself.
        rules: see :func:`place_of`.
    """
    made = judge.judged(plan)
    remember(place_of(judge.graph, judge.options, made.peak, rules), plan)
