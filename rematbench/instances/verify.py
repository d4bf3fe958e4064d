"""``rematbench-instances check``: every record is what it says, and nothing is missing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import groupby
from operator import attrgetter

from rematbench.base.errors import ConfigError, RematbenchError
from rematbench.base.json_files import read_json
from rematbench.base.origin import one_line
from rematbench.graphs.files import read_plan
from rematbench.graphs.floors import once_floor
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import Link
from rematbench.graphs.plan import in_program_order, program_order
from rematbench.graphs.simulate import check_draws, simulate
from rematbench.instances.evidence import NEEDED, SPACES, fault_of, needed_once
from rematbench.instances.records import (
    UNDATED,
    BestKnown,
    Library,
    LibraryProblem,
    graph_name,
    is_empty,
    proof_line,
    settled,
    whole_cost,
)

_SHARED = (
    *("graph", "budget_bytes", "family", "floor_bytes", "once_floor_bytes", "ops", "values"),
)
MOST_PLAN_BYTES = 25 * 2**20
"""All plan files together, compressed."""


def faults(library: Library, chosen: Sequence[LibraryProblem]) -> Iterator[str]:
    """What is wrong: one line each, which names the file.

    Args:
        chosen: instances to check.
    """
    hashes, undated = library.hashes(), {*library.undated()}
    for path, group in groupby(chosen, attrgetter("graph")):
        try:
            graph = library.graph(path)
        except RematbenchError as error:
            yield one_line(error)
            continue
        yield from _of_graph(library, path, graph, hashes)
        for problem in group:
            yield from _of_record(library, problem, graph)
            yield from _of_undated(library, library.record(problem.instance), undated)
    yield from _of_folder(library)
    yield from _of_old_bounds(library)


def _of_undated(
    library: Library, record: BestKnown, undated: Set[tuple[str, ...]]
) -> Iterator[str]:
    """A bound of a known space, and with a date, or one of the old ones."""
    said = f"{library.folder / 'records.csv'}: {record.instance}"
    space, bound = record.bound_of, record.bound
    if space is None and bound is None:
        return
    if space not in SPACES:
        yield f"{said}: bound_of is {space!r}, and must be one of {', '.join(SPACES)}"
    if record.bound_date is None and proof_line(record) not in undated:
        yield (
            f"{said}: the bound {bound} ({space}) has no date, and is none of {UNDATED}; "
            "`rematbench-instances submit` it with its evidence"
        )


def _of_graph(
    library: Library, path: str, graph: Graph, hashes: Mapping[str, str]
) -> Iterator[str]:
    """Its hash, whole numbers, the file's name, and what ``problems.csv`` says of it."""
    where = library.folder / path
    if graph.name != graph_name(path):
        yield f"{where}: the graph is called {graph.name!r}; a file is named after its graph"
    if (graph.tables.cost % 1).any():
        yield f"{where}: a cost is no whole number"
    listed = hashes.get(graph_name(path), graph.hash)
    if listed != graph.hash:
        yield f"{where}: its hash is {graph.hash}, in features.csv {listed}; another graph"
    peak = simulate(graph, program_order(graph)).peak_bytes
    found = (len(graph.ops), len(graph.values), graph.floor_bytes(), once_floor(graph)[0], peak)
    for each in library.instances.values():
        floors = (each.floor_bytes, each.once_floor_bytes)
        stated = (each.ops, each.values, *floors, each.peak_bytes)
        if each.graph == path and stated != found:
            yield f"{where}: ops, values, floors, peak are {found}, in problems.csv {stated}"
            return


def _of_record(library: Library, problem: LibraryProblem, graph: Graph) -> Iterator[str]:
    table, record = library.folder / "records.csv", library.records.get(problem.instance)
    if record is None:
        yield f"{table}: {problem.instance} has no row; `rematbench-instances submit` adds it"
        return
    said = f"{table}: {problem.instance}"
    for name in _SHARED:
        ours, theirs = getattr(record, name), getattr(problem, name)
        if ours != theirs:
            yield f"{said}: {name} is {ours}, in problems.csv {theirs}"
    if is_empty(problem, str(record.bound_of)):
        yield f"{said}: a bound of F below the once floor, where F has no plan; remove the bound"
    yield from _of_numbers(said, record)
    yield from _of_evidence(library, problem, record, graph)
    if record.plan is not None:
        yield from _of_plan(library, record, graph, problem.host_link)
    elif record.value is not None:
        yield f"{said}: a value of {record.value} without a plan"


def _of_numbers(said: str, record: BestKnown) -> Iterator[str]:
    value, bound = record.value, record.bound
    if value is not None and bound is not None and bound > value:
        yield f"{said}: the bound {bound} is above the value {value}"
    right = settled(record)
    if right != record:
        must = f"must be {right.gap} {right.status}"
        yield f"{said}: gap and status are {record.gap} {record.status}, {must}"


def _of_evidence(
    library: Library, problem: LibraryProblem, record: BestKnown, graph: Graph
) -> Iterator[str]:
    """What a bound rests on; of the least bound that is the graph. Old ones have no date."""
    where = library.folder / problem.evidence
    if record.bound_date is None:
        return
    if record.bound_by == NEEDED:
        if record.bound != needed_once(graph):
            yield f"{where}: {NEEDED} costs {needed_once(graph)}, the record says {record.bound}"
        return
    try:
        told = read_json(where, ConfigError)
    except RematbenchError as error:
        yield one_line(error)
        return
    fault = fault_of(told, record, graph)
    if fault is not None:
        yield f"{where}: {fault}"


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
    """Plans and evidence of no record, and too many bytes."""
    named = {library.folder / str(record.plan) for record in library.records.values()}
    files = [*(library.folder / "plans").rglob("*.json.gz")]
    for path in sorted({*files} - named):
        yield f"{path}: the plan of no record; remove it"
    rested = {
        library.folder / library.instances[name].evidence
        for name, record in library.records.items()
        if record.bound_date is not None and record.bound_by != NEEDED
    }
    for path in sorted({*(library.folder / "evidence").rglob("*.json")} - rested):
        yield f"{path}: the evidence of no bound; remove it"
    total = sum(path.stat().st_size for path in files)
    if total > MOST_PLAN_BYTES:
        yield f"{library.folder / 'plans'}: {total} bytes, of {MOST_PLAN_BYTES} allowed"


def _of_old_bounds(library: Library) -> Iterator[str]:
    """Lines of the list of old bounds that no record has any more."""
    known = {proof_line(each) for each in library.records.values() if each.bound_date is None}
    if stale := [line for line in library.undated() if line not in known]:
        told = f"{len(stale)} bounds of no record, first that of {stale[0][0]}"
        yield f"{library.folder / UNDATED}: {told}; remove them"
