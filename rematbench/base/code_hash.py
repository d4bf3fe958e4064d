"""What a Python file executes, hashed: comments, docstrings and places in the file do not count."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import os
import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from time import time_ns
from types import CodeType
from typing import Any

from rematbench.base.errors import RematbenchError
from rematbench.base.json_files import read_json, write_json

# A file may change within one tick of its file system's clock and look the same: what is known of
# a file counts again only where the file was older than so many nanoseconds when it was read.
_TICK = 2 * 10**9
_Stamp = tuple[int, int, int, int]
_known: dict[str, tuple[_Stamp, str]] = {}


def content_hash(path: str | Path) -> str:
    """A hash of a file's bytes, read again only where the file was touched.

    Raises:
        OSError: the file cannot be read.
    """
    place, found = os.path.abspath(path), os.stat(path)
    stamp = (found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    known = _known.get(place)
    if known is not None and known[0] == stamp:
        return known[1]
    digest = hashlib.sha256(Path(path).read_bytes()).hexdigest()[:32]
    if time_ns() - max(found.st_ctime_ns, found.st_mtime_ns) > _TICK:
        _known[place] = (stamp, digest)
    return digest


@dataclass(frozen=True)
class Code:
    """What is known of a Python file.

    Attributes:
        hash: of what it executes.
        imports: dotted names that it imports, anywhere: of modules, or of what they hold; with
            leading dots where it says so.
    """

    hash: str
    imports: tuple[str, ...]


class CodeHashes:
    """Hashes of Python files, which a memo on disk spares to compile again.

    The memo goes by content, so that it is never out of date; where it is damaged or cannot be
    written, it is merely of no use.

    Args:
        memo: its JSON file, or None.
    """

    def __init__(self, memo: Path | None) -> None:
        self._memo = memo
        self._codes: dict[str, Code] | None = None
        self._new = False

    def of(self, path: str | Path) -> Code:
        """What a file executes; of a file that is no Python (a compiled module), its bytes.

        Raises:
            OSError: the file cannot be read.
        """
        content = content_hash(path)
        codes = self._loaded()
        if content not in codes:
            codes[content] = _code(Path(path).read_bytes(), content)
            self._new = True
        return codes[content]

    def save(self) -> None:
        """Write the memo, where there is something new in it."""
        if self._memo is None or not self._new:
            return
        known = {content: [code.hash, *code.imports] for content, code in self._loaded().items()}
        with contextlib.suppress(OSError):
            write_json(self._memo, {"python": _PYTHON, "codes": known})
            self._new = False

    def _loaded(self) -> dict[str, Code]:
        if self._codes is None:
            self._codes = {} if self._memo is None else _read_memo(self._memo)
        return self._codes


_PYTHON = importlib.util.MAGIC_NUMBER.hex()


def _read_memo(path: Path) -> dict[str, Code]:
    try:
        found = read_json(path)
        codes = found["codes"] if found["python"] == _PYTHON else {}
        return {content: Code(code, tuple(imports)) for content, (code, *imports) in codes.items()}
    except (RematbenchError, TypeError, KeyError, ValueError, AttributeError):
        return {}


def _code(source: bytes, content: str) -> Code:
    imports: dict[str, None] = {}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
            for node in ast.walk(tree):
                if isinstance(node, ast.Import):
                    imports |= dict.fromkeys(each.name for each in node.names)
                elif isinstance(node, ast.ImportFrom):
                    place = "." * node.level + (node.module or "")
                    joint = "" if place.endswith(".") else "."
                    names = (f"{place}{joint}{each.name}" for each in node.names)
                    imports |= dict.fromkeys([place, *names])
                elif isinstance(node, _DOCUMENTED):
                    _strip_docstring(node.body)
            code = compile(tree, "", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return Code(content, ())
    return Code(hashlib.sha256(repr(_executed(code)).encode()).hexdigest()[:32], tuple(imports))


_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def _strip_docstring(body: list[ast.stmt]) -> None:
    while body and _is_text(body[0]):  # what follows would be the docstring otherwise
        first = body.pop(0)
        if not body:
            body.append(ast.copy_location(ast.Pass(), first))


def _is_text(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Constant) and isinstance(value.value, str)


def _executed(code: CodeType) -> list[Any]:
    """All of a code object but the places of its instructions."""
    return [
        code.co_name,
        code.co_flags,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_code.hex(),
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
        code.co_exceptiontable.hex(),
        [_constant(each) for each in code.co_consts],
    ]


def _constant(each: Any) -> Any:
    if isinstance(each, CodeType):
        return _executed(each)
    if isinstance(each, frozenset):  # in no order of its own
        return sorted(map(repr, each))
    return [_constant(item) for item in each] if isinstance(each, tuple) else each


def locate(module: str, first: Sequence[str] = ()) -> str | None:
    """The file that importing ``module`` would load, found without importing anything.

    Args:
        module: its full name.
        first: folders to look in before Python's path.

    Returns:
        The absolute path; None where there is no such module, or it has no file.
    """
    spec: ModuleSpec | None = None
    path: Sequence[str] | None = None
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        spec = PathFinder.find_spec(name, first) if depth == 1 and first else None
        spec = spec or _find(name, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return os.path.abspath(spec.origin) if spec and spec.has_location and spec.origin else None


def _find(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path)
        if spec is not None:
            return spec
    return None
