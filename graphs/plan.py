"""Plans: what to compute, and when to free.

A plan is a sequence of statements. People and files see names (:class:`Compute`,
:class:`Free`); planners and the simulator see one integer per statement, its *code*: an
implementation's number, or ``~v`` to free value ``v``. Of V values, ``~(v + V)`` copies v to the
host (:class:`Offload`), ``~(v + 2 V)`` copies it back (:class:`Fetch`), and ``~(v + 3 V)`` gives up
the host's copy (:class:`Drop`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from rematbench.base.errors import InvalidPlan
from rematbench.base.kernels import kernel
from rematbench.graphs.ir import Graph, IntArray


@dataclass(frozen=True, slots=True)
class Compute:
    """Compute an op (again), with its default implementation unless another is named."""

    op: str
    implementation: str | None = None


@dataclass(frozen=True, slots=True)
class Free:
    """Free a value."""

    value: str


@dataclass(frozen=True, slots=True)
class Offload:
    """Copy a value to the host; it stays on the device until it is freed."""

    value: str


@dataclass(frozen=True, slots=True)
class Fetch:
    """Copy a value back from the host, where its copy stays."""

    value: str


@dataclass(frozen=True, slots=True)
class Drop:
    """Give up the host's copy of a value."""

    value: str


Statement = Compute | Free | Offload | Fetch | Drop
MOVES = (Free, Offload, Fetch, Drop)
"""The statements on values, in the order of their codes."""
FREE, OFFLOAD, FETCH, DROP = range(4)
_MOVE: dict[type, int] = {kind: number for number, kind in enumerate(MOVES)}


def move_of(code: int, values: int) -> tuple[int, int]:
    """What a negative code does (FREE, OFFLOAD, FETCH or DROP), and the value's number.

    Args:
        values: of the graph.
    """
    return divmod(~code, values)


def has_copies(graph: Graph, codes: IntArray) -> bool:
    """Does a plan copy anything to the host or back, or drop what is there?"""
    return bool(codes.size) and int(codes.min()) < -len(graph.values)


class Plan:
    """An immutable sequence of statements for one graph.

    Args:
        statements: in execution order.
        graph: name of the graph that the plan is for.
        strategy: name of the planner.
        budget_bytes: the allowed peak, or None.

    Example:
        >>> plan = Plan([Compute("conv1"), Compute("relu1"), Free("conv1")], graph="tiny")
        >>> len(plan)
        3
    """

    __slots__ = ("_codes", "_codes_graph", "_statements", "budget_bytes", "graph", "strategy")

    def __init__(
        self,
        statements: Iterable[Statement],
        graph: str = "",
        strategy: str = "",
        budget_bytes: int | None = None,
    ) -> None:
        self._statements: tuple[Statement, ...] | None = tuple(statements)
        self._codes: IntArray | None = None
        self._codes_graph: Graph | None = None
        self.graph = graph
        self.strategy = strategy
        self.budget_bytes = budget_bytes

    @classmethod
    def from_codes(
        cls,
        graph: Graph,
        codes: Sequence[int] | IntArray,
        strategy: str = "",
        budget_bytes: int | None = None,
    ) -> Plan:
        """A plan from statement codes; its names are only made when someone asks."""
        plan = cls((), graph.name, strategy, budget_bytes)
        plan._statements = None
        plan._codes = np.ascontiguousarray(codes, dtype=np.int64)
        plan._codes_graph = graph
        return plan

    @classmethod
    def of_computes(
        cls, graph: Graph, computes: Sequence[int] | IntArray, strategy: str = ""
    ) -> Plan:
        """A plan from implementation numbers in order, with the earliest frees."""
        return cls.from_codes(graph, with_frees(graph, computes), strategy)

    @property
    def statements(self) -> tuple[Statement, ...]:
        """The statements by name."""
        if self._statements is None:
            assert self._codes is not None
            assert self._codes_graph is not None
            self._statements = _decode(self._codes_graph, self._codes)
        return self._statements

    def codes(self, graph: Graph) -> IntArray:
        """One integer per statement, for ``graph``.

        Raises:
            InvalidPlan: a statement names an op, implementation or value that the graph lacks.
        """
        if self._codes is None or self._codes_graph is not graph:
            self._codes = _encode(graph, self.statements)
            self._codes_graph = graph
        return self._codes

    def hash(self, graph: Graph) -> str:
        """Names the statements on a graph: equal where both are.

        Raises:
            InvalidPlan: as :meth:`codes`.
        """
        return sha256(graph.hash.encode() + self.codes(graph).tobytes()).hexdigest()

    def labelled(self, strategy: str, budget_bytes: int | None) -> Plan:
        """The same plan under another strategy name and budget."""
        twin = Plan((), self.graph, strategy, budget_bytes)
        twin._statements, twin._codes = self._statements, self._codes
        twin._codes_graph = self._codes_graph
        return twin

    def __len__(self) -> int:
        if self._statements is not None:
            return len(self._statements)
        assert self._codes is not None
        return len(self._codes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Plan):
            return NotImplemented
        return self.statements == other.statements

    def __hash__(self) -> int:
        return hash(self.statements)

    def __repr__(self) -> str:
        return f"Plan({self.strategy or 'unnamed'} for {self.graph!r}, {len(self)} statements)"


