"""The library's pages: one for each graph, with the records of its budgets, and a list of all.

Each page is complete in itself: no script, no file but the other pages.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from operator import attrgetter

from rematbench.base.sizes import size
from rematbench.graphs.files import read_plan
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import program_order
from rematbench.graphs.simulate import simulate
from rematbench.instances.pictures import budget_curve, plan_picture
from rematbench.instances.records import STATUSES, BestKnown, Library, LibraryProblem, graph_name

LARGEST = 300_000
"""Bytes of a graph's page at most."""
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 1rem auto; padding: 0 1rem;
  color: #222; background: #fff; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; margin: .5rem 0; font-size: .85rem; }
th, td { text-align: left; padding: .15rem .8rem .15rem 0; white-space: nowrap;
  vertical-align: top; }
.facts td { white-space: normal; overflow-wrap: anywhere; }
.facts th { white-space: normal; max-width: 9rem; }
h1 { overflow-wrap: anywhere; line-height: 1.2; } tr:target { background: #ffd8; }
svg { width: 100%; height: auto; } svg text { font-size: 13px; fill: currentColor; }
.box { fill: none; stroke: #8884; } .first { stroke: #2f4bd8; fill: none; }
.again { stroke: #d8472f; fill: none; } .bytes { fill: #2f4bd855; }
.budget, .floor { stroke: #a11; stroke-dasharray: 4; fill: none; }
.axes { stroke: #888; fill: none; } path.value { stroke: #2f4bd8; fill: none; }
path.bound { stroke: #888; fill: none; } circle.bound { fill: #888; }
circle.value { fill: #2f4bd8; }
@media (prefers-color-scheme: dark) {
  body { color: #ddd; background: #181a20; } a { color: #9ab; } tr:target { background: #553; }
  .first, path.value { stroke: #8a9bff; } circle.value { fill: #8a9bff; }
  .again { stroke: #ff8a75; }
}
"""
_COLUMNS = (
    *("budget", "of the peak", "best value", "overhead", "by", "date", "bound", "of", "gap"),
    "status",
)


def pages(library: Library) -> dict[str, str]:
    """Every page's HTML, by its file's name.

    Raises:
        RematbenchError: a graph or plan file is bad.
    """
    made = {"index.html": index(library)}
    problems = sorted(library.instances.values(), key=attrgetter("graph"))
    for path, group in groupby(problems, attrgetter("graph")):
        made[page_name(path)] = graph_page(library, path, [*group])
    return made


def page_name(path: str) -> str:
    """The file of a graph's page."""
    return f"{graph_name(path)}.html"


def index(library: Library) -> str:
    """All graphs, by family, with what is known of their budgets."""
    problems = [*library.instances.values()]
    statuses = [library.record(each.instance).status for each in problems]
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in STATUSES)
    graphs = {each.graph for each in problems}
    body = (
        f"<h1>The library</h1><p>{len(problems)} problems over {len(graphs)} graphs: {counts}.</p>"
    )
    for family, of_family in groupby(sorted(problems, key=_place), attrgetter("family")):
        rows = []
        for path, group in groupby(of_family, attrgetter("graph")):
            each = [*group]
            marks = " ".join(library.record(problem.instance).status for problem in each)
            link = f'<a href="{escape(page_name(path))}">{escape(graph_name(path))}</a>'
            rows.append([link, str(each[0].ops), size(each[0].peak_bytes), marks])
        heads = ("graph", "ops", "peak", "its budgets, from the smallest")
        body += f"<h2>{escape(family)}</h2>{_table(heads, rows)}"
    return _page("The library of instances", body, up="../instances.html")


def _place(problem: LibraryProblem) -> tuple[str, int, str, int]:
    return problem.family, problem.ops, problem.graph, problem.budget_bytes


def graph_page(library: Library, path: str, problems: Sequence[LibraryProblem]) -> str:
    """A graph's page: facts, records, overhead by budget, and each record's plan as a picture."""
    graph, problems = library.graph(path), sorted(problems, key=attrgetter("budget_bytes"))
    base = simulate(graph, program_order(graph))
    records = [library.record(each.instance) for each in problems]
    rows = {each.instance: _cells(each, base.peak_bytes, base.cost) for each in records}
    points = [
        (
            each.budget_bytes / max(1, base.peak_bytes),
            _overhead(each.value, base.cost),
            _overhead(each.bound, base.cost),
        )
        for each in records
    ]
    body = (
        f"<h1>{escape(graph.name)}</h1>{_facts(graph, path, problems[0], base.peak_bytes)}"
        f"<h2>Records</h2>{_table(_COLUMNS, rows.values(), [*rows])}"
        "<h2>What budgets cost</h2><p>Overhead over ordinary training, which keeps everything, by "
        "budget: the best plans known (blue), and bounds that no plan of their space undercuts "
        "(grey); the dashed line is the floor.</p>"
        f"{budget_curve(points, problems[0].floor_bytes / max(1, base.peak_bytes))}"
        f"<h2>Plans</h2>{''.join(_plans(library, graph, records))}"
    )
    return _page(graph.name, body, up="index.html")


def _facts(graph: Graph, path: str, problem: LibraryProblem, peak: int) -> str:
    facts: Mapping[str, object] = {
        "family": problem.family,
        "file": f"instances/{path}",
        "ops, values": f"{problem.ops}, {problem.values}",
        "costs in": graph.cost_unit,
        "peak of ordinary training": _bytes(peak),
        "floor": _bytes(problem.floor_bytes),
        "floor if each backward op runs once": _bytes(problem.once_floor_bytes),
        "residents": _bytes(graph.resident_bytes),
        "hash": graph.hash,
    }
    rows = "".join(f"<tr><th>{k}</th><td>{escape(str(v))}</td></tr>" for k, v in facts.items())
    return f'<table class="facts">{rows}</table>'


def _cells(record: BestKnown, peak: int, cost: float) -> list[str]:
    overhead = _overhead(record.value, cost)
    of = {"any": "any plan", "9": "problem 9", "F": "problem F", "C": "problem C"}
    return [
        _bytes(record.budget_bytes),
        f"{record.budget_bytes / max(1, peak):.1%}",
        _text(record.value),
        "" if overhead is None else f"{overhead:+.2%}",
        escape(_text(record.by)),
        _text(record.date),
        _text(record.bound),
        of.get(_text(record.bound_of), ""),
        "" if record.gap is None else f"{record.gap:.2%}",
        record.status,
    ]


def _text(value: object) -> str:
    return "" if value is None else str(value)


def _bytes(count: int) -> str:
    return f"{count} B ({size(count)})" if count >= 1000 else f"{count} B"


def _overhead(value: int | None, cost: float) -> float | None:
    return None if value is None or not cost else value / cost - 1


def _plans(library: Library, graph: Graph, records: Iterable[BestKnown]) -> Iterable[str]:
    """Pictures, the smallest budget's shown, the others a click away."""
    shown = False
    for record in records:
        if record.plan is None:
            continue
        trace = simulate(graph, read_plan(library.folder / record.plan))
        said = (
            f"{escape(record.instance)}: {_bytes(record.budget_bytes)}, value {record.value}, "
            f"{trace.recomputations} recomputations"
        )
        picture = plan_picture(graph, trace, record.budget_bytes)
        opened = "" if shown else " open"
        shown = True
        yield f"<details{opened}><summary>{said}</summary>{picture}</details>"
    words = (
        "Computes from left to right, program order upwards, those that run again in red; below, "
    )
    yield f"<p>{words}bytes in memory, and the budget.</p>" if shown else "<p>None is known.</p>"


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], ids: Sequence[str] = ()) -> str:
    top = "".join(f"<th>{head}</th>" for head in heads)
    body = ""
    for number, row in enumerate(rows):
        mark = f' id="{escape(ids[number])}"' if ids else ""
        body += f"<tr{mark}>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>"
    return f'<div class="scroll" tabindex="0"><table><tr>{top}</tr>{body}</table></div>'


def _page(title: str, body: str, up: str) -> str:
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{_STYLE}</style>"
        f'<p><a href="{up}">up</a> · <a href="verify.html">verify a plan</a></p>{body}</html>\n'
    )
