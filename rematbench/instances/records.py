"""The library as its tables have it: problems, and the best plan and bound known of each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rematbench.base.errors import ConfigError
from rematbench.graphs.files import read_graph
from rematbench.graphs.ir import Graph
from rematbench.graphs.link import LATENCY, NONE, Link
from rematbench.instances.table import read_table, write_table

HOME = "instances"
"""The library's folder in a checkout."""
UNDATED = "evidence/undated.csv"
"""Bounds and proofs of before evidence was kept: a list that nothing is added to."""
CLOSED = 1e-3
"""A problem is closed where value and bound are so near, relatively."""
QUICK = 10.0
"""Seconds within which one run closes an easy problem."""
HARD = 0.05
"""The largest gap of a hard problem; above it, or without a bound, it is open."""
STATUSES = ("easy", "closed", "hard", "open")
COPY = round(1e9 * LATENCY)
"""Cost units (nanoseconds) that each copy to or from a host takes beside its bytes."""
ProofLine = tuple[str, str, str, str]
"""Instance, bound (empty: there is no plan), space and who proved it."""
_ROUNDING = 1e-3
"""Cost units that two programs' sums of copying times may differ by."""
_SLACK = 1e-6
"""Share of a bound that a solver of linear programs may be off."""


@dataclass(frozen=True, slots=True)
class LibraryProblem:
    """A graph and a budget: a row of ``problems.csv``. Bytes, but for counts.

    Attributes:
        instance: its name.
        graph: path of the graph's file, from the library's folder.
        in_100: is it one of REMATLIB-100?
        link: bytes per cost unit of a link to a host, as fast in both directions; None: there is
            none, and values are kept or computed again.
    """

    instance: str
    graph: str
    budget_bytes: int
    family: str
    ops: int
    values: int
    floor_bytes: int
    once_floor_bytes: int
    peak_bytes: int
    in_100: int
    link: int | None = None

    @property
    def host_link(self) -> Link:
        """The link that a plan may use."""
        return NONE if self.link is None else Link(self.link, self.link, COPY)

    @property
    def plan(self) -> str:
        """Where the plan of its record lies below the library."""
        return f"plans/{self.family}/{self.instance}.plan.json.gz"

    @property
    def evidence(self) -> str:
        """Where the evidence of its record's bound lies below the library."""
        return f"evidence/{self.family}/{self.instance}.json"


@dataclass(frozen=True, slots=True)
class BestKnown:
    """What is known of an instance: a row of ``records.csv``. What is not known is None.

    Attributes:
        plan: path of the plan's file below the library.
        value: its cost, in the graph's unit.
        by, date: who found it, and when.
        bound: no plan of the space ``bound_of`` costs less. Where there is a space without a bound,
            it has no plan within the budget.
        bound_by: who proved it.
        gap: (value - bound) / value.
        status: see :func:`status_of`.
        ops, values: counts, of its graph.
        bound_date: when it was proven, or that there is no plan; None for bounds of before the day
            from which evidence is kept (:mod:`rematbench.instances.evidence`).
    """

    instance: str
    graph: str
    plan: str | None
    budget_bytes: int
    value: int | None
    by: str | None
    date: str | None
    bound: int | None
    bound_of: str | None
    bound_by: str | None
    gap: float | None
    status: str
    floor_bytes: int
    once_floor_bytes: int
    family: str
    ops: int = 0
    values: int = 0
    bound_date: str | None = None


def unsolved(instance: LibraryProblem) -> BestKnown:
    """An instance of which nothing is known."""
    known = asdict(instance)
    named: dict[str, Any] = {field.name: known.get(field.name) for field in fields(BestKnown)}
    return BestKnown(**{**named, "status": "open"})


def settled(record: BestKnown) -> BestKnown:
    """A record with the gap and the status that its value and bound make."""
    gap = gap_of(record.value, record.bound)
    status = status_of(gap, record.status == "easy", is_without_plan(record))
    return replace(record, gap=gap, status=status)


def gap_of(value: int | None, bound: int | None) -> float | None:
    """(value - bound) / value, to six digits; None where one of them is not known."""
    if value is None or bound is None:
        return None
    return round((value - bound) / value, 6) if value else 0.0


def status_of(gap: float | None, quick: bool, without_plan: bool = False) -> str:
    """What a problem is, by its gap.

    Args:
        quick: has a single run closed it within :data:`QUICK` seconds?
        without_plan: is it proven that there is no plan?

    >>> [status_of(gap, False) for gap in (0.0, 0.001, 0.01, 0.06, None)]
    ['closed', 'closed', 'hard', 'open', 'open']
    >>> status_of(0.0, True), status_of(None, False, without_plan=True)
    ('easy', 'closed')
    """
    if without_plan or (gap is not None and gap <= CLOSED):
        return "easy" if quick else "closed"
    return "hard" if gap is not None and gap <= HARD else "open"


def whole_bound(bound: float) -> int:
    """A bound in whole units: costs are whole, so that it may be rounded up.

    What a solver may be off is taken from it before.

    >>> whole_bound(10.3), whole_bound(11.0000001), whole_bound(0.0)
    (11, 11, 0)
    """
    return max(0, math.ceil(bound - max(_SLACK, bound * _SLACK)))


def whole_cost(cost: float) -> int:
    """A plan's cost in whole units. That of a plan that copies is rounded up.

    >>> whole_cost(10.0), whole_cost(10.3), whole_cost(10.0000001)
    (10, 11, 10)
    """
    return math.ceil(cost - _ROUNDING)