def _decode(graph: Graph, codes: IntArray) -> tuple[Statement, ...]:
    computes: list[Statement] = [
        Compute(op.name, None if i == 0 else implementation.name)
        for op in graph.ops
        for i, implementation in enumerate(op.implementations)
    ]
    moves: list[Statement] = [Free(value.name) for value in graph.values]
    if has_copies(graph, codes):
        moves += [kind(value.name) for kind in MOVES[1:] for value in graph.values]
    return tuple(computes[code] if code >= 0 else moves[~code] for code in codes.tolist())


def _encode(graph: Graph, statements: tuple[Statement, ...]) -> IntArray:
    first = graph.tables.op_first.tolist()
    compute: dict[tuple[str, str | None], int] = {
        (op.name, None): first[n] for n, op in enumerate(graph.ops)
    } | {
        (op.name, implementation.name): first[n] + i
        for n, op in enumerate(graph.ops)
        for i, implementation in enumerate(op.implementations)
    }
    values = graph.value_index
    codes = np.empty(len(statements), dtype=np.int64)
    for position, statement in enumerate(statements):
        try:
            if isinstance(statement, Compute):
                codes[position] = compute[statement.op, statement.implementation]
            else:
                kind = _MOVE[type(statement)]
                codes[position] = ~(values[statement.value] + kind * len(values))
        except KeyError:
            raise InvalidPlan(position, _unknown(graph, statement)) from None
    return codes


def _unknown(graph: Graph, statement: Statement) -> str:
    if not isinstance(statement, Compute):
        word = type(statement).__name__.lower()
        return f"{word} of {statement.value!r}, which graph {graph.name!r} does not have"
    if statement.op not in graph.op_index:
        return f"compute of {statement.op!r}, which graph {graph.name!r} does not have"
    names = [i.name for i in graph.ops[graph.op_index[statement.op]].implementations]
    return f"op {statement.op!r} has no implementation {statement.implementation!r}; it has {names}"


def with_frees(graph: Graph, computes: Sequence[int] | IntArray) -> IntArray:
    """Insert the earliest possible frees into a sequence of computes.

    Each copy of a value is freed right after its last read before it is computed again (or
    right after its compute, when nothing reads it), so that no plan with these computes in this
    order has a lower peak. Outputs of the graph keep their last copy.

    Args:
        graph: the graph.
        computes: implementation numbers in execution order.

    Returns:
        Statement codes: the computes with ``~value`` frees between them.
    """
    sequence = np.ascontiguousarray(computes, dtype=np.int64)
    codes: IntArray = _with_frees(sequence, graph.tables)
    return codes


@kernel
def _with_frees(sequence, tables):
    op_of, reads, writes = tables.op_of, tables.reads, tables.writes
    count = 0
    for i in sequence:
        op = op_of[i]
        count += 1 + reads.start[i + 1] - reads.start[i] + writes.start[op + 1] - writes.start[op]
    codes = np.empty(count, dtype=np.int64)
    needed = tables.is_output.copy()
    end = count
    # Backwards: a value that nobody needs later is freed where it was last touched.
    for position in range(sequence.size - 1, -1, -1):
        i = sequence[position]
        op = op_of[i]
        for k in range(reads.start[i + 1] - 1, reads.start[i] - 1, -1):
            v = reads.items[k]
            if not (needed[v] or tables.resident[v] or _is_replaced(v, i, op, tables)):
                end -= 1
                codes[end] = ~v
        for k in range(writes.start[op + 1] - 1, writes.start[op] - 1, -1):
            v = writes.items[k]
            if not needed[v]:
                end -= 1
                codes[end] = ~v
            needed[v] = False
        end -= 1
        codes[end] = i
        for k in range(reads.start[i], reads.start[i + 1]):
            needed[reads.items[k]] = True
    return codes[end:].copy()


@kernel
def _is_replaced(v, i, op, tables):
    """Is a value overwritten, or written anew and freed as such, by implementation i of an op?"""
    over, writes, found = tables.overwritten_by, tables.writes, False
    for k in range(over.start[i], over.start[i + 1]):
        found = found or over.items[k] == v
    for k in range(writes.start[op], writes.start[op + 1]):
        found = found or writes.items[k] == v
    return found


def program_order(graph: Graph) -> Plan:
    """Checkpoint-all: each needed op once, in program order, values freed after their last read."""
    computes = graph.tables.op_first[:-1][graph.needed_ops()]
    return Plan.of_computes(graph, computes, "checkpoint_all")


def in_program_order(graph: Graph, plan: Plan) -> bool:
    """Do a plan's first computes follow program order?

    >>> from rematbench.graphs.builders.synthetic import unit_chain
    >>> graph = unit_chain(2)
    >>> in_program_order(graph, program_order(graph))
    True
    """
    codes = plan.codes(graph)
    _, first = np.unique(graph.tables.op_of[codes[codes >= 0]], return_index=True)
    return bool((np.diff(first) > 0).all())
