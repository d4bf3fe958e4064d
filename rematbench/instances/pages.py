"""The library's pages: one for each graph, with the records of its budgets, and a list of all.

Each page is complete in itself: no script, no file but the other pages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from operator import attrgetter

from jinja2 import Environment, PackageLoader, StrictUndefined

from rematbench.base.errors import RematbenchError
from rematbench.base.sizes import size
from rematbench.graphs.files import read_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import Trace, simulate
from rematbench.instances.difficulty import Effect, all_reasons, effects
from rematbench.instances.drawn_graph import drawn_graph
from rematbench.instances.pictures import DEAREST, budget_curve, plan_picture, swatch
from rematbench.instances.records import (
    STATUSES,
    BestKnown,
    Library,
    LibraryProblem,
    graph_name,
    is_without_plan,
)
from rematbench.instances.strategy_plans import StrategyPlan, StrategyRows, by_strategy
from rematbench.instances.tally import by_space
from rematbench.report.leaderboard.names import label

LARGEST = 300_000
"""Bytes of a graph's page at most."""
_COLUMNS = (
    *("budget", "of the peak", "best value", "overhead", "by", "date", "bound", "of", "gap"),
    *("status", "why it is hard"),
)
Told = Mapping[str, Sequence[str]]
"""Why a problem is hard, by instance."""
_SPACES = {"any": "any plan", "9": "problem 9", "F": "problem F", "C": "problem C"}


