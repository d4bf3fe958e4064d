"""How large a piece may be: files by lines, functions by lines and by McCabe's complexity."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HOUSE = Path(__file__).parents[2]
LONGEST_FILE, LONGEST_FUNCTION, MOST_COMPLEX = 450, 56, 20
BRANCHING = 10
MOST_BRANCHING = 110
"""Functions that may be above :data:`BRANCHING`: as many as there are. Lower it, never raise it."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
DECISIONS = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert)


@cache
def sources() -> dict[str, str]:
    """The text of each product file that git knows."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    names = subprocess.run(command, cwd=HOUSE, capture_output=True, text=True, check=True)
    product = (n for n in names.stdout.split() if not n.startswith(("tests/", "examples/")))
    return {name: (HOUSE / name).read_text() for name in product if (HOUSE / name).exists()}


@cache
def functions() -> dict[str, Function]:
    """Every function of the product, by file, line and name."""
    return {
        f"{file}:{node.lineno} {node.name}": node
        for file, text in sources().items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, Function)
    }


def within(function: Function) -> Iterator[ast.AST]:
    """Its nodes, but for functions and classes inside, which count for themselves."""
    ahead: list[ast.AST] = [*ast.iter_child_nodes(function)]
    while ahead:
        node = ahead.pop()
        if not isinstance(node, Function | ast.ClassDef):
            yield node
            ahead += ast.iter_child_nodes(node)


def decisions(node: ast.AST) -> int:
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    return isinstance(node, (*DECISIONS, ast.match_case))


def complexity(function: Function) -> int:
    """McCabe's number, where ``and``, ``or`` and comprehensions decide too."""
    return 1 + sum(map(decisions, within(function)))


@cache
def complexities() -> dict[str, int]:
    return {name: complexity(node) for name, node in functions().items()}


def above(most: int) -> list[str]:
    return sorted(name for name, found in complexities().items() if found > most)


def test_files() -> None:
    lengths = {name: len(text.splitlines()) for name, text in sources().items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_functions() -> None:
    lengths = {n: (f.end_lineno or f.lineno) - f.lineno + 1 for n, f in functions().items()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FUNCTION} == {}


def test_none_is_too_complex() -> None:
    assert above(MOST_COMPLEX) == []


def test_few_branch_much() -> None:
    branching = above(BRANCHING)
    assert len(branching) <= MOST_BRANCHING, branching


def test_counting() -> None:
    """Each kind of decision once, and a function inside that counts for itself."""
    text = """
def f(x):
    assert x
    for a in x if x else ():
        while a and x or a:
            try:
                match a:
                    case 1: pass
            except ValueError:
                if a: pass
    def inner():
        if x: pass
    return [y for y in x if y]
"""
    function = ast.parse(text).body[0]
    assert isinstance(function, ast.FunctionDef)
    assert complexity(function) == 12


def test_no_class_name_stands_for_two_things() -> None:
    """``Facts`` is in each strategy's card, where it is the same thing of another strategy."""
    places: dict[str, list[str]] = {}
    for file, text in sources().items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ClassDef) and node.name != "Facts":
                places.setdefault(node.name, []).append(file)
    assert not {name: files for name, files in places.items() if len(files) > 1}
