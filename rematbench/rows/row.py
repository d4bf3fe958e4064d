"""The result row: one per job, in ``row.json`` and in ``leaderboard.csv``."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, TypedDict, TypeVar, cast, get_type_hints

from rematbench.base.errors import ConfigError
from rematbench.base.json_files import (
    read_json,
    without_infinities,
    write_bytes,
    write_json,
)
from rematbench.base.meanings import Means
from rematbench.base.origin import printable
from rematbench.rows.extra import Extra

STATUSES = (
    "ok",
    "infeasible",
    "time_limit",
    "not_applicable",
    "out_of_memory",
    "thrashed",
    "failed",
)
# Statuses that a second run would give again; the others are not worth remembering.
LASTING = ("ok", "infeasible", "time_limit", "not_applicable", "thrashed")

T = TypeVar("T")
Text = str | None
Whole = int | None
Number = float | None
Flag = bool | None


class Row(TypedDict):
    """One job's result: the columns in their order; what is not known is null."""

    # what was planned for
    model: Annotated[
        Text, Means("the network, or the name of the file that the graph came from", source="job")
    ]
    batch_size: Annotated[Whole, Means("samples of a batch", source="job")]
    resolution: Annotated[
        Text, Means("of an image: 224, or 416x608 (height x width)", "pixels", "job")
    ]
    graph_hash: Annotated[
        Text, Means("of the graph's content: same hash, same problem", source="job")
    ]
    ops: Annotated[Whole, Means("of the graph", source="job")]
    values: Annotated[Whole, Means("of the graph", source="job")]
    # by whom
    strategy: Annotated[Text, Means("the planner, by its name on the command line", source="job")]
    variant: Annotated[Text, Means("which form of the strategy made the plan", source="job")]
    budget_bytes: Annotated[Whole, Means("the allowed peak; null: no limit", "bytes", "job")]
    budget_fraction: Annotated[
        Number,
        Means(
            "the budget as asked for, of extra.budget_base; null: given in bytes, or none",
            "ratio",
            "job",
        ),
    ]
    status: Annotated[Text, Means("how the job ended", source="job")]
    reason: Annotated[Text, Means("why there is no plan, or what to know of it", source="job")]
    # planned and simulated
    cost: Annotated[
        Number, Means("of the plan: the sum over its computes", "cost_unit", "simulated")
    ]
    cost_unit: Annotated[Text, Means("of all costs of the row", source="simulated")]
    checkpoint_all_cost: Annotated[
        Number, Means("of the plan that keeps everything", "cost_unit", "simulated")
    ]
    overhead: Annotated[Number, Means("cost / checkpoint_all_cost - 1", "ratio", "simulated")]
    bound: Annotated[
        Number,
        Means(
            "no plan in the space of bound_of costs less at this budget", "cost_unit", "simulated"
        ),
    ]
    gap: Annotated[Number, Means("(cost - bound) / cost", "ratio", "simulated")]
    bound_of: Annotated[
        Text,
        Means(
            "plans that the bound holds for: any, 9 (Checkmate's problem 9), F (the reduced one), "
            "C (of 9, those with at most extra.computes computes of an op)",
            source="simulated",
        ),
    ]
    objective: Annotated[
        Number, Means("the planner's own figure, where it is not the cost", source="planned")
    ]
    recomputations: Annotated[Whole, Means("computes of an op after its first", source="simulated")]
    checkpoints: Annotated[
        Whole, Means("forward values that are live when the loss op starts", source="simulated")
    ]
    peak_bytes: Annotated[
        Whole,
        Means(
            "most live bytes; of an infeasible row, the smallest peak found", "bytes", "simulated"
        ),
    ]
    checkpoint_all_peak_bytes: Annotated[
        Whole, Means("the same of the plan that keeps everything", "bytes", "simulated")
    ]
    plan_seconds: Annotated[Number, Means("that the planner took", "seconds", "run")]
    # measured
    measured_peak_bytes: Annotated[
        Whole, Means("most live bytes on the device, residents included", "bytes", "measured")
    ]
    measured_reserved_bytes: Annotated[
        Whole, Means("what the caching allocator held at most (CUDA)", "bytes", "measured")
    ]
    peak_error: Annotated[
        Number, Means("peak_bytes / measured_peak_bytes - 1", "ratio", "measured")
    ]
    measured_seconds: Annotated[
        Number, Means("of one step, the median of extra.measured_repeats", "seconds", "measured")
    ]
    measured_overhead: Annotated[
        Number,
        Means("median of step / eager step beside it, less 1", "ratio", "measured"),
    ]
    gradient_max_error: Annotated[
        Number, Means("against eager training, over the largest entry", source="measured")
    ]
    gradient_bitwise: Annotated[
        Flag, Means("is every bit of loss, gradients and buffers equal?", source="measured")
    ]
    # provenance
    device: Annotated[Text, Means("the hardware", source="measured")]
    costmodel: Annotated[
        Text,
        Means(
            "where costs came from: given, unit, flops, roofline, profiled, or a plug-in's name",
            source="run",
        ),
    ]
    seed: Annotated[Whole, Means("of parameters, batch and every random choice", source="run")]
    threads: Annotated[Whole, Means("of PyTorch and the solvers", source="run")]
    solver: Annotated[Text, Means("name and version", source="run")]
    versions: Annotated[
        Text, Means("of Python and the packages that the result depends on", source="run")
    ]
    commit: Annotated[Text, Means("of this program, where it is known", source="run")]
    utc: Annotated[Text, Means("when the job began", source="run")]
    # what only some rows have
    extra: Extra


