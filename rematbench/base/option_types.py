"""Do values from a configuration have the types that a strategy's options are declared with?"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import NoneType
from typing import Any

from rematbench.base.checks import did_you_mean
from rematbench.base.errors import ConfigError
from rematbench.base.options import Option

_SEQUENCES = ("list", "tuple", "Sequence")
_TYPES: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
    "None": NoneType,
}
_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "str": "a word",
    "None": "null",
}


def check_options(strategy: str, options: Sequence[Option], given: Mapping[str, Any]) -> None:
    """Refuse options that a strategy does not have, and values of another type than theirs.

    Args:
        strategy: its name.
        options: what it has.
        given: values by option.

    Raises:
        ConfigError: names the option, and the nearest one where there is none of the name.
    """
    known = {option.name: option for option in options}
    for name, value in given.items():
        if name not in known:
            hint = did_you_mean(name, known, prefix="strategy.")
            raise ConfigError(
                f"strategy.{name}: strategy={strategy} has no such option; {hint}"
                f"its options are: {', '.join(known) or 'none'}"
            )
        check_option(known[name], value)


def check_option(option: Option, value: Any) -> None:
    """Refuse a value of another type than the option's.

    Raises:
        ConfigError: says what it may be.
    """
    if option.type is None:
        return
    kinds = _alternatives(option.type)
    if any(_is(value, kind) for kind in kinds):
        return
    where = f"strategy.{option.name}={_shown(value)}"
    words = [word for kind in kinds for word in _literals(kind)]
    hint = did_you_mean(str(value), words)
    raise ConfigError(f"{where}: {hint}give {' or '.join(_said(kind) for kind in kinds)}")


def _alternatives(kind: ast.expr) -> list[ast.expr]:
    if isinstance(kind, ast.BinOp) and isinstance(kind.op, ast.BitOr):
        return [*_alternatives(kind.left), *_alternatives(kind.right)]
    return [kind]


def _is(value: Any, kind: ast.expr) -> bool:
    """Has it this type? What only Python can say of a type is let through."""
    if isinstance(kind, ast.Subscript):
        name = ast.unparse(kind.value).rpartition(".")[2]
        if name == "Literal":
            return value in _literals(kind) and not isinstance(value, bool)
        if name in _SEQUENCES:
            return isinstance(value, (list, str) if name == "Sequence" else list)
        return True
    name = ast.unparse(kind).rpartition(".")[2]
    if name in _TYPES:
        return isinstance(value, _TYPES[name]) and isinstance(value, bool) == (name == "bool")
    return not isinstance(value, (int, float, str, NoneType))


def _literals(kind: ast.expr) -> list[Any]:
    if not isinstance(kind, ast.Subscript) or not ast.unparse(kind.value).endswith("Literal"):
        return []
    found = ast.literal_eval(kind.slice)
    return list(found) if isinstance(found, tuple) else [found]


def _said(kind: ast.expr) -> str:
    literals = _literals(kind)
    if literals:
        return " or ".join(map(str, literals))
    name = ast.unparse(kind)
    if isinstance(kind, ast.Subscript) and name.partition("[")[0] in _SEQUENCES:
        return "a list"
    return _WORDS.get(name, name)


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
