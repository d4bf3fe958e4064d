"""Who may import whom: no circles, arrows between rooms point down, plans need no PyTorch."""

from __future__ import annotations

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx

HOUSE = Path(__file__).parents[2]
SETTINGS = tomllib.loads((HOUSE / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS = {"rematbench": "rematbench"} | SETTINGS["package-dir"]
# What each room may import, besides itself. The first rows are the ground floor.
BELOW: dict[str, set[str]] = {
    "conf": set(),
    "base": set(),
    "graphs": {"base"},
    "rows": {"base", "graphs"},
    "streams": {"base", "graphs"},
    "tracing": {"base", "graphs", "streams"},
    "zoo": {"base", "graphs", "tracing", "conf"},
    "costmodel": {"base", "graphs", "tracing"},
    "engines": {"base", "graphs", "streams"},
    "strategies": {"base", "graphs", "streams", "engines"},
    "validator": {"base", "graphs", "tracing", "costmodel"},
    "training": {"base", "graphs", "streams", "tracing", "costmodel", "validator"},
}
for higher in ("jobs", "worker", "suite", "cli", "report", "instances"):
    BELOW[higher] = set(BELOW)
BELOW["rematbench"] = set(BELOW)
# Training and the validator know no strategy; names resolve through the registry.
REGISTRY = "rematbench.strategies.registry"
# PyTorch's own planners: the only strategies that may need it.
OF_TORCH = ("torch_budget", "torch_checkpoint", "torch_knapsack")


@dataclass(frozen=True)
class Import:
    """One import of a module.

    Attributes:
        lazy: inside a function.
        typing: under ``TYPE_CHECKING``.
    """

    source: str
    target: str
    lazy: bool
    typing: bool


@cache
def modules() -> dict[str, Path]:
    """Every module of the package and its file."""
    found = {}
    for package, folder in FOLDERS.items():
        for path in (HOUSE / folder).rglob("*.py"):
            inner = path.relative_to(HOUSE / folder).with_suffix("").parts
            parts = [package, *(part for part in inner if part != "__init__")]
            found[".".join(parts)] = path
    return found


def visit(node: ast.AST, source: str, lazy: bool, typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (Import(source, name.name, lazy, typing) for name in child.names)
        elif isinstance(child, ast.ImportFrom):
            assert child.module, f"{source}: import by full names"
            assert child.level == 0, f"{source}: import by full names"
            for name in child.names:
                inner = f"{child.module}.{name.name}"
                target = inner if inner in modules() else child.module
                yield Import(source, target, lazy, typing)
        else:
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            yield from visit(child, source, lazy or function, typing or checking)


@cache
def imports() -> tuple[Import, ...]:
    """Every import in the package, of ours and of others."""
    return tuple(
        found
        for name, path in modules().items()
        for found in visit(ast.parse(path.read_text()), name, False, False)
    )


def ours() -> list[Import]:
    return [each for each in imports() if each.target.partition(".")[0] == "rematbench"]


def room(module: str) -> str:
    second = [*module.split("."), ""][1]
    return second if second in BELOW else "rematbench"


def of_torch(module: str) -> bool:
    return paper(module) in OF_TORCH


def paper(module: str) -> str | None:
    """The strategy's folder that a module lies in."""
    parts = module.split(".")
    return parts[2] if parts[1:2] == ["strategies"] and len(parts) > 3 else None


def test_every_import_finds_its_module() -> None:
    assert [each for each in ours() if each.target not in modules()] == []


def test_no_circles() -> None:
    """Neither at import, nor by imports inside functions or for types."""
    graph = nx.DiGraph((each.source, each.target) for each in ours())
    circles = [sorted(ring) for ring in nx.strongly_connected_components(graph) if len(ring) > 1]
    assert circles == []


def test_arrows_point_down() -> None:
    up = []
    for each in ours():
        here, there = room(each.source), room(each.target)
        adapter = of_torch(each.source) and there == "tracing"
        named = each.target == REGISTRY and here in ("training", "validator")
        if not (here == there or there in BELOW[here] or adapter or named):
            up.append(each)
    assert up == []


def private_imports(module: str, path: Path) -> Iterator[str]:
    """Names with an underscore that it takes from a module of another package."""
    own = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("rematbench"):
            for name in node.names:
                package = (node.module or "").rpartition(".")[0]
                if name.name.startswith("_") and own not in (package, node.module):
                    yield f"{module}: {node.module}.{name.name}"


def test_private_names_stay_in_their_package() -> None:
    found = [name for module, path in modules().items() for name in private_imports(module, path)]
    assert found == []


def test_strategies_share_through_the_engines() -> None:
    """No paper's folder imports another's."""
    pairs = {(paper(each.source), paper(each.target)) for each in ours()}
    assert {(here, there) for here, there in pairs if here and there and here != there} == set()


def test_readmes_map_is_the_tree() -> None:
    """Its folders are those that there are, and the rooms of ``rematbench`` all of them."""
    table = (HOUSE / "README.md").read_text().partition("| folder | what is in it |")[2]
    lines = [line for line in table.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    named = {name for line in lines for name in re.findall(r"`(\w+)/`", line.split(" | ")[0])}
    tracked = subprocess.run(["git", "ls-files"], cwd=HOUSE, capture_output=True, text=True)
    files = [Path(line) for line in tracked.stdout.splitlines()]
    assert named == {file.parts[0] for file in files if len(file.parts) > 1} - {".ci"}
    rooms = {file.parts[1] for file in files if file.parts[0] == "rematbench" and file.parts[2:]}
    (own,) = (line for line in lines if line.startswith("| `rematbench/`"))
    assert {*re.findall(r"`(\w+)/`", own)} - {"rematbench"} == rooms
    assert rooms <= set(BELOW)


def test_every_strategy_has_a_folder() -> None:
    """Loose are the base, cards, the registry, and two names that plug-ins know."""
    loose = {path.stem for path in (HOUSE / "strategies").glob("*.py")}
    assert loose == {"__init__", "base", "cards", "registry", "clock", "stages"}
    folders = {path.name for path in (HOUSE / "strategies").iterdir() if path.is_dir()}
    folders -= {"__pycache__"}
    assert {n for n in folders if not (HOUSE / "strategies" / n / "card.py").exists()} == set()


def test_planning_needs_no_torch() -> None:
    """Whatever graphs, streams and the strategies import, PyTorch is not among it."""
    eager = [each for each in imports() if not (each.lazy or each.typing)]
    graph = nx.DiGraph((each.source, each.target) for each in eager)
    for name in modules():
        parts = name.split(".")
        # Python imports the packages around a module, too.
        graph.add_edges_from((name, ".".join(parts[:i])) for i in range(1, len(parts)))
    light = [
        name
        for name in modules()
        if room(name) in ("base", "graphs", "streams", "engines", "strategies")
        and not of_torch(name)
    ]
    heavy = {
        name: sorted(needed)
        for name in light
        if (needed := {n for n in nx.descendants(graph, name) if n.partition(".")[0] == "torch"})
    }
    assert len(light) > 60
    assert heavy == {}
