"""The graph of one training step: its ops in program order, and the values that they make.

Names are for people and files. Algorithms use the integer indices and the numpy arrays of
:class:`~rematbench.graphs.tables.Tables`, which a graph builds once, on demand.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property

import networkx as nx
import numpy as np
from numpy.typing import NDArray

from rematbench.base.errors import GraphError
from rematbench.base.limits import BYTES_TOLD, MOST_BYTES, MOST_COST, shown
from rematbench.graphs.ops import (
    Implementation as Implementation,
    Op as Op,
    Phase as Phase,
    Value as Value,
    simple_op as simple_op,
)
from rematbench.graphs.tables import IntArray as IntArray, Rows as Rows, Tables


@dataclass(frozen=True)
class Graph:
    """The ops of one training step (forward, loss, backward) in program order.

    Args:
        name: of the model, say.
        values: every storage, residents included.
        ops: in a valid program order; each non-resident value is written by exactly one.
        outputs: values that must be live at the end (loss, parameter gradients, buffers).
        cost_unit: of every cost, for example ``flop`` or ``second``.
        random_state_bytes: of the state of the device's random generator, which is saved for each
            random op that a plan computes again, or whose draws another op repeats, and stays until
            the step ends; 0 where that memory is none of the device's. Not hashed: it is of the
            machine.

    Raises:
        GraphError: a cycle, an unknown or duplicate name, or a negative or non-finite number;
            the message names the offender and the remedy.
    """

    name: str
    values: tuple[Value, ...]
    ops: tuple[Op, ...]
    outputs: tuple[str, ...]
    cost_unit: str = "unit"
    random_state_bytes: int = 0

    def __post_init__(self) -> None:
        _check_values(self)
        _check_bytes(f"graph {self.name!r}", "random_state_bytes", self.random_state_bytes)
        _check_ops(self)
        _check_sum(self)
        _check_order(self)
        for output in self.outputs:
            if output not in self.value_index:
                raise GraphError(
                    f"graph {self.name!r}: output {output!r} is not a value; list it under values"
                )
        if len(set(self.outputs)) != len(self.outputs):
            raise GraphError(f"graph {self.name!r}: an output is listed twice; list each once")

    @cached_property
    def value_index(self) -> dict[str, int]:
        """Position of each value by name."""
        return {value.name: i for i, value in enumerate(self.values)}

    @cached_property
    def op_index(self) -> dict[str, int]:
        """Position of each op by name."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def loss_index(self) -> int | None:
        """Position of the loss op, or None in a forward-only graph."""
        return next((i for i, op in enumerate(self.ops) if op.phase is Phase.LOSS), None)

    @cached_property
    def random_ops(self) -> frozenset[str]:
        """Names of the ops that draw random numbers."""
        return frozenset(op.name for op in self.ops if op.random)

    @cached_property
    def draws(self) -> IntArray:
        """Per implementation: the random op whose numbers it draws, or draws again; or -1."""
        found = [
            self.op_index[op.name if implementation.replays is None else implementation.replays]
            if op.random or implementation.replays is not None
            else -1
            for op in self.ops
            for implementation in op.implementations
        ]
        return np.array(found, dtype=np.int64)

    @cached_property
    def resident_bytes(self) -> int:
        """Bytes that are live from start to end."""
        return sum(value.bytes for value in self.values if value.resident)

    @cached_property
    def tables(self) -> Tables:
        """The graph in integers, for algorithms."""
        return _build_tables(self)

    @cached_property
    def hash(self) -> str:
        """16 hex digits that change with anything that a planner or the simulator looks at."""
        content = [
            [[v.name, v.bytes, v.resident] for v in self.values],
            [
                [
                    op.name,
                    op.phase.value,
                    op.writes,
                    [
                        [i.name, i.reads, i.cost, i.workspace_bytes, i.overwrites]
                        for i in op.implementations
                    ],
                ]
                for op in self.ops
            ],
            self.outputs,
            self.cost_unit,
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]

    def needed_ops(self) -> NDArray[np.bool_]:
        """Per op: does an output depend on it through default implementations?

        An op that nothing needs (a mask that no chosen implementation reads) is optional.
        """
        return self._needed_ops.copy()

    def always_needed_ops(self) -> NDArray[np.bool_]:
        """Per op: does every plan compute it, whichever implementations it takes?"""
        return self._always_needed_ops.copy()

    @cached_property
    def _needed_ops(self) -> NDArray[np.bool_]:
        return self._closure(self.tables.inputs)

    @cached_property
    def _always_needed_ops(self) -> NDArray[np.bool_]:
        tables = self.tables

        def always_read(op: int) -> list[int]:
            first, last, own = tables.op_first[op], tables.op_first[op + 1], {*tables.writes[op]}
            rows = [
                {*tables.reads[implementation].tolist()}
                for implementation in range(int(first), int(last))
            ]
            return sorted(set.intersection(*(row for row in rows if not row & own)))

        return self._closure(Rows.of([always_read(op) for op in range(len(self.ops))]))

    def _closure(self, reads: Rows) -> NDArray[np.bool_]:
        """Per op: does an output depend on it, where ops read so?"""
        tables = self.tables
        wanted = tables.is_output.copy()
        needed = np.zeros(len(self.ops), dtype=bool)
        for op in range(len(self.ops) - 1, -1, -1):
            if wanted[tables.writes[op]].any():
                needed[op] = True
                wanted[reads[op]] = True
        return needed

    def floor(self) -> tuple[int, str]:
        """A peak in bytes that no plan can undercut, and what needs it.

        Residents plus the larger of: all outputs; the largest op (the values that it reads, its
        outputs and its workspace, in its leanest implementation). Outputs and the largest op
        need not be live together, so their sum would not be a bound.
        """
        tables = self.tables
        movable = np.where(tables.resident, 0, tables.value_bytes)
        largest, what = int(movable[tables.outputs].sum()), "the outputs"
        for op in np.flatnonzero(self._always_needed_ops).tolist():
            written = int(movable[tables.writes[op]].sum())
            leanest = min(
                int(movable[tables.reads[i]].sum() + tables.workspace[i])
                + int(
                    sum(
                        movable[w]
                        for w, v in zip(tables.writes[op], tables.overwritten_by[i], strict=True)
                        if v < 0
                    )
                )
                for i in range(int(tables.op_first[op]), int(tables.op_first[op + 1]))
            )
            if max(leanest, written) > largest:
                largest, what = max(leanest, written), f"op {self.ops[op].label}"
        return self.resident_bytes + largest, what

    def floor_bytes(self) -> int:
        """The bytes of :meth:`floor`."""
        return self.floor()[0]