class Outcome(TypedDict):
    """How a job ended."""

    status: str
    reason: str


COLUMNS = tuple(Row.__annotations__)
Columns = Mapping[str, object]
"""Some columns of a row, and some keys of its ``extra``."""


def make_row(**known: Any) -> Row:
    """A row with every column, in order; what is not given is null.

    >>> make_row(model="vgg16", status="ok")["bound"] is None
    True
    """
    unknown = set(known) - set(COLUMNS)
    assert not unknown, unknown
    return cast(Row, dict.fromkeys(COLUMNS) | {"extra": {}} | known)


def cells(row: Row) -> Mapping[str, Any]:
    """A row for code that goes over its columns, or is handed a column's name."""
    return cast(Mapping[str, Any], row)


def values_of(row: Row) -> list[Any]:
    """A row's values in the order of the columns."""
    return [cells(row)[column] for column in COLUMNS]


def means() -> dict[str, Means]:
    """What each column stands for, in order, but ``extra``."""
    hints = get_type_hints(Row, include_extras=True)
    return {column: hints[column].__metadata__[0] for column in COLUMNS if column != "extra"}


def memories_of(row: Row) -> str:
    """The link to a host, and the host's limit, of a problem for two memories; else nothing.

    >>> memories_of(make_row(extra={"link": {"name": "pcie4", "out": 5e9, "in": 5e9}}))
    'link pcie4, 5e+09 and 5e+09'
    """
    link, host = row["extra"].get("link"), row["extra"].get("host_bytes")
    if not isinstance(link, dict):
        return ""
    said = f"link {link.get('name', 'given')}, {link.get('out', 0):g} and {link.get('in', 0):g}"
    return said + (f", host {host} bytes" if host else "")


def costs_of(row: Row) -> str | None:
    """The cost model, and the machine that it modelled where the row knows: ``roofline h100``."""
    preset = row["extra"].get("preset")
    return f"{row['costmodel']} {preset}" if preset else row["costmodel"]


def columns_of(*types: object) -> frozenset[str]:
    """The columns of some types: Text, Whole, Number, Flag."""
    hints = get_type_hints(Row)
    return frozenset(column for column in COLUMNS if hints[column] in types)


def marked(experiment: str | None, group: str | None) -> Extra:
    """What ``extra`` says of who asked for a row: keys that are None are left out."""
    extra: Extra = {}
    if experiment is not None:
        extra["experiment"] = experiment
    if group is not None:
        extra["group"] = str(group)
    return extra


