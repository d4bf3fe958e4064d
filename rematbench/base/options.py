"""The options of strategies, read from the source of their dataclasses without running it.

Names, types, defaults and what the docstring says of each: the command line shows and checks them
before it imports a strategy, since that takes solvers and compilers with it. What the source does
not say plainly (a default that has to be computed, a base class from elsewhere) is asked of the
class itself.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rematbench.base import imports


@dataclass(frozen=True)
class Option:
    """One option.

    Attributes:
        name: as in ``strategy.name``.
        type: its annotation.
        default: its value when it is not given.
        doc: what the class's docstring says of it, on one line.
    """

    name: str
    type: ast.expr | None
    default: Any
    doc: str = ""

    def preset(self, presets: Mapping[str, Any]) -> Option:
        """The option with an alias's default."""
        if self.name not in presets:
            return self
        return dataclasses.replace(self, default=presets[self.name])


class _Unclear(Exception):
    """The source does not say it plainly."""


def options_of(path: str) -> tuple[Option, ...]:
    """The options of a strategy's class, in order.

    Args:
        path: ``package.module.Class``.

    Raises:
        ConfigError: there is no such class.
    """
    module, name = imports.split(path)
    try:
        return _read(module, name)
    except _Unclear:
        return _asked(imports.find(path, path))


def _read(module: str, name: str) -> tuple[Option, ...]:
    source = _source(module)
    node = source.class_of(name)
    if node is None:
        return _read(*source.imported(name))
    found: dict[str, Option] = {}
    for base in node.bases:
        if not isinstance(base, ast.Name):
            raise _Unclear
        found |= {option.name: option for option in _read(module, base.id)}
    if any(_is_dataclass(each) for each in node.decorator_list):
        found |= {option.name: option for option in _fields(source, node)}
    elif any(getattr(each, "name", "") == "__init__" for each in node.body):
        raise _Unclear
    return tuple(found.values())


def _fields(source: _Source, node: ast.ClassDef) -> Iterator[Option]:
    """The fields of a dataclass that have a default."""
    docs = _attribute_docs(ast.get_docstring(node) or "")
    for field in node.body:
        match field:
            case ast.AnnAssign(ast.Name(name), annotation, ast.expr() as value):
                if "ClassVar" not in ast.dump(annotation):
                    kind = source.resolved(annotation)
                    yield Option(name, kind, source.value(value), docs.get(name, ""))


def _is_dataclass(decorator: ast.expr) -> bool:
    call = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(call).rpartition(".")[2] == "dataclass"


def _asked(kind: Any) -> tuple[Option, ...]:
    """The options of a class that is imported."""
    if not dataclasses.is_dataclass(kind):
        return ()
    docs = _attribute_docs(kind.__doc__ or "")
    found = []
    for field in dataclasses.fields(kind):
        if field.default is not dataclasses.MISSING:
            default = field.default
        elif field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        else:
            continue
        written = field.type if isinstance(field.type, str) else None
        annotation = ast.parse(written, mode="eval").body if written else None
        doc = docs.get(field.name, "")
        found.append(Option(field.name, annotation, _plain(default), doc))
    return tuple(found)


def _plain(value: Any) -> Any:
    """A default as configurations have it."""
    return list(value) if isinstance(value, tuple) else value


def _attribute_docs(docstring: str) -> dict[str, str]:
    """What ``Attributes:`` says of each name."""
    _, _, section = docstring.partition("Attributes:\n")
    docs: dict[str, str] = {}
    for item in re.split(r"\n {0,4}(?=\S)", "\n" + re.split(r"\n\s*\n", section)[0]):
        names, colon, words = " ".join(item.split()).partition(": ")
        if colon:
            docs |= dict.fromkeys(names.split(", "), words)
    return docs


class _Source:
    """A module's text, parsed no further than is asked.

    Args:
        module: its name.
        text: its source.
        package: is it a package?
    """

    def __init__(self, module: str, text: str, package: bool) -> None:
        self.module = module
        self._text = text
        self._package = package

    @functools.cached_property
    def _body(self) -> list[ast.stmt]:
        return ast.parse(self._text).body

    def class_of(self, name: str) -> ast.ClassDef | None:
        """The fields of a class: parsed alone, since modules are long."""
        start = re.search(rf"^(@.*\n)*class {name}\b.*:\n", self._text, re.MULTILINE)
        if start is None:
            return None
        end = re.compile(r"^(    (async )?def |    @|\S)", re.MULTILINE).search(
            self._text, start.end()
        )
        try:
            node = ast.parse(self._text[start.start() : end.start() if end else None]).body[0]
        except SyntaxError:  # a line of a string looked like the end, say
            nodes = [each for each in self._body if getattr(each, "name", None) == name]
            node = nodes[0]
        return node if isinstance(node, ast.ClassDef) else None

    def imported(self, name: str) -> tuple[str, str]:
        """Where a name is imported from: module and name there.

        Raises:
            _Unclear: nothing imports it by name.
        """
        for each in self._body:
            if isinstance(each, ast.ImportFrom) and each.module:
                for alias in each.names:
                    if (alias.asname or alias.name) == name:
                        return self._absolute(each), alias.name
        raise _Unclear

    def _absolute(self, statement: ast.ImportFrom) -> str:
        assert statement.module is not None
        if not statement.level:
            return statement.module
        parts = self.module.split(".")
        keep = len(parts) - statement.level + self._package
        return ".".join([*parts[:keep], statement.module])

    def _assigned(self, name: str) -> tuple[_Source, ast.expr]:
        """What a module-level name stands for, and the module that says so."""
        for each in self._body:
            targets = each.targets if isinstance(each, ast.Assign) else []
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                assert isinstance(each, ast.Assign)
                return self, each.value
        module, original = self.imported(name)
        if module in sys.stdlib_module_names:
            raise _Unclear
        return _source(module)._assigned(original)

    def value(self, node: ast.expr) -> Any:
        """A default's value.

        Raises:
            _Unclear: it has to be computed.
        """
        if isinstance(node, ast.Name):
            source, node = self._assigned(node.id)
            return source.value(node)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self.value(node.left) / self.value(node.right)
        try:
            return _plain(ast.literal_eval(node))
        except ValueError:
            raise _Unclear from None

    def resolved(self, annotation: ast.expr) -> ast.expr:
        """An annotation with the names of types put in, where there are any."""
        return _Resolve(self).visit(annotation)  # type: ignore[no-any-return]


class _Resolve(ast.NodeTransformer):
    """Puts in what a name stands for: ``Cost = Literal[...]``."""

    _PLAIN = frozenset(("int", "float", "str", "bool", "list", "tuple", "Literal", "Sequence"))

    def __init__(self, source: _Source) -> None:
        self._source = source

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in self._PLAIN:
            return node
        try:
            return self._source._assigned(node.id)[1]
        except _Unclear:
            return node


@functools.cache
def _source(module: str) -> _Source:
    """A module's source, found without importing it or the packages around it.

    Raises:
        _Unclear: it is not written in Python.
    """
    spec, places = None, None
    parts = module.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        found = (finder.find_spec(name, places) for finder in sys.meta_path)
        spec = next((each for each in found if each is not None), None)
        if spec is None:
            raise _Unclear
        places = spec.submodule_search_locations
    if spec is None or not spec.origin or not spec.origin.endswith(".py"):
        raise _Unclear
    return _Source(module, Path(spec.origin).read_text(encoding="utf-8"), places is not None)
