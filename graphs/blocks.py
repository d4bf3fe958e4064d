"""Blocks of a network: the modules that a model repeats, as the ops' scopes show them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from statistics import median

from rematbench.graphs.ir import Graph, Phase

_NUMBERED = re.compile(r"(.*?)\d+")
_FEWEST_OPS = 2  # a module of one op is no block: there is nothing inside to drop


@dataclass(frozen=True, slots=True)
class Block:
    """One module out of a list of them.

    Attributes:
        name: qualified name of the module.
        ops: its forward ops, in program order.
    """

    name: str
    ops: tuple[int, ...]


def repeated_blocks(graph: Graph) -> tuple[Block, ...]:
    """The blocks that a model repeats, in program order; none where no op has a scope.

    These are the members of the longest list of sibling modules (``layers.0`` to ``layers.11``;
    of equally long ones the outermost), and those of further lists, of modules with several ops,
    that lie neither in nor around blocks that are chosen already: the decoder's after the
    encoder's. A list of modules of one op each (a plain ``Sequential``) counts where there is no
    other.
    """
    lists = _lists(_members(graph))
    several = [each for each in lists if median(len(b.ops) for b in each) >= _FEWEST_OPS]
    chosen: list[Block] = []
    for each in several or lists[:1]:
        if not any(_nested(a.name, b.name) for a in each for b in chosen):
            chosen += each
    return tuple(sorted(chosen, key=lambda block: block.ops))


def blocks_named(graph: Graph, patterns: Sequence[str]) -> tuple[Block, ...]:
    """The modules that match one of ``patterns``, in program order.

    Args:
        patterns: of qualified names, as ``layers.*`` or ``*.block.*``; a ``*`` stands for any
            characters but a dot. Of nested modules the outermost counts.
    """
    found: list[Block] = []
    for name, ops in sorted(_members(graph).items(), key=lambda item: item[0].count(".")):
        inside = any(_nested(name, block.name) for block in found)
        if not inside and any(_matches(name, pattern) for pattern in patterns):
            found.append(Block(name, ops))
    return tuple(sorted(found, key=lambda block: block.ops))


def block_of_ops(graph: Graph, blocks: Sequence[Block]) -> list[str]:
    """Per op, whatever its phase: the name of the block whose scope it has; "" outside of them."""
    names = {block.name for block in blocks}
    found = {
        scope: next((each for each in _ancestry(scope) if each in names), "")
        for scope in {op.scope for op in graph.ops}
    }
    return [found[op.scope] for op in graph.ops]


def _matches(name: str, pattern: str) -> bool:
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _ancestry(scope: str) -> Iterator[str]:
    """A module's name, and those of the modules around it, from the outermost."""
    parts = scope.split(".")
    return (".".join(parts[: n + 1]) for n in range(len(parts)))


def _members(graph: Graph) -> dict[str, tuple[int, ...]]:
    """Forward ops of every module."""
    found: dict[str, list[int]] = defaultdict(list)
    for i, op in enumerate(graph.ops):
        if op.phase is Phase.FORWARD and op.scope:
            for name in _ancestry(op.scope):
                found[name].append(i)
    return {name: tuple(ops) for name, ops in found.items()}


def _lists(members: dict[str, tuple[int, ...]]) -> list[list[Block]]:
    """Sibling modules that are numbered, the longest list first, then the outermost one."""
    found: dict[tuple[str, str], list[Block]] = defaultdict(list)
    for name, ops in members.items():
        parent, _, own = name.rpartition(".")
        numbered = _NUMBERED.fullmatch(own)
        if numbered is not None:
            found[parent, numbered[1]].append(Block(name, ops))
    lists = [each for each in found.values() if len(each) > 1]
    return sorted(lists, key=lambda each: (-len(each), each[0].name.count("."), each[0].ops))


def _nested(a: str, b: str) -> bool:
    """Is one of two modules the other one, or in it?"""
    return f"{a}.".startswith(f"{b}.") or f"{b}.".startswith(f"{a}.")
