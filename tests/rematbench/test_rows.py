"""The row's reference is complete: every column and key that the code writes is in it."""

from __future__ import annotations

import ast
import csv
import gzip
import json
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from rematbench.base.errors import Infeasible, NotApplicable
from rematbench.cli import reference
from rematbench.graphs.builders.synthetic import join, unit_chain
from rematbench.graphs.planning import CheckpointedRun, CompiledRun
from rematbench.graphs.simulate import simulate
from rematbench.rows.extra import Extra
from rematbench.rows.measured import InexactFacts, LoweredFacts, LoweredRun, NativeFacts
from rematbench.rows.row import COLUMNS, Row, means
from rematbench.strategies.base import Problem, Strategy
from rematbench.strategies.registry import class_of, entry, facts, names
from rematbench.validator.check import Measurement
from rematbench.validator.copier import CopiesMeasured
from rematbench.validator.native import Native
from rematbench.validator.rounding import Rounding

HOUSE = Path(__file__).parents[2]
KNOWN = frozenset(Extra.__annotations__).union(*(each.__annotations__ for each in facts()))
FACTS = ("facts", "details")  # what planners call them
WRITERS = (
    "_details",
    "_facts",
    "details",
    "sizes",
    "size",
    "_label",
    "_published",
    "presolved_size",
)
PLANNERS = {"engines", "strategies"}
SOURCES = [p for room in ("rematbench", *PLANNERS) for p in sorted((HOUSE / room).rglob("*.py"))]


def test_the_reference_is_made_from_the_code() -> None:
    again = "run `python -m rematbench.cli.reference`"
    assert (HOUSE / "docs/rows.md").read_text() == reference.rows_page(), again
    assert (HOUSE / "docs/strategies.md").read_text() == reference.strategies_page(), again


def test_every_column_and_key_says_what_it_means() -> None:
    assert tuple(means()) == COLUMNS[:-1]
    assert tuple(Row.__annotations__) == COLUMNS
    page = reference.rows_page()
    for name in (*COLUMNS, *KNOWN):
        assert f"| `{name}` |" in page, name
    assert all(each.text for each in means().values())


def rows_of(folder: Path) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    """The ``extra`` of each row, of tables that have one."""
    for path in sorted(folder.rglob("*.csv*")):
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open(newline="") as file:
            reader = csv.DictReader(file)
            if "extra" in (reader.fieldnames or ()):
                yield path, [json.loads(line["extra"] or "{}") for line in reader]


NESTED: dict[str, set[str]] = {
    "native": {*NativeFacts.__annotations__},
    "lowered": {*LoweredFacts.__annotations__},
    "rounding": {*InexactFacts.__annotations__},
}
"""Keys of the objects in ``extra``."""


def test_committed_rows_hold_no_other_key() -> None:
    found = [*rows_of(HOUSE / "runs/reference"), *rows_of(HOUSE / "tests/data/figures")]
    assert len(found) > 50
    for path, rows in found:
        # Older rows: what the verdict on inexact implementations was once held against.
        keys = {key for row in rows for key in row}
        assert keys <= KNOWN, (path, keys - KNOWN)
        for name, known in NESTED.items():
            inner = {key for row in rows for key in row.get(name) or ()}
            assert inner <= known, (path, name, inner - known)
        ways = [way for row in rows for way in (row.get("lowered") or {}).values()]
        assert {key for way in ways for key in way} <= {*LoweredRun.__annotations__}


@pytest.mark.parametrize("name", names())
def test_every_strategy_tells_documented_facts(name: str) -> None:
    strategy = class_of(name)(**entry(name).defaults)
    assert isinstance(strategy, Strategy)
    for graph in (unit_chain(12), join([3, 4])):
        for share in (0.7, None):
            budget = None if share is None else int(share * peak(graph))
            try:
                found = strategy.plan(Problem(graph, budget, time_limit=0.5))
            except (NotApplicable, Infeasible):
                continue
            assert set(found.details) <= KNOWN, "document them on the strategy's card"