def _check_values(graph: Graph) -> None:
    if len(graph.value_index) != len(graph.values):
        names = [value.name for value in graph.values]
        twice = next(name for i, name in enumerate(names) if name in names[:i])
        raise GraphError(f"graph {graph.name!r}: value {twice!r} appears twice; rename one")
    for value in graph.values:
        _check_bytes(f"graph {graph.name!r}: value {value.name!r}", "bytes", value.bytes)


def _check_bytes(where: str, key: str, number: object) -> None:
    if not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise GraphError(
            f"{where}: {key} is {shown(number)}; give a whole number of bytes, 0 or more"
        )
    if number > MOST_BYTES:
        raise GraphError(f"{where}: {key} is {shown(number)}; {BYTES_TOLD}")


def _check_sum(graph: Graph) -> None:
    """No peak of a plan may overflow."""
    total = sum(value.bytes for value in graph.values)
    needs = (i.workspace_bytes for op in graph.ops for i in op.implementations)
    if total + max(needs, default=0) > MOST_BYTES:
        largest = max(graph.values, key=lambda value: value.bytes)
        raise GraphError(
            f"graph {graph.name!r}: its values and its largest workspace come to more than "
            f"{MOST_BYTES} bytes (2^60, 1 EiB), which is the most that is allowed; the largest "
            f"value is {largest.name!r} of {largest.bytes} bytes: check its unit"
        )


def _check_ops(graph: Graph) -> None:
    writer: dict[str, str] = {}
    seen: set[str] = set()
    resident = {value.name for value in graph.values if value.resident}
    for op in graph.ops:
        where = f"graph {graph.name!r}: op {op.label}"
        if op.name in seen:
            raise GraphError(f"{where} appears twice; rename one")
        seen.add(op.name)
        _check_writes(where, graph, op, writer, resident)
        writer |= dict.fromkeys(op.writes, op.name)
        if not op.implementations:
            raise GraphError(f"{where} has no implementation; give at least one")
        if len({i.name for i in op.implementations}) != len(op.implementations):
            raise GraphError(f"{where} has two implementations of one name; rename one")
        for implementation in op.implementations:
            _check_implementation(where, graph, op, implementation, resident)
    for value in graph.values:
        if not value.resident and value.name not in writer:
            raise GraphError(
                f"graph {graph.name!r}: no op writes value {value.name!r}; mark it resident, "
                "or list the op that computes it"
            )


def _check_writes(
    where: str, graph: Graph, op: Op, writer: dict[str, str], resident: set[str]
) -> None:
    if not op.writes:
        raise GraphError(f"{where} writes nothing; remove it, or name the value that it makes")
    for place, name in enumerate(op.writes):
        if name not in graph.value_index:
            raise GraphError(f"{where} writes the unknown value {name!r}; list it under values")
        if name in resident:
            raise GraphError(
                f"{where} writes the resident value {name!r}; residents are never written: "
                "write a new value and make it an output"
            )
        if name in writer or name in op.writes[:place]:
            raise GraphError(
                f"{where} writes {name!r}, which op {writer.get(name, op.name)!r} writes too; "
                "each value has exactly one writer"
            )


