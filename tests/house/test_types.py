"""What strict typing excepts: kernels, which have no types, and subclasses of PyTorch's classes."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

HOUSE = Path(__file__).parents[2]
OVERRIDES = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
UNTYPED = [name for each in OVERRIDES if each.get("disallow_untyped_defs") is False
           for name in each["module"]]  # fmt: skip


SUBCLASSING = [name for each in OVERRIDES if each.get("disallow_subclassing_any") is False
               for name in each["module"]]  # fmt: skip
LOOSENED = {"disallow_subclassing_any"}


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


def files_of(pattern: str) -> list[Path]:
    place = HOUSE / pattern.removeprefix("rematbench.").removesuffix(".*").replace(".", "/")
    return sorted(place.rglob("*.py")) if pattern.endswith("*") else [place.with_suffix(".py")]


def names_of_torch(tree: ast.Module) -> set[str]:
    """What a module imports of PyTorch, as it names it."""
    found = {"torch"}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "torch":
            found |= {each.asname or each.name for each in node.names}
    return found


@pytest.mark.parametrize("pattern", SUBCLASSING)
def test_only_where_pytorchs_classes_are_subclassed_may_they_be(pattern: str) -> None:
    """PyTorch's types are not read (``follow_imports``), so that to mypy its classes are Any."""
    bases = set()
    for path in files_of(pattern):
        tree = ast.parse(path.read_text())
        classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
        roots = {ast.unparse(base).partition(".")[0] for each in classes for base in each.bases}
        bases |= roots & names_of_torch(tree)
    assert bases, "nothing subclasses a class of PyTorch's: take it out of the exceptions"


def test_nothing_else_is_loosened() -> None:
    """Beside the kernels' modules: one flag of strict typing, and functions keep their types."""
    loosened = [each for each in OVERRIDES if each.get("disallow_untyped_defs") is not False]
    flags = {flag for each in loosened for flag, value in each.items() if value is False}
    assert flags == LOOSENED
