"""An event stream as tables of integers: what the runtime's kernels play.

Ragged rows (arguments, neighbours, ...) live in one array, ``flat``; the tables hold where each
row starts. A row of neighbours is laid out in order of appearance, so that while a stream plays,
a growing length is all that changes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rematbench.base.errors import ConfigError, GraphError
from rematbench.graphs.ir import IntArray
from rematbench.streams.events import EventStream
from rematbench.streams.ids import Resolved, resolve

Table = NDArray[np.void]


def row_type(names: str) -> np.dtype[Any]:
    """The type of a row: whole numbers by name."""
    return np.dtype([(name, np.int64) for name in names.split()], align=True)


# total: bytes of all outputs; arguments, edges, slots, flags: where the op's rows begin.
OP = row_type(
    "cost total workspace arguments narguments first count edges nedges slots flags"  # one row
)
# cost: of the op, at the first of its outputs that view one storage; else 0.
TENSOR = row_type("op storage bytes cost defined")
STORAGE = row_type(
    "bytes root views nviews made nmade parents children "  # fixed: sizes, and where rows begin
    "cost locks refs pinned last banished place "  # place: in the pool, or -1
    "nparents nchildren reads readers "  # how many so far; reads and readers count repeats
    "forward backward walked node waiting mark"  # of the heuristics, and of banishing
)
_MOST_BYTES, _MOST_COST = 2**60, 2**53


@dataclass(frozen=True, slots=True)
class Semantics:
    """Where the paper and the original program differ; all off is the program, simrd.

    Attributes:
        order_by_id: undefined arguments are rematerialized in the order of their creation
            (paper, section 4.4), not in that of the arguments.
        root_cost: cost(S) is that of the op that makes S (the alternative of section 4.2), not
            the sum over all ops whose outputs view S.
        root_dependencies: deps(S) are the arguments of the op that makes S (same section), not
            those of all ops whose outputs view S.
    """

    order_by_id: bool = False
    root_cost: bool = False
    root_dependencies: bool = False


SEMANTICS = {"simrd": Semantics(), "paper": Semantics(True, True, True)}


@dataclass(frozen=True, eq=False)
class CompiledStream:
    """A stream as tables.

    Attributes:
        source: the same in objects.
        semantics: the differences that are compiled in.
        steps: rows of a kind and what it is about; see :class:`rematbench.streams.ids.StepKind`.
        ops, tensors, storages: one row each.
        flat: every ragged row.
        flags: number of (output, argument) pairs over all ops.
    """

    source: Resolved
    semantics: Semantics
    steps: IntArray
    ops: Table
    tensors: Table
    storages: Table
    flat: IntArray
    flags: int


def compile_stream(
    stream: EventStream, semantics: Semantics = SEMANTICS["simrd"]
) -> CompiledStream:
    """The tables of ``stream``.

    Raises:
        GraphError: the stream is malformed, or its bytes or costs are too large to be exact.
    """
    source = resolve(stream)
    if sum(s.bytes for s in source.storages) + sum(o.workspace_bytes for o in source.ops) >= (
        _MOST_BYTES
    ):
        raise GraphError(f"{stream.name}: holds 2^60 bytes or more; give smaller sizes")
    if source.cost >= _MOST_COST:
        raise GraphError(f"{stream.name}: costs sum to 2^53 or more; use a coarser unit")
    flat: list[int] = []
    arguments = [sorted(o.arguments) if semantics.order_by_id else o.arguments for o in source.ops]
    ops, flags = _op_table(source, arguments, flat)
    return CompiledStream(
        source,
        semantics,
        np.array(source.steps, dtype=np.int64).reshape(-1, 2),
        ops,
        _tensor_table(source, semantics),
        _storage_table(source, semantics, ops, flat),
        np.array(flat, dtype=np.int64),
        flags,
    )


def _op_table(
    source: Resolved, arguments: list[tuple[int, ...] | list[int]], flat: list[int]
) -> tuple[Table, int]:
    """Arguments, and per argument the first one that views the same storage (slots)."""
    rows, flags = [], 0
    for op, row in zip(source.ops, arguments, strict=True):
        owners = [source.tensors[t].storage for t in row]
        total = sum(source.tensors[t].bytes for t in op.outputs)
        at, slots = len(flat), len(flat) + len(row)
        flat += [*row, *(owners.index(storage) for storage in owners)]
        outputs = (op.outputs.start, len(op.outputs))
        rows.append(
            (op.cost, total, op.workspace_bytes, at, len(row), *outputs, 0, 0, slots, flags)
        )
        flags += len(op.outputs) * len(row)
    return np.array(rows, dtype=OP), flags


def _tensor_table(source: Resolved, semantics: Semantics) -> Table:
    rows = []
    charged: set[tuple[int, int]] = set()  # an op's cost counts once for a storage
    for number, tensor in enumerate(source.tensors):
        of_root = source.storages[tensor.storage].root == number
        free = (tensor.op, tensor.storage) in charged or (semantics.root_cost and not of_root)
        charged.add((tensor.op, tensor.storage))
        cost = 0 if free else source.ops[tensor.op].cost
        rows.append((tensor.op, tensor.storage, tensor.bytes, cost, 0))
    return np.array(rows, dtype=TENSOR)


def _storage_table(source: Resolved, semantics: Semantics, ops: Table, flat: list[int]) -> Table:
    """Views, the first tensor of each storage made from one, and the edges between different
    storages, each at its first op."""
    count = len(source.storages)
    parents, children = _neighbours(source, semantics, ops, flat)
    views: list[list[int]] = [[] for _ in range(count)]
    made_from: list[dict[int, int]] = [{} for _ in range(count)]
    for op in source.ops:
        read = {source.tensors[t].storage for t in op.arguments}
        for t in op.outputs:
            own = source.tensors[t].storage
            views[own].append(t)
            for parent in read - {own}:
                made_from[parent].setdefault(own, t)
    table = np.zeros(count, dtype=STORAGE)
    table["bytes"] = [storage.bytes for storage in source.storages]
    table["root"] = [storage.root for storage in source.storages]
    table["nviews"] = [len(row) for row in views]
    table["nmade"] = [len(row) for row in made_from]
    for name, rows in (("views", views), ("parents", parents), ("children", children)):
        for number, row in enumerate(rows):
            table[number][name] = len(flat)
            flat += row
    for number, firsts in enumerate(made_from):
        table[number]["made"] = len(flat)
        flat += firsts.values()
    return table


def _neighbours(
    source: Resolved, semantics: Semantics, ops: Table, flat: list[int]
) -> tuple[list[dict[int, None]], list[dict[int, None]]]:
    """Parents and children of each storage; the edges of each op are added to ``flat``."""
    parents: list[dict[int, None]] = [{} for _ in source.storages]
    children: list[dict[int, None]] = [{} for _ in source.storages]
    for number, op in enumerate(source.ops):
        ops[number]["edges"] = len(flat)
        made = [t for t in op.outputs if not semantics.root_dependencies or _is_root(source, t)]
        for child in dict.fromkeys(source.tensors[t].storage for t in made):
            for parent in dict.fromkeys(source.tensors[t].storage for t in op.arguments):
                if parent != child and parent not in parents[child]:
                    parents[child][parent] = children[parent][child] = None
                    flat += [parent, child]
        ops[number]["nedges"] = (len(flat) - ops[number]["edges"]) // 2
    return parents, children


def _is_root(source: Resolved, tensor: int) -> bool:
    return source.storages[source.tensors[tensor].storage].root == tensor


def semantics_named(name: str, **switches: bool | None) -> Semantics:
    """The semantics ``simrd``, or ``paper`` with some switches set.

    Args:
        switches: fields of :class:`Semantics`; None leaves the mode's own.

    Raises:
        ConfigError: an unknown name, or a switch of simrd, which has none.
    """
    if name not in SEMANTICS:
        raise ConfigError(f"strategy.semantics={name}: unknown; use {' or '.join(SEMANTICS)}")
    given = {key: value for key, value in switches.items() if value is not None}
    if given and name == "simrd":
        key = next(iter(given))
        raise ConfigError(f"strategy.{key}: only semantics=paper has switches; leave it null")
    return Semantics(**{f: given.get(f, True) for f in switches}) if given else SEMANTICS[name]
