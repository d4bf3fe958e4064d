"""``rematbench-instances check``: every record is what it says, and nothing is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from rematbench.base.errors import RematbenchError
from rematbench.base.origin import one_line
from rematbench.graphs.files import read_plan
from rematbench.graphs.floors import once_floor
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import in_program_order
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.instances.records import (
    BestKnown,
    Library,
    LibraryProblem,
    gap_of,
    graph_name,
    is_without_plan,
    status_of,
    whole_cost,
)

MOST_PLAN_BYTES = 25 * 2**20
"""All plan files together, compressed."""


def faults(library: Library, chosen: Sequence[LibraryProblem]) -> Iterator[str]:
    """What is wrong: one line each, which names the file.

    Args:
        chosen: instances to check.
    """
    for path, group in groupby(chosen, attrgetter("graph")):
        try:
            graph = library.graph(path)
        except RematbenchError as error:
            yield one_line(error)
            continue
        yield from _of_graph(library, path, graph)
        for problem in group:
            yield from _of_record(library, problem, graph)
    yield from _of_folder(library)


def _of_graph(library: Library, path: str, graph: Graph) -> Iterator[str]:
    """Whole numbers, the file's name, and what ``problems.csv`` says of it."""
    where = library.folder / path
    if graph.name != graph_name(path):
        yield f"{where}: the graph is called {graph.name!r}; a file is named after its graph"
    costs = (i.cost for op in graph.ops for i in op.implementations)
    if not all(cost == int(cost) for cost in costs):
        yield f"{where}: a cost is no whole number"
    found = (len(graph.ops), len(graph.values), graph.floor_bytes(), once_floor(graph)[0])
    for each in library.instances.values():
        stated = (each.ops, each.values, each.floor_bytes, each.once_floor_bytes)
        if each.graph == path and stated != found:
            yield f"{where}: ops, values, floors are {found}, in problems.csv {stated}"
            return


def _of_record(library: Library, problem: LibraryProblem, graph: Graph) -> Iterator[str]:
    table, record = library.folder / "records.csv", library.records.get(problem.instance)
    if record is None:
        yield f"{table}: {problem.instance} has no row; `rematbench-instances submit` adds it"
        return
    said = f"{table}: {problem.instance}"
    for name in ("graph", "budget_bytes", "family", "floor_bytes", "once_floor_bytes"):
        ours, theirs = getattr(record, name), getattr(problem, name)
        if ours != theirs:
            yield f"{said}: {name} is {ours}, in problems.csv {theirs}"
    yield from _of_numbers(said, record)
    if record.plan is not None:
        yield from _of_plan(library, record, graph, problem.host_link)
    elif record.value is not None:
        yield f"{said}: a value of {record.value} without a plan"


def _of_numbers(said: str, record: BestKnown) -> Iterator[str]:
    value, bound = record.value, record.bound
    if value is not None and bound is not None and bound > value:
        yield f"{said}: the bound {bound} is above the value {value}"
    gap = gap_of(value, bound)
    status = status_of(gap, record.status == "easy", is_without_plan(record))
    if (record.gap, record.status) != (gap, status):
        yield f"{said}: gap and status are {record.gap} {record.status}, must be {gap} {status}"


def _of_plan(library: Library, record: BestKnown, graph: Graph, link: Link) -> Iterator[str]:
    where = library.folder / str(record.plan)
    try:
        plan = read_plan(where)
        trace = simulate(graph, plan, link)
        check_draws(graph, plan)
    except RematbenchError as error:
        yield f"{where}: {one_line(error).removeprefix(f'{where}: ')}"
        return
    if plan.graph != graph.name or plan.budget_bytes != record.budget_bytes:
        yield f"{where}: of graph {plan.graph}, budget {plan.budget_bytes}; of another instance"
    if trace.peak_bytes > record.budget_bytes:
        yield f"{where}: peaks at {trace.peak_bytes} bytes, over its budget {record.budget_bytes}"
    if whole_cost(trace.cost) != record.value:
        yield f"{where}: costs {trace.cost:.0f}, the record says {record.value}"
    if not in_program_order(graph, plan):
        yield f"{where}: is out of program order; see RULES.md"


def _of_folder(library: Library) -> Iterator[str]:
    """Plans of no record, and too many bytes."""
    named = {library.folder / str(record.plan) for record in library.records.values()}
    files = [*(library.folder / "plans").rglob("*.json.gz")]
    for path in sorted({*files} - named):
        yield f"{path}: the plan of no record; remove it"
    total = sum(path.stat().st_size for path in files)
    if total > MOST_PLAN_BYTES:
        yield f"{library.folder / 'plans'}: {total} bytes, of {MOST_PLAN_BYTES} allowed"
