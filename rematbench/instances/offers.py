"""What is sent to the library: a plan file, a bound file, or runs of ours."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError, InvalidPlan, PlanError
from rematbench.base.origin import one_line, printable
from rematbench.graphs.files import read_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import NONE, Link
from rematbench.graphs.plan import Plan, in_program_order
from rematbench.graphs.simulate import Trace, check_draws, simulate
from rematbench.instances.evidence import (
    Evidence,
    credit,
    is_bound_file,
    of_run,
    options_of,
    read_bound,
)
from rematbench.instances.records import Library, LibraryProblem, graph_name
from rematbench.report.pages.lanes import link_of
from rematbench.rows.row import Row, read_row

LONGEST = 300
"""Characters of a name."""
_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("model", "strategy", "status", "utc"), (str,)),
    **dict.fromkeys(("graph_hash", "bound_of", "commit", "versions"), (str, type(None))),
    **dict.fromkeys(("budget_bytes", "seed"), (int, type(None))),
    "bound": (int, float, type(None)),
    "extra": (dict,),
}
"""Of what is read of a row."""
_EXTRA_KINDS: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("time_limit", "plan_cpu_seconds"), (int, float, type(None))),
    "no_plan_in": (list,),
    "plan_hash": (str, type(None)),
    "link": (dict, str, type(None)),
}
_LINK_KINDS = dict.fromkeys(("out", "in", "latency"), (int, float, type(None)))


@dataclass(frozen=True)
class Submission:
    """What somebody sends.

    Attributes:
        where: the file that is named in messages.
        plan: of the file, or of the run; None where it found none.
        row: of the run, or of a bound file, which is of no run; None for a plan alone.
        by: who sends it.
        date: of the run, or today.
        graph: the name of its graph.
        evidence: what is kept with its bound.
        is_run: has a run of ours made it?

    Raises:
        ConfigError: ``by`` is no name that a line of a table can hold.
    """

    where: Path
    plan: Plan | None
    row: Row | None
    by: str
    date: str
    graph: str
    evidence: Evidence = field(default_factory=dict)
    is_run: bool = True

    def __post_init__(self) -> None:
        if self.by != printable(self.by) or not 0 < len(self.by) <= LONGEST:
            raise ConfigError(
                f"{self.where}: {printable(self.by)[:60]!r} is no name for a record; say who made "
                f"it in one line of at most {LONGEST} printable characters, with single spaces"
            )

    @property
    def budget(self) -> int | None:
        """Bytes: that the plan or the run was for; None: as many as it wants."""
        if self.row is not None:
            return self.row["budget_bytes"]
        return None if self.plan is None else self.plan.budget_bytes


def files_of(place: Path) -> list[Path]:
    """A plan or bound file; or all under a folder, and the row of every run (of a sweep, say).

    Raises:
        ConfigError: there is nothing.
    """
    if place.is_file():
        return [place]
    others = ("row.json", "*.bound.json", "*.bound.json.gz")
    found = [p for each in others for p in place.rglob(each)] + plan_files(place)
    if not found:
        raise ConfigError(
            f"{place}: no plan file, nor a folder of some or of runs; give *.plan.json or a run"
        )
    return sorted(found)


def plan_files(folder: Path) -> list[Path]:
    """All plan files below a folder, by name; those of runs are none."""
    return sorted([*folder.rglob("*.plan.json"), *folder.rglob("*.plan.json.gz")])


def read_offer(path: Path, by: str | None, today: str) -> Submission:
    """What a file offers.

    Args:
        path: one of :func:`files_of`.
        by: who sends it; None: as the file says.
        today: ISO date, for what tells none.

    Raises:
        ConfigError: a row or a bound file is bad.
        PlanError: a plan file is bad.
    """
    if path.name == "row.json":
        return _of_run(path, by)
    if is_bound_file(path):
        row, told = read_bound(path)
        told = {**told, "by": by or told["by"]}
        return Submission(path, None, row, told["by"], today, told["graph"], told, False)
    try:
        plan = read_plan(path)
    except PlanError as error:
        if path.name.endswith((".plan.json", ".plan.json.gz")):
            raise
        raise PlanError(f"{error}; a bound's file is named NAME.bound.json") from None
    return Submission(path, plan, None, by or plan.strategy or "unknown", today, plan.graph)


def _of_run(path: Path, by: str | None) -> Submission:
    row, file = read_row(path), path.with_name("plan.json")
    _check_row(path, row)
    told = of_run(row, options_of(path, row))
    run = credit(told)
    plan = read_plan(file) if file.is_file() and row["status"] == "ok" else None
    name, day = (f"{by}, {run}" if by else run), str(row["utc"])[:10]
    return Submission(path, plan, row, name, day, str(row["model"]), told)


def _check_row(path: Path, row: Row) -> None:
    """Is what is read of a row what it must be? Its program wrote it, or somebody by hand."""
    _check_kinds(path, row, _KINDS)
    _check_kinds(path, row["extra"], _EXTRA_KINDS)
    if isinstance(link := row["extra"].get("link"), dict):
        _check_kinds(path, link, _LINK_KINDS)


def _check_kinds(
    path: Path, told: Mapping[str, Any], kinds: Mapping[str, tuple[type, ...]]
) -> None:
    for name, value in told.items():
        endless = isinstance(value, float) and not math.isfinite(value)
        if name in kinds and (endless or not isinstance(value, kinds[name])):
            raise ConfigError(f"{path}: {name}={value!r} is none of a row; run its job again")


def judged(offer: Submission, graph: Graph, link: Link, most: int | None) -> Trace:
    """What the simulator says of an offer's plan.

    Args:
        most: bytes that it may take; None: as many as it wants.

    Raises:
        ConfigError: it is not valid, over its budget, or out of program order.
    """
    assert offer.plan is not None
    try:
        trace = simulate(graph, offer.plan, link)
        check_draws(graph, offer.plan)
    except InvalidPlan as error:
        raise ConfigError(f"{offer.where}: the plan is not valid: {one_line(error)}") from None
    if not in_program_order(graph, offer.plan):
        raise ConfigError(
            f"{offer.where}: first computes are not in program order, for which bounds are proven; "
            "keep to it"
        )
    if most is not None and trace.peak_bytes > most:
        raise ConfigError(
            f"{offer.where}: over budget: the plan peaks at {trace.peak_bytes} bytes, of "
            f"{most} allowed"
        )
    return trace


def problems_of(offer: Submission, library: Library) -> list[LibraryProblem]:
    """The problems that an offer may be of.

    Raises:
        ConfigError: the library has none of its graph, budget or link.
    """
    names = {graph_name(each.graph) for each in library.instances.values()}
    if offer.graph not in names:
        hint = did_you_mean(offer.graph, names)
        raise ConfigError(
            f"{offer.where}: graph {offer.graph!r} is not in the library; {hint}plan on one of "
            "its files (`rematbench-instances list`)"
        )
    problems = _of_link(offer, library.of_graph(offer.graph))
    budgets = sorted({each.budget_bytes for each in problems})
    if offer.budget not in (None, *budgets):
        raise ConfigError(
            f"{offer.where}: {offer.graph} has no instance of budget {offer.budget}; it has "
            f"{', '.join(map(str, budgets))}"
        )
    return problems


def _of_link(offer: Submission, problems: Sequence[LibraryProblem]) -> list[LibraryProblem]:
    """Of a run those with its link; of a plan alone all."""
    if offer.row is None:
        return [*problems]
    link = link_of(offer.row) or NONE
    found = [each for each in problems if each.host_link == link]
    if not found:
        links = sorted({_told(each.host_link) for each in problems})
        remedy = "plan with one of them, or submit the plan alone"
        if not offer.is_run:
            remedy = 'name one of them, as "link": 12, or none'
        raise ConfigError(
            f"{offer.where}: planned with {_told(link)}, the library's problems of {offer.graph} "
            f"have {', '.join(links)}; {remedy}"
        )
    return found


def _told(link: Link) -> str:
    """A link in words."""
    if link == NONE:
        return "no link"
    return f"a link of {link.out:g} out, {link.into:g} in and latency {link.latency:g}"