def unmarked(row: Row) -> Extra:
    """A row's ``extra``, from which it is taken out who asked for the row."""
    extra = row["extra"]
    extra.pop("experiment", None)
    extra.pop("group", None)
    return extra


def joined(row: Row, *parts: Columns) -> Row:
    """A row with more columns: those of later parts count; each part's ``extra`` adds to it.

    >>> joined(make_row(extra={"stopped": True}), {"extra": {"native": None}})["extra"]
    {'stopped': True, 'native': None}
    """
    extra: dict[str, Any] = {}
    for part in (row, *parts):
        extra |= cast(dict[str, Any], part.get("extra", {}))
    columns = {column: value for part in parts for column, value in part.items()}
    return make_row(**{**row, **columns, "extra": extra})


def is_over_budget(row: Row) -> bool:
    """Was more memory measured than the budget allows?"""
    budget, measured = row["budget_bytes"], row["measured_peak_bytes"]
    return budget is not None and measured is not None and measured > budget


def details(row: Row) -> Mapping[str, Any]:
    """``extra`` with the keys of the row's own strategy, which stand on its card."""
    return cast(Mapping[str, Any], row["extra"])


def known(value: T | None) -> T:
    """A column that is never null in such a row, as its status says."""
    assert value is not None
    return value


def read_row(path: Path) -> Row:
    """Read a ``row.json``.

    Raises:
        ConfigError: the file is damaged or is no row.
    """
    row = read_json(path, ConfigError)
    if not isinstance(row, dict) or not set(COLUMNS) <= set(row):
        raise ConfigError(f"{path}: not a row of this program; remove it or run its job again")
    return cast(Row, row)


def finite(row: Row) -> Row:
    """The row with null for each NaN and infinity; ``extra.not_finite`` names them."""
    clean, lost = without_infinities(row)
    if lost:
        clean["extra"]["not_finite"] = lost
    return cast(Row, clean)


def write_row(path: Path, row: Row) -> None:
    """Write a ``row.json``, by atomic rename; what is not finite is null, see :func:`finite`."""
    write_json(path, finite(row), indent=1)


def find_rows(folders: Iterable[Path]) -> list[Row]:
    """All rows under some folders (or single ``row.json`` files), in path order.

    Raises:
        ConfigError: a folder does not exist, or holds no row.
    """
    rows: list[Row] = []
    for folder in folders:
        if not folder.exists():
            raise ConfigError(f"{folder}: no such folder; give a run or sweep folder")
        paths = [folder] if folder.is_file() else list(folder.rglob("row.json"))
        if not paths:
            raise ConfigError(f"{folder}: holds no row.json; give a run or sweep folder")
        rows += [read_row(path) for path in sorted(paths, key=by_number)]
    return rows


def by_number(path: Path) -> tuple[Any, ...]:
    """Sorts job folders: 2 before 10."""
    return tuple((part.isdecimal(), int(part) if part.isdecimal() else part) for part in path.parts)


def write_leaderboard(path: Path, rows: Iterable[Row]) -> None:
    """Write rows as CSV: the columns in order, ``extra`` as JSON, null as an empty cell."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows([_cell(value) for value in values_of(row)] for row in rows)
    write_bytes(path, text.getvalue().encode())


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)


def format_row(row: Row, *, extra: bool = True) -> str:
    """The row as ``column=value`` lines, without what is null.

    A value of several lines, or with control characters, is one line of what can be printed.

    Args:
        extra: with ``extra``, which is first: of a job it may be longer than all the rest.
    """
    named = dict(zip(COLUMNS, values_of(row), strict=True))
    columns = [column for column in COLUMNS if column != "extra"]
    order = ["extra", *columns] if extra else columns
    shown = ((column, named[column]) for column in order if named[column] is not None)
    return "\n".join(f"{column}={printable(_cell(value))}" for column, value in shown)
