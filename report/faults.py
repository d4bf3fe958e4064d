"""What is wrong with a row that a file holds, in words: reports are drawn from the other rows."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from math import isclose
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints, is_typeddict

from rematbench.base.meanings import Means
from rematbench.rows.extra import GROUPS
from rematbench.rows.row import COLUMNS, STATUSES, Flag, Number, Text, Whole, columns_of
from rematbench.strategies import registry

TEXT = columns_of(Text)
_NUMBERS = tuple(c for c in COLUMNS if c in columns_of(Whole, Number))
_WHOLES = tuple(c for c in COLUMNS if c in columns_of(Whole))
_FLAGS = columns_of(Flag)
_NAMES = ("model", "strategy", "costmodel", "graph_hash")
_ROUNDING = 1e-6
"""Share by which numbers may differ that say the same: a spreadsheet keeps ten digits or so."""
_SCALARS = {str: "text", int: "a number", float: "a number", bool: "true or false"}


def fault_of(row: Any) -> str | None:
    """What is wrong with a row; None for a sound one."""
    if not isinstance(row, dict):
        return "not a row (no JSON object); remove it or run its job again"
    lacking = [c for c in COLUMNS if c not in row]
    if lacking:
        return f"not a row of this program (lacks {_some(lacking)}); run its job again"
    unknown = [c for c in row if c not in COLUMNS]
    if unknown:
        return f"a row of another version (unknown: {_some(unknown)}); run its job again"
    if row["status"] not in STATUSES:
        return f"status is {row['status']!r}; it must be one of {', '.join(STATUSES)}"
    return (
        _of_columns(row)
        or _of_extra(row["extra"])
        or _of_budget(row)
        or _of_numbers(row)
        or _of_text(row)
    )


def _of_columns(row: Mapping[str, Any]) -> str | None:
    for column in _NUMBERS:
        if row[column] is not None and type(row[column]) not in (int, float):
            return f"{column} is {_short(row[column])}; it must be a number or null"
        if row[column] is not None and not abs(row[column]) <= sys.float_info.max:
            return f"{column} is {str(row[column])[:40]}; it must be finite"
    for column in _FLAGS:
        if row[column] not in (None, True, False):
            return f"{column} is {_short(row[column])}; it must be true, false or null"
    for column in TEXT:
        if isinstance(row[column], (list, dict)):
            return f"{column} is a {type(row[column]).__name__}; it must be text or null"
    for column in _NAMES:
        if not isinstance(row[column], str | None):
            return f"{column} is {_short(row[column])}; it must be text or null"
    return None


def _of_extra(extra: Any) -> str | None:
    """Of the keys that we, and the strategies' cards, declare."""
    if not isinstance(extra, dict):
        return "extra is no JSON object; remove the row or run its job again"
    declared = _declared()
    for key, value in extra.items():
        if key not in declared:
            continue
        kind, length = declared[key]
        if not _fits(value, kind):
            return f"extra.{key} is {_short(value)}; it must be {_label(kind)}"
        if length is not None and value is not None and len(value) != length:
            return f"extra.{key} is {_short(value)}; it must be a list of {length}"
    return None


@cache
def _declared() -> dict[str, tuple[Any, int | None]]:
    """What each key of ``extra`` holds, and how many of them, where that is told."""
    return {
        key: (get_args(hint)[0], next(m.length for m in hint.__metadata__ if isinstance(m, Means)))
        for group in (*GROUPS, *registry.facts())
        for key, hint in get_type_hints(group, include_extras=True).items()
    }


def _fits(value: Any, kind: Any) -> bool:
    """Is a value what a type says? Null may stand for any scalar: NaN becomes null in a file."""
    if kind is Any:
        return True
    inner = get_args(kind)
    match get_origin(kind):
        case None:
            return _fits_plain(value, kind)
        case o if o in (Union, UnionType):
            return any(_fits(value, each) for each in inner)
        case o if o is list:
            return isinstance(value, list) and all(_fits(each, inner[0]) for each in value)
        case o if o is tuple:
            same = isinstance(value, list) and len(value) == len(inner)
            return same and all(map(_fits, value, inner))
        case _:
            return isinstance(value, dict) and all(_fits(v, inner[1]) for v in value.values())


def _fits_plain(value: Any, kind: Any) -> bool:
    """The same of a scalar, or of an object by its keys: older rows may have others."""
    if not is_typeddict(kind):
        scalar = (int, float) if kind in (int, float) else (kind,)
        return value is None or type(value) in scalar
    hints = get_type_hints(kind)
    return isinstance(value, dict) and all(
        _fits(found, hints.get(key, Any)) for key, found in value.items()
    )


def _label(kind: Any) -> str:
    """A type, for people."""
    inner = get_args(kind)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return " or ".join("null" if each is NoneType else _label(each) for each in inner)
    if origin is tuple:
        return f"a list of {len(inner)}"
    if origin is list:
        return "a list" if inner[0] is Any else f"a list, each {_label(inner[0])}"
    if origin is dict:
        return "an object" if inner[1] is Any else f"an object, each {_label(inner[1])}"
    return _SCALARS.get(kind, "an object")


def _of_budget(row: Mapping[str, Any]) -> str | None:
    """A share of nobody knows what; a job that ended before its graph was there knows no bytes."""
    if row["budget_fraction"] is None or row["budget_bytes"] is not None:
        return None
    if row["status"] == "ok" or row["extra"].get("once_floor_bytes") is not None:
        return "budget_fraction is set and budget_bytes is null; run its job again"
    return None


def _of_numbers(row: Mapping[str, Any]) -> str | None:
    """Numbers of an ok row that contradict each other; other rows may be above their budget."""
    if row["status"] != "ok":
        return None
    for column in _WHOLES:
        if type(row[column]) is float and not row[column].is_integer():
            return f"{column} is {row[column]}; it must be a whole number or null"
    peak, budget = row["peak_bytes"], row["budget_bytes"]
    if None not in (peak, budget) and peak > budget:
        return f"peak_bytes is {peak}; it must not be above budget_bytes, {budget}"
    return None if row["cost"] is None else _of_overhead(row) or _of_bound(row)


def _of_overhead(row: Mapping[str, Any]) -> str | None:
    cost, base = row["cost"], row["checkpoint_all_cost"]
    if cost < 0:
        return f"cost is {cost}; it must not be below 0"
    if row["overhead"] is None or base is None or base <= 0:
        return None
    return _unlike(row, "overhead", cost / base - 1, "cost / checkpoint_all_cost - 1")


def _of_bound(row: Mapping[str, Any]) -> str | None:
    cost, bound = row["cost"], row["bound"]
    if bound is None:
        return None
    if bound > cost * (1 + _ROUNDING):
        return f"bound is {bound}; it must not be above the cost, {cost}"
    return _unlike(row, "gap", (cost - bound) / cost if cost else 0.0, "(cost - bound) / cost")


def _unlike(row: Mapping[str, Any], column: str, told: float, formula: str) -> str | None:
    """A ratio that is not what its formula gives."""
    found = row[column]
    if found is None or isclose(found, told, rel_tol=_ROUNDING, abs_tol=_ROUNDING):
        return None
    return f"{column} is {found}; it must be {formula}, {told:.9g}"


def _of_text(row: Mapping[str, Any]) -> str | None:
    try:
        json.dumps(row, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return (
            "it holds half a character (a lone surrogate), which no file takes; run its job again"
        )
    return None


def _short(value: Any) -> str:
    return repr(str(value)[:40])


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