def _check_implementation(
    where: str, graph: Graph, op: Op, implementation: Implementation, resident: set[str]
) -> None:
    if implementation.name != "default":
        where = f"{where}, implementation {implementation.name!r}"
    cost = implementation.cost
    is_number = isinstance(cost, (int, float)) and not isinstance(cost, bool)
    if not is_number or not 0 <= cost <= MOST_COST:  # nor is it NaN
        raise GraphError(
            f"{where}: cost is {shown(cost)}; give a finite number from 0 to {MOST_COST:g}"
        )
    if implementation.replays is not None and implementation.replays not in graph.random_ops:
        raise GraphError(f"{where}: replays {implementation.replays!r}, which is no random op")
    _check_bytes(where, "workspace_bytes", implementation.workspace_bytes)
    for name in implementation.reads:
        if name not in graph.value_index:
            raise GraphError(f"{where} reads the unknown value {name!r}; list it under values")
    for name in implementation.overwrites:
        if name not in implementation.reads or name in resident or name in graph.outputs:
            raise GraphError(
                f"{where} overwrites {name!r}; only a value that it reads, neither resident nor "
                "an output of the graph, can be overwritten"
            )
    if implementation.overwrites and match_overwrites(graph, op, implementation) is None:
        raise GraphError(
            f"{where}: its overwrites {list(implementation.overwrites)} do not match its writes "
            "one to one in bytes; drop an overwrite, or correct the bytes"
        )


def match_overwrites(graph: Graph, op: Op, implementation: Implementation) -> list[int] | None:
    """Per write of ``op``: the index of the value whose storage it takes over, or -1.

    Equal sizes are matched in order. None when an overwritten value has no write of its bytes.
    """
    size = [graph.values[graph.value_index[name]].bytes for name in op.writes]
    taken = [-1] * len(op.writes)
    for name in implementation.overwrites:
        value = graph.value_index[name]
        if value in taken:
            return None
        free = (w for w, n in enumerate(size) if taken[w] < 0 and n == graph.values[value].bytes)
        write = next(free, None)
        if write is None:
            return None
        taken[write] = value
    return taken


def _check_order(graph: Graph) -> None:
    ready = {value.name for value in graph.values if value.resident}
    for op in graph.ops:
        for number, implementation in enumerate(op.implementations):
            # The first compute is by another implementation, so that its results are there.
            own = op.writes if number > 0 else ()
            late = next((n for n in implementation.reads if n not in ready and n not in own), None)
            if late is not None:
                raise GraphError(f"graph {graph.name!r}: {_describe_disorder(graph, op, late)}")
        ready.update(op.writes)


def _describe_disorder(graph: Graph, op: Op, late: str) -> str:
    writer = {name: other.name for other in graph.ops for name in other.writes}
    reads = nx.DiGraph(
        (writer[name], other.name)
        for other in graph.ops
        for implementation in other.implementations
        for name in implementation.reads
        if name in writer
    )
    try:
        cycle = [edge[0] for edge in nx.find_cycle(reads)]
    except nx.NetworkXNoCycle:
        return (
            f"op {op.name!r} reads {late!r} before op {writer[late]!r} writes it; "
            "list the ops in program order"
        )
    return f"ops form a cycle: {' -> '.join([*cycle, cycle[0]])}; remove one of these reads"


def _build_tables(graph: Graph) -> Tables:
    index = graph.value_index
    implementations = [(op, i) for op in graph.ops for i in op.implementations]
    counts = [len(op.implementations) for op in graph.ops]
    writer = np.full(len(graph.values), -1, dtype=np.int64)
    writes = Rows.of([index[name] for name in op.writes] for op in graph.ops)
    writer[writes.items] = writes.row_of
    first = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
    reads = Rows.of(sorted({index[n] for n in i.reads}) for _, i in implementations)
    outputs = np.array([index[name] for name in graph.outputs], dtype=np.int64)
    numbers = np.arange(len(graph.values))
    return Tables(
        value_bytes=np.array([value.bytes for value in graph.values], dtype=np.int64),
        resident=np.array([value.resident for value in graph.values], dtype=bool),
        writer=writer,
        is_read=np.isin(numbers, reads.items),
        is_output=np.isin(numbers, outputs),
        outputs=outputs,
        op_first=first,
        forward=np.array([op.phase is Phase.FORWARD for op in graph.ops], dtype=bool),
        backward=np.array([op.phase is Phase.BACKWARD for op in graph.ops], dtype=bool),
        loss=-1 if graph.loss_index is None else graph.loss_index,
        inputs=reads.picked(first[:-1]),
        writes=writes,
        op_of=np.repeat(np.arange(len(graph.ops), dtype=np.int64), counts),
        cost=np.array([i.cost for _, i in implementations], dtype=np.float64),
        workspace=np.array([i.workspace_bytes for _, i in implementations], dtype=np.int64),
        reads=reads,
        overwritten_by=Rows.of(match_overwrites(graph, op, i) or [] for op, i in implementations),
    )
