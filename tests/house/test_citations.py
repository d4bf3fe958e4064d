"""What comments, docstrings and pages cite exists: modules and names of ours, files."""

from __future__ import annotations

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

HOUSE = Path(__file__).parents[2]
SETTINGS = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["setuptools"]
ROOMS = {"rematbench": "rematbench"} | SETTINGS["package-dir"]
FOLDERS = ("tests", "docs", "benchmarks", "hydra_plugins", *ROOMS.values())
# A logger, a group of entry points.
NO_MODULE = {"rematbench.user", "rematbench.costmodels"}
ROOTS = "|".join([*FOLDERS, "papers", "notes", "shared"])
CITED = re.compile(rf"(?<![\w/.])(?:{ROOTS})(?:/[\w-]+)*/(?:[\w-]+\.\w+|[\w-]+/(?=`))")
NAMED = re.compile(r"(?<![\w./])rematbench(?:\.\w+)+")


def texts() -> list[Path]:
    found = [HOUSE / "README.md", *(HOUSE / "docs").rglob("*.md")]
    for folder in ("benchmarks", "hydra_plugins", *ROOMS.values()):
        found += (HOUSE / folder).rglob("*.py")
    return sorted(found)


@cache
def names_in(file: Path) -> frozenset[str]:
    """Every name that a module defines or imports, inside its classes, too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.alias):
            found.add(node.asname or node.name)
    return frozenset(found)


def resolves(name: str) -> bool:
    """Is ``rematbench.a.b.C.d`` a module of ours, or a name in one?"""
    parts = name.split(".")[1:]
    folder, room = HOUSE / "rematbench", ROOMS.get(f"rematbench.{parts[0]}")
    if room is not None:
        folder, parts = HOUSE / room, parts[1:]
    while parts and (folder / parts[0]).is_dir():
        folder, parts = folder / parts[0], parts[1:]
    if not parts:
        return True
    file = folder / f"{parts[0]}.py"
    if file.exists():
        parts = parts[1:]
    else:
        stub = folder / "__init__.pyi"
        file = stub if stub.exists() else folder / "__init__.py"
    return all(part in names_in(file) for part in parts)


def test_citations() -> None:
    missing = []
    for file in texts():
        text = file.read_text()
        missing += [
            f"{file.relative_to(HOUSE)}: {name}"
            for name in sorted({*NAMED.findall(text)} - NO_MODULE)
            if not resolves(name)
        ]
        missing += [
            f"{file.relative_to(HOUSE)}: {path}"
            for path in sorted({*CITED.findall(text)})
            if not ((HOUSE / path).exists() or (file.parent / path).exists())
        ]
    assert missing == []