@cache
def _templates() -> Environment:
    return Environment(
        loader=PackageLoader("rematbench.instances"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def pages(library: Library, rows: StrategyRows | None = None) -> dict[str, str]:
    """Every page's HTML, by its file's name.

    Args:
        rows: of strategies, which stand beside the records.

    Raises:
        RematbenchError: a graph or plan file is bad, or a graph's page is too large.
    """
    told = all_reasons(library)
    rows = rows or StrategyRows()
    made = {"index.html": index(library, told)}
    problems = sorted(library.instances.values(), key=attrgetter("graph"))
    for path, group in groupby(problems, attrgetter("graph")):
        text = graph_page(library, path, [*group], told, rows)
        if (found := len(text.encode())) > LARGEST:
            raise RematbenchError(
                f"{page_name(path)}: {found} bytes, more than {LARGEST}; leave out something"
            )
        made[page_name(path)] = text
    return made


def page_name(path: str) -> str:
    """The file of a graph's page."""
    return f"{graph_name(path)}.html"


def index(library: Library, told: Told) -> str:
    """All graphs, by family, with what is known of their budgets; what is open, and why."""
    problems = sorted(library.instances.values(), key=_place)
    statuses = [library.record(each.instance).status for each in problems]
    of_family = groupby(problems, attrgetter("family"))
    return (
        _templates()
        .get_template("index.html")
        .render(
            title="The library of instances",
            problems=len(problems),
            graphs=len({each.graph for each in problems}),
            counts=", ".join(f"{statuses.count(status)} {status}" for status in STATUSES),
            closed=by_space([library.record(name) for name in library.instances]),
            families=[(family, [*_listed(library, group)]) for family, group in of_family],
            effects=[_effect(each) for each in effects(library, told)],
            open=[_opened(library, each, told) for each in problems if _is_open(library, each)],
        )
    )


def _listed(library: Library, problems: Iterator[LibraryProblem]) -> Iterator[Mapping[str, object]]:
    for path, group in groupby(problems, attrgetter("graph")):
        of = [*group]
        yield {
            "page": page_name(path),
            "name": graph_name(path),
            "ops": of[0].ops,
            "peak": size(of[0].peak_bytes),
            "statuses": " ".join(library.record(each.instance).status for each in of),
        }


def _is_open(library: Library, problem: LibraryProblem) -> bool:
    return library.record(problem.instance).status == "open"


def _opened(library: Library, problem: LibraryProblem, told: Told) -> Mapping[str, object]:
    """An open problem's line: what is missing, and why it is hard."""
    record = library.record(problem.instance)
    lacking = "no plan" if record.value is None else "no bound" if record.bound is None else None
    return {
        "page": f"{page_name(problem.graph)}#{problem.instance}",
        "name": problem.instance,
        "ops": problem.ops,
        "gap": lacking or f"{record.gap:.1%}",
        "why": _why(problem, told),
    }


def _effect(effect: Effect) -> Mapping[str, object]:
    """A reason's line."""
    return {
        "name": effect.reason.name,
        "why": effect.reason.why,
        "having": effect.having,
        "closed": _share(effect.closed, effect.having),
        "open": _share(effect.open, effect.having),
        "others": _share(effect.closed_without, effect.without),
    }


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.0%}" if whole else ""


def _why(problem: LibraryProblem, told: Told) -> str:
    return ", ".join(told[problem.instance]) or "no reason is known"


def _place(problem: LibraryProblem) -> tuple[str, int, str, int]:
    return problem.family, problem.ops, problem.graph, problem.budget_bytes


def graph_page(
    library: Library, path: str, problems: Sequence[LibraryProblem], told: Told, rows: StrategyRows
) -> str:
    """A graph's page: facts, records, overhead by budget, and each record's plan as a picture."""
    graph, problems = library.graph(path), sorted(problems, key=attrgetter("budget_bytes"))
    base = simulate(graph, program_order(graph))
    records = [library.record(each.instance) for each in problems]
    return (
        _templates()
        .get_template("graph.html")
        .render(
            title=graph.name,
            file=path,
            drawn=drawn_graph(graph, base),
            peak=size(base.peak_bytes),
            facts=_facts(graph, problems[0], base.peak_bytes),
            columns=_COLUMNS,
            rows={
                each.instance: [*_cells(each, base.peak_bytes, base.cost), _why(problem, told)]
                for problem, each in zip(problems, records, strict=True)
            },
            plans=[*_plans(library, graph, records)],
            **_compared(records, problems[0], base, rows.of(graph, base.peak_bytes, base.cost)),
        )
    )


def _compared(
    records: Sequence[BestKnown],
    problem: LibraryProblem,
    base: Trace,
    plans: Sequence[StrategyPlan],
) -> Mapping[str, object]:
    """Records and bounds by budget, with what strategies have: the picture and the table."""
    peak, cost = max(1, base.peak_bytes), base.cost
    points = [
        (each.budget_bytes / peak, _overhead(each.value, cost), _overhead(each.bound, cost))
        for each in records
    ]
    strategies = by_strategy(plans)
    curves = {
        name: [(x.budget_bytes / peak, x.overhead) for x in found if x.overhead is not None]
        for name, found in strategies.items()
    }
    picture, left_out = budget_curve(points, problem.floor_bytes / peak, curves)
    budgets = sorted({each.budget_bytes for each in plans})
    return {
        "curve": picture,
        "left_out": left_out,
        "dearest": f"{DEAREST:g}",
        "limits": " or ".join(sorted({_given(each) for each in plans})),
        "budgets": [f"{each / peak:.1%}" for each in budgets],
        "strategies": [
            {"name": label(name), "swatch": swatch(name), "cells": _of_budgets(found, budgets)}
            for name, found in strategies.items()
        ],
    }


def _given(plan: StrategyPlan) -> str:
    return "a time that the row does not tell" if plan.seconds is None else f"{plan.seconds:g} s"


def _of_budgets(plans: Sequence[StrategyPlan], budgets: Sequence[int]) -> list[str]:
    known = {each.budget_bytes: each for each in plans}
    return [_shown(known.get(budget)) for budget in budgets]


def _shown(plan: StrategyPlan | None) -> str:
    if plan is None:
        return ""
    return plan.why if plan.overhead is None else f"{plan.overhead:+.2%}"


def _facts(graph: Graph, problem: LibraryProblem, peak: int) -> Mapping[str, object]:
    return {
        "family": problem.family,
        "ops, values": f"{problem.ops}, {problem.values}",
        "costs in": graph.cost_unit,
        "peak of ordinary training": _bytes(peak),
        "floor": _bytes(problem.floor_bytes),
        "floor if each backward op runs once": _bytes(problem.once_floor_bytes),
        "residents": _bytes(graph.resident_bytes),
        "hash": graph.hash,
    }


def _cells(record: BestKnown, peak: int, cost: float) -> list[str]:
    overhead = _overhead(record.value, cost)
    return [
        _bytes(record.budget_bytes),
        f"{record.budget_bytes / max(1, peak):.1%}",
        _text(record.value),
        "" if overhead is None else f"{overhead:+.2%}",
        _text(record.by),
        _text(record.date),
        "no plan" if is_without_plan(record) else _text(record.bound),
        _SPACES.get(_text(record.bound_of), ""),
        "" if record.gap is None else f"{record.gap:.3%}",
        record.status,
    ]


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _bytes(count: int) -> str:
    return f"{count} B ({size(count)})" if count >= 1000 else f"{count} B"


def _overhead(value: int | None, cost: float) -> float | None:
    return None if value is None or not cost else value / cost - 1


def _plans(
    library: Library, graph: Graph, records: Sequence[BestKnown]
) -> Iterator[Mapping[str, str]]:
    """What is known of each budget's plan, and its picture."""
    for record in records:
        if record.plan is None:
            continue
        trace = simulate(graph, read_plan(library.folder / record.plan))
        text = (
            f"{record.instance}: {_bytes(record.budget_bytes)}, value {record.value}, "
            f"{trace.recomputations} recomputations"
        )
        picture = plan_picture(graph, trace, record.budget_bytes)
        yield {"text": text, "file": record.plan, "picture": picture}