@dataclass(frozen=True)
class Library:
    """Problems and records of a folder.

    Attributes:
        folder: with ``problems.csv``.
        instances: by name, in the table's order.
        records: by the instance's name; none for those that nobody has solved.
    """

    folder: Path
    instances: Mapping[str, LibraryProblem]
    records: Mapping[str, BestKnown]

    def graph(self, path: str) -> Graph:
        """One of its graphs.

        Raises:
            GraphError: it cannot be read; names the file.
        """
        return read_graph(self.folder / path)

    def hashes(self) -> Mapping[str, str]:
        """Of graphs by name, as ``features.csv`` has them, where there is such a table."""
        table = self.folder / "features.csv"
        rows = read_table(table) if table.is_file() else []
        return {row["name"]: row["hash"] for row in rows if row["hash"]}

    def record(self, name: str) -> BestKnown:
        """An instance's record."""
        return self.records.get(name) or unsolved(self.instances[name])

    def of_graph(self, name: str) -> list[LibraryProblem]:
        """The instances of a graph, by the graph's name."""
        return [each for each in self.instances.values() if graph_name(each.graph) == name]

    def undated(self) -> Sequence[ProofLine]:
        """The lines of :data:`UNDATED`, where there is such a list."""
        table = self.folder / UNDATED
        rows = read_table(table) if table.is_file() else []
        return [(row["instance"], row["bound"], row["bound_of"], row["bound_by"]) for row in rows]

    def write(self, records: Mapping[str, BestKnown]) -> None:
        """Write ``records.csv``: one row for each instance, in the order of ``problems.csv``.

        Bounds that are replaced leave :data:`UNDATED`.
        """
        columns = tuple(field.name for field in fields(BestKnown))
        rows = (asdict(records.get(name) or unsolved(i)) for name, i in self.instances.items())
        write_table(self.folder / "records.csv", columns, rows)
        known = {proof_line(each) for each in records.values() if each.bound_date is None}
        undated = self.undated()
        if len(left := [line for line in undated if line in known]) < len(undated):
            columns = ("instance", "bound", "bound_of", "bound_by")
            named = (dict(zip(columns, line, strict=True)) for line in left)
            write_table(self.folder / UNDATED, columns, named)


def graph_name(path: str) -> str:
    """A graph's name, by its file's.

    >>> graph_name("chains/unit_chain4.graph.json.gz")
    'unit_chain4'
    """
    return path.rpartition("/")[2].removesuffix(".graph.json.gz")


def read_library(folder: str | Path = HOME) -> Library:
    """Read the tables.

    Raises:
        ConfigError: there is no library, or a table is not as it must be.
    """
    place = Path(folder)
    if not (place / "problems.csv").is_file():
        raise ConfigError(
            f"library={place}: no problems.csv there; stand in a checkout, or give library=FOLDER"
        )
    instances = _read(place / "problems.csv", LibraryProblem)
    path = place / "records.csv"
    records = _read(path, BestKnown) if path.is_file() else ()
    named = {each.instance: each for each in instances}
    _check_single(place / "problems.csv", instances)
    _check_single(path, records)
    for record in records:
        if record.instance not in named:
            name = record.instance
            raise ConfigError(f"{path}: instance {name!r} is not in problems.csv; remove the row")
    return Library(place, named, {each.instance: _counted(each, named) for each in records})


def _check_single(path: Path, rows: Sequence[LibraryProblem | BestKnown]) -> None:
    for name, count in Counter(row.instance for row in rows).items():
        if count > 1:
            raise ConfigError(f"{path}: instance {name!r} has {count} rows; keep one")


def _counted(record: BestKnown, named: Mapping[str, LibraryProblem]) -> BestKnown:
    """With the counts that tables of before did not have."""
    problem = named[record.instance]
    return record if record.ops else replace(record, ops=problem.ops, values=problem.values)


def _read(path: Path, kind: Any) -> list[Any]:
    """A table's rows as objects of a class."""
    types = {field.name: str(field.type) for field in fields(kind)}
    try:
        rows = read_table(path)
        return [kind(**{key: _cell(types[key], text) for key, text in row.items()}) for row in rows]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        columns = " ".join(types)
        raise ConfigError(
            f"{path}: not such a table ({error}); its columns are: {columns}"
        ) from None


def _cell(kind: str, text: str) -> Any:
    if text == "" and kind.endswith("None"):
        return None
    if kind.startswith("int"):
        return int(text)
    return float(text) if kind.startswith("float") else text


def is_without_plan(record: BestKnown) -> bool:
    """Is it proven that the space ``bound_of`` has no plan within the budget, and is none known?"""
    return record.value is None and record.bound is None and record.bound_of is not None


def is_closed(record: BestKnown) -> bool:
    """Are value and bound as good as equal, or is there provably no plan?"""
    return record.status in ("easy", "closed")


def proof_line(record: BestKnown) -> ProofLine:
    """A bound or proof, as :data:`UNDATED` has it."""
    bound = "" if record.bound is None else str(record.bound)
    return record.instance, bound, record.bound_of or "", record.bound_by or ""


def is_empty(problem: LibraryProblem, space: str) -> bool:
    """Is the budget below the once floor, where ``F`` has no plan, and no bound of it a meaning?"""
    return space == "F" and problem.budget_bytes < problem.once_floor_bytes
