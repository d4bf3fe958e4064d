"""The integer program as MONeT's authors published it (appendices B, C and H).

Every forward op has variables at every backward op, locals are bounded as if all later ops were
recomputed (appendix B), and products become variables (appendix C.4). The rows are eqs. 7, 8 and
12 to 16, with the shifted indices of eqs. 7, 8 and 15 corrected as Algorithm 2 reads.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import inf
from typing import Literal

import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.engines.lp.program import LinearProgram, Term, Triples
from rematbench.engines.lp.solver import presolved
from rematbench.engines.plans.stages import BoolArray, FloatArray, missing
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.kinds import Kind, kinds_of

Locals = Literal["loose", "tight"]
"""Appendix B's bounds of what a recomputation holds: all later ops run, or those up to k."""
SCALAR_BYTES = 8
PRODUCTS = ("convolution", "addmm")
"""What is differentiated without its own result."""
_MAX_POOL = "max_pool2d_with_indices"
_CLAMPS = ("relu", "hardtanh")
_LINEAR = ("cat", "add", "mean")
_IN_PLACE = (*_CLAMPS, "native_dropout", "native_layer_norm", "native_group_norm")


def forward_ops(graph: Graph) -> list[int]:
    """The forward ops that the paper counts.

    These are the ops that the loss needs, without those that make a scalar, and without what is
    computed from constants alone (the index of an upsampling). A classifier's ``flatten`` is a
    view here and no op: its log-softmax stands for it; that of a dense head (U-Net) is the loss's.

    Raises:
        NotApplicable: the graph has no loss.
    """
    tables, loss = graph.tables, graph.loss_index
    if loss is None:
        raise NotApplicable("the published form needs a loss")
    needed = missing(graph, loss, tables.resident)
    varies = tables.resident.copy()
    for op in needed:
        varies[tables.writes[op]] = varies[tables.inputs[op]].any()

    def counts(op: int) -> bool:
        if not varies[tables.writes[op]].any():
            return False
        if int(tables.value_bytes[tables.writes[op]].max()) <= SCALAR_BYTES:
            return False
        if "log_softmax" not in graph.ops[op].operator:
            return True
        writers = tables.writer[tables.inputs[op]]
        return any(graph.ops[w].operator == "addmm" for w in writers.tolist() if w >= 0)

    return [op for op in needed if counts(op)]


def _alike(rows: IntArray, term: Term) -> Triples:
    """The same term in several rows."""
    column, value = term
    return rows, np.full(len(rows), column), np.full(len(rows), value)


@dataclass(frozen=True)
class _Backward:
    """One backward op: for each implementation, the forward nodes that it reads."""

    node: int
    implementations: tuple[frozenset[int], ...]


