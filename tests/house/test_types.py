"""What strict typing excepts: modules of kernels, of which only the kernels have no types."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
OVERRIDES = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
UNTYPED = [name for each in OVERRIDES if each.get("disallow_untyped_defs") is False
           for name in each["module"]]  # fmt: skip


def is_kernel(function: ast.FunctionDef) -> bool:
    return any("kernel" in ast.unparse(each) for each in function.decorator_list)


def is_typed(function: ast.FunctionDef) -> bool:
    given = [*function.args.args, *function.args.kwonlyargs]
    named = (each for each in given if each.arg not in ("self", "cls"))
    return function.returns is not None and all(each.annotation for each in named)


@pytest.mark.parametrize("name", UNTYPED)
def test_only_kernels_have_no_types(name: str) -> None:
    path = HOUSE / (name.removeprefix("rematbench.").replace(".", "/") + ".py")
    functions = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef)]
    assert any(map(is_kernel, functions)), "it holds no kernel: take it out of the exceptions"
    assert [each.name for each in functions if not is_kernel(each) and not is_typed(each)] == []