def test_a_measurement_goes_into_the_row_by_name() -> None:
    names = {field.name for each in (Measurement, CopiesMeasured) for field in fields(each)}
    names.remove("copies")  # the latter's place in the former
    assert names <= KNOWN | {*COLUMNS}, names - KNOWN - {*COLUMNS}


@pytest.mark.parametrize(
    ("written", "made"), [(InexactFacts, Rounding), (LoweredRun, Native), (NativeFacts, Native)]
)
def test_an_object_of_the_row_has_what_its_dataclass_has(written: type, made: type) -> None:
    said, has = get_type_hints(written), get_type_hints(made)
    tuples = {"wrapped"}  # lists, once written
    assert {name: kind for name, kind in said.items() if name in has.keys() - tuples} == {
        name: kind for name, kind in has.items() if name not in tuples
    }
    assert tuples & has.keys() <= NativeFacts.__annotations__.keys()
    ways = (CompiledRun(0.5, "dp"), CompiledRun(recomputed=()), CheckpointedRun(kept=("mm",)))
    ways += (CheckpointedRun(attention=True, always=("mm",)),)
    how = {key for each in ways for key in each.as_json()}
    assert said.keys() - has.keys() == (how if written is NativeFacts else set())


def keys_of(node: ast.AST | None) -> set[str]:
    """The keys of a dictionary, as written."""
    found = node.keys if isinstance(node, ast.Dict) else []
    return {key.value for key in found if isinstance(key, ast.Constant)}


def is_extra(node: ast.AST) -> bool:
    """Is it ``...["extra"]``, or ``extra``?"""
    return is_named(node.slice if isinstance(node, ast.Subscript) else node)


def is_named(node: ast.AST | None) -> bool:
    """Is it ``extra`` or ``"extra"``?"""
    return "extra" in (getattr(node, "id", ""), getattr(node, "value", ""))


def target_of(node: ast.Assign | ast.AnnAssign) -> ast.AST:
    """What is assigned to."""
    return node.targets[0] if isinstance(node, ast.Assign) else node.target


def written(tree: ast.AST, planner: bool) -> set[str]:
    """Keys that a module writes into ``extra``, or a planner into its details."""
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_extra(node.value):
            key = node.slice
            found |= {key.value} if isinstance(key, ast.Constant) else set()
        if isinstance(node, ast.AugAssign) and is_extra(node.target):
            found |= keys_of(node.value)
        if isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            found |= {key for name, value in pairs if is_named(name) for key in keys_of(value)}
        if isinstance(node, ast.Assign | ast.AnnAssign) and is_named(target_of(node)):
            found |= keys_of(node.value)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "make_row":
            found |= {key for each in node.keywords if each.arg == "extra"
                      for key in keys_of(each.value)}  # fmt: skip
        if planner and isinstance(node, ast.keyword) and node.arg == "details":
            found |= keys_of(node.value)
        if planner and isinstance(node, ast.FunctionDef) and node.name in WRITERS:
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            found |= {key for value in returned for key in keys_of(value)}
        if planner and isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            found |= keys_of(node.value) if node.targets[0].id in FACTS else set()
    return found


def test_the_source_writes_no_other_key() -> None:
    found = {p: written(ast.parse(p.read_text()), bool(PLANNERS & {*p.parts})) for p in SOURCES}
    assert len(set().union(*found.values())) > 60  # it does see them
    for path, keys in found.items():
        assert keys <= KNOWN, f"{path}: document them in rows/extra.py, or on a card"


def test_no_key_is_documented_that_nobody_writes() -> None:
    others = [
        path for room in ("validator", "streams", "report") for path in (HOUSE / room).rglob("*.py")
    ]
    rooms = [*SOURCES, *others]
    rooms = [path for path in rooms if path.name not in ("extra.py", "card.py", "reference.py")]
    text = "\n".join(path.read_text() for path in rooms)
    older = {"reading", "gradient_tolerance", "rounding"}
    fields_of = {field.name for each in (Measurement, CopiesMeasured) for field in fields(each)}
    silent = {key for key in KNOWN - fields_of - older if not re.search(rf'"{key}"|\b{key}=', text)}
    assert not silent


def peak(graph: object) -> int:
    from rematbench.graphs.plan import program_order

    return simulate(graph, program_order(graph)).peak_bytes