class Published:
    """The published program of a captured graph.

    Args:
        graph: with implementations for the form with operators, see
            :mod:`rematbench.tracing.alternatives`.
        budget: in bytes.
        operators: MONeT; False: MONeT-NoOp.
        bound: of locals.

    Attributes:
        program: for HiGHS; it counts what forward ops cost, as shares of the graph's, in percent.
            Implementations of a backward op cost the same.
        backward: the backward ops, in order: the program's stages.
        r, s: columns by stage and node: computed again there; stored before it. The last row of
            r has none.
        d: columns of each stage's implementations, where there are several.
        of_op: the node of a forward op.
        side: the node of a node's mask, or indices.
    """

    def __init__(self, graph: Graph, budget: int, operators: bool, bound: Locals) -> None:
        self.graph, self.tables = graph, graph.tables
        self.operators, self.bound = operators, bound
        self.free_bytes = float(budget)
        costs = self.tables.cost[self.tables.op_first[:-1]]
        self._unit = float(costs[graph.needed_ops()].sum() or 1.0) / 100.0
        self.ops = forward_ops(graph)
        self.program = LinearProgram()
        self._nodes()
        self._columns()
        choosing = (op for op, node in self.of_op.items() if self._chooses(node))
        self.program.offset = 100.0 - sum(map(self._cost, choosing))
        for k in range(len(self.backward)):
            self._links(k)
            self._in_place(k)
            self._memory(k)
        self._forward_memory()

    @property
    def facts(self) -> dict[str, int]:
        """Forward ops, rows and columns, for a row's ``extra``."""
        size = self.program.size
        return {
            "forward_ops": len(self.ops),
            "published_rows": size["rows"],
            "published_columns": size["columns"],
        }

    def presolved(self, seconds: float) -> dict[str, int]:
        """Rows and columns that HiGHS's presolve leaves.

        These are missing where it did not end in time, or proved that the program has no solution.
        """
        status, left = presolved(self.program, seconds)
        if status == "infeasible":
            return {"published_infeasible": 1}
        if status == "optimal":
            return {"presolved_rows": left["rows"], "presolved_columns": left["columns"]}
        return {}

    def cost_of(self, objective: float) -> float:
        """The cost of a whole step in the graph's unit, from the program's objective."""
        return objective * self._unit

    # Nodes: the forward ops, and after each ReLU or max-pool its mask or index.

    def _nodes(self) -> None:
        size: list[float] = []
        self.parents: list[list[int]] = []
        self.of_op: dict[int, int] = {}
        self.side: dict[int, int] = {}
        self.operator: list[str] = []
        for op in self.ops:
            operator = self.graph.ops[op].operator
            writes = self.tables.value_bytes[self.tables.writes[op]]
            self.of_op[op] = len(size)
            size.append(float(writes[0]))
            self.parents.append(self._reads(op))
            self.operator.append(operator)
            if operator == _MAX_POOL or (operator == "relu" and self.operators):
                self.side[len(size) - 1] = len(size)
                # Bits of a ReLU; bytes of windows' offsets.
                size.append(float(writes[0]) / (32 if operator == "relu" else 4))
                self.parents.append([len(size) - 2])
                self.operator.append("")
        self.size: FloatArray = np.array(size)
        self.backward = [
            each for node in reversed(range(len(size))) for each in self._backward_of(node)
        ]

    def _reads(self, op: int) -> list[int]:
        writers = self.tables.writer[self.tables.inputs[op]].tolist()
        return sorted({self.of_op[w] for w in writers if w in self.of_op})

    def _backward_of(self, node: int) -> Iterator[_Backward]:
        operator, inputs = self.operator[node], frozenset(self.parents[node])
        if node in self.side.values():
            return
        if operator in PRODUCTS:
            yield _Backward(node, (inputs,))
            if inputs:
                yield _Backward(node, (frozenset(),))
        elif operator == _MAX_POOL:
            yield _Backward(node, (frozenset({self.side[node]}),))
        elif operator in _CLAMPS or "batch_norm" in operator:
            implementations = [inputs]
            if self.operators:
                implementations.append(frozenset({node}))
                implementations += [frozenset({self.side[node]})] if node in self.side else []
            yield _Backward(node, tuple(implementations))
        elif operator in _LINEAR or "avg_pool" in operator or "upsample" in operator:
            yield _Backward(node, (frozenset(),))
        else:
            yield _Backward(node, (frozenset({node}),))

    # Columns: run r, stored s (after the forward pass, then after each backward op), in place q,
    # not overwritten p, algorithms of a convolution, implementations of a backward op.

    def _columns(self) -> None:
        nodes, stages, column = len(self.size), len(self.backward), self.program.column
        self.algorithms = {
            self.of_op[op]: self._implementations(op)
            for op in self.ops
            if self.graph.ops[op].operator == "convolution"
        }
        self.inplace = {
            node: self.parents[node][0]
            for node, operator in enumerate(self.operator)
            if operator in _IN_PLACE
        }
        self._node_columns(nodes, stages)
        self.q = [{node: column(integral=True) for node in self.inplace} for _ in range(stages)]
        self.p = [{node: column(integral=True) for node in self.inplace} for _ in range(stages)]
        self.a: list[dict[int, list[int]]] = [{} for _ in range(stages + 1)]
        chosen = {
            node: implementations
            for node, implementations in self.algorithms.items()
            if self._chooses(node)
        }
        for k, (node, implementations) in product(range(stages + 1), chosen.items()):
            costs = (self.tables.cost[implementations] / self._unit).tolist()
            self.a[k][node] = [column(cost, integral=True) for cost in costs]
        self.d = [
            [column(integral=True) for _ in each.implementations]
            if len(each.implementations) > 1
            else []
            for each in self.backward
        ]

    def _node_columns(self, nodes: int, stages: int) -> None:
        column = self.program.column
        self.r, self.s = (np.full((stages + 1, nodes), -1, dtype=np.int64) for _ in range(2))
        again = np.zeros(nodes)  # what computing a node again costs, if it has no algorithms
        for op, node in self.of_op.items():
            again[node] = 0.0 if self._chooses(node) else self._cost(op)
        for k, node in np.ndindex(stages, nodes):
            self.r[k, node] = column(float(again[node]), integral=True)
        for place in np.ndindex(stages, nodes):  # s[k]: stored before backward op k
            self.s[place] = column(integral=True)

    def _cost(self, op: int) -> float:
        return float(self.tables.cost[int(self.tables.op_first[op])]) / self._unit

    def _chooses(self, node: int) -> bool:
        return self.operators and len(self.algorithms.get(node, ())) > 1

    def _implementations(self, op: int) -> list[int]:
        """Implementations that are algorithms of a convolution."""
        first = int(self.tables.op_first[op])
        names = enumerate(
            (implementation.name for implementation in self.graph.ops[op].implementations), first
        )
        implementations = [
            n for n, name in names if kinds_of(name) <= {Kind.DEFAULT, Kind.CONVOLUTION}
        ]
        return implementations if self.operators else implementations[:1]

    def _workspace(self, k: int, node: int) -> list[Term]:
        columns, implementations = self.a[k].get(node, ()), self.algorithms.get(node, ())
        sizes = self.tables.workspace[list(implementations)].astype(float).tolist()
        return list(zip(columns, sizes, strict=True)) if columns else []

    def _equal(self, left: list[int], right: list[int], constant: float = 0.0) -> None:
        self.program.at_most(left, right, constant)
        self.program.at_most(right, left, -constant)

    def _links(self, k: int) -> None:
        """Eqs. 7 and 8, and one algorithm or implementation for each that runs."""
        at_most, r, s = self.program.at_most, self.r[k], self.s[k]
        for node, parents in enumerate(self.parents):
            for parent in parents:
                at_most([r[node]], [s[parent], r[parent]])
            if k + 1 < len(self.backward):
                at_most([self.s[k + 1, node]], [s[node], r[node]])
        for node, columns in self.a[k].items():
            self._equal(columns, [r[node]])
        if self.d[k]:
            self._equal(self.d[k], [], 1.0)
        for implementation, needs in enumerate(self.backward[k].implementations):
            chosen = [self.d[k][implementation]] if self.d[k] else []
            for node in needs:
                at_most(chosen, [s[node], r[node]], 0.0 if chosen else -1.0)

    def _in_place(self, k: int) -> None:
        """Eqs. 15 and 16."""
        at_most = self.program.at_most
        for node, parent in self.inplace.items():
            q, p = self.q[k][node], self.p[k][node]
            run, own = self.r[k, parent], self.r[k, node]
            at_most([run], [q, q, p])
            at_most([p, q, q], [], 2.0)
            if k + 1 < len(self.backward):
                at_most([self.s[k + 1, parent], q, q], [], 2.0)
            at_most([p], [run])
            at_most([q], [own])

    # Memory

    @cached_property
    def _last_reader(self) -> IntArray:
        found = np.arange(len(self.size))
        for node, parents in enumerate(self.parents):
            found[parents] = np.maximum(found[parents], node)
        return found

    @cached_property
    def _gradients(self) -> FloatArray:
        """Bytes of live gradients, per backward op."""
        now = np.array([each.node for each in self.backward])[:, None]
        live = (np.arange(len(self.size)) <= now) & (self._last_reader >= now)
        found: FloatArray = np.where(live, self.size, 0.0).sum(axis=1)
        return found

    @cached_property
    def _next_reader(self) -> IntArray:
        """By node and value: the first node from there on that reads it, or their number."""
        count = len(self.size)
        found = np.full((count + 1, count), count, dtype=np.int64)
        for node in reversed(range(count)):
            found[node] = found[node + 1]
            found[node, self.parents[node]] = node
        return found[:-1]

    def _locals(self, k: int) -> BoolArray:
        """By node: earlier nodes that an op from it on reads; up to the stage's, if tight."""
        until = len(self.size) - 1 if self.bound == "loose" else self.backward[k].node
        return (self._next_reader <= until) & self._before

    @cached_property
    def _before(self) -> BoolArray:
        """By node: which come before it."""
        return np.tri(len(self.size), k=-1, dtype=bool)

    def _needs(self, k: int) -> tuple[BoolArray, list[Term]]:
        """What backward op k certainly reads; terms for what only some implementations read."""
        implementations = self.backward[k].implementations
        known = np.zeros(len(self.size), dtype=bool)
        known[list(frozenset.intersection(*implementations))] = True
        terms: list[Term] = [
            (self._unless_stored(self.d[k][implementation], k, node), float(self.size[node]))
            for implementation, needs in enumerate(implementations)
            for node in needs
            if not known[node]
        ]
        return known, terms

    def _unless_stored(self, chosen: int, k: int, node: int) -> int:
        """Appendix C.4: a column for chosen and not stored for later."""
        column, at_most = self.program.column(integral=True), self.program.at_most
        at_most([column], [chosen])
        if k + 1 < len(self.backward):
            after = self.s[k + 1, node]
            at_most([column, after], [], 1.0)
            at_most([chosen], [after, column])
        return column

    def _memory(self, k: int) -> None:
        """Eqs. 5, 12 and 13: two rows for each node, while it runs and when it has run."""
        known, chosen = self._needs(k)
        size, before, local = self.size, self._before, self._locals(k)
        ready = before | np.eye(len(size), dtype=bool)
        free_bytes = self.free_bytes - self._gradients[k] - self.graph.resident_bytes
        self.program.row([*self._stored(k + 1, ~known), *chosen], free_bytes - size[known].sum())
        runs = 2 * np.arange(len(size))
        own = size + np.where(local & ~known, size, 0.0).sum(axis=1)
        row, *waiting = self._stored_by_node(k, ~ready)
        parts = [
            (runs, self.r[k], own),
            self._stored_by_node(k + 1, ready & ~known, 1),
            (row, *waiting),
            (row + 1, *waiting),
            *(_alike(np.append(runs, runs + 1), term) for term in chosen),
            *(
                _alike(runs[[node]], term)
                for node in self.a[k]
                for term in self._workspace(k, node)
            ),
            self._stored_by_node(k + 1, before & ~local & ~known),
        ]
        row, column, value = map(np.concatenate, zip(*parts, strict=True))
        there = column >= 0
        upper = free_bytes - np.where([before & known, ready & known], size, 0.0).sum(axis=2)
        none = np.full(upper.size, -inf)
        self.program.triples(none, upper.T.ravel(), row[there], column[there], value[there])

    def _stored_by_node(self, k: int, which: BoolArray, shift: int = 0) -> Triples:
        """Bytes of what is stored before backward op k, in every second row from ``shift`` on.

        Args:
            which: by node and what is stored.
        """
        node, stored = np.nonzero(which)
        return 2 * node + shift, self.s[k, stored], self.size[stored]

    def _stored(self, k: int, which: BoolArray) -> list[Term]:
        """Bytes of what is stored before backward op k, or after the last, where it is nothing."""
        return list(zip(self.s[k, which].tolist(), self.size[which].tolist(), strict=True))

    def _forward_memory(self) -> None:
        """Eq. 1."""
        last, nodes = self._last_reader, np.arange(len(self.size))
        for node in nodes.tolist():
            local = (nodes < node) & (last >= node)
            terms = self._stored(0, (nodes < node) & ~local)
            columns = self.a[-1].get(node, [])
            if columns:
                self._equal(columns, [], 1.0)
            terms += self._workspace(-1, node)
            used = float(self.size[node] + self.size[local].sum()) + self.graph.resident_bytes
            self.program.row(terms, self.free_bytes - used)
