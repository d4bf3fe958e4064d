"""POET's program, as it is printed: Checkmate's (9) with copies to a second memory.

Stage t ends with the first compute of op t. Per stage and op: R, is it computed; SRAM and SSD, is
its value near or far when the stage begins; IN and OUT, is it copied in or out meanwhile. Memory is
Checkmate's: U after each compute, FREE where a value is given up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from math import inf

import numpy as np

from rematbench.engines.lp.program import Column, LinearProgram
from rematbench.engines.plans.nodes import NodeBytes, node_bytes
from rematbench.engines.plans.stages import BoolArray, FloatArray, dependencies, needed
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.link import Link

R, SRAM, SSD, IN, OUT = range(5)
KINDS = ("R", "SRAM", "SSD", "IN", "OUT")
SCALE = 100.0
"""What the budget is scaled to."""


def most_columns(graph: Graph) -> int:
    """Of the program of a graph, about."""
    count, edges = len(needed(graph)), int(dependencies(graph).sum())
    return count * (len(KINDS) * (count - 1) // 2 + (count + edges) // 2)


@dataclass
class PagingProgram:
    """The program of one graph.

    Args:
        graph: no default implementation overwrites what it reads.
        budget: bytes.
        link: a copy costs what it takes on it, times ``power``.
        power: of copying, over that of computing.
        deadline: most cost of all computes, or None.

    Attributes:
        linear: the program; its objective is in the graph's cost unit, at the power of computing.
        columns: number of each kind, stage and op; -1 where there is none. Shape (5, n, n).
    """

    graph: Graph
    budget: int
    link: Link
    power: float
    deadline: float | None
    linear: LinearProgram = field(init=False)
    columns: IntArray = field(init=False)
    _nodes: list[NodeBytes] = field(init=False)
    _reads: BoolArray = field(init=False)

    def __post_init__(self) -> None:
        self._nodes, self._reads = node_bytes(self.graph), dependencies(self.graph)
        tables, ops = self.graph.tables, needed(self.graph)
        self._cost: list[float] = tables.cost[tables.op_first[ops]].tolist()
        self._workspace: list[int] = tables.workspace[tables.op_first[ops]].tolist()
        self.linear = LinearProgram(offset=sum(self._cost))
        self.columns = np.full((len(KINDS), len(ops), len(ops)), -1, dtype=np.int64)
        for t in range(len(ops)):
            for i in range(t):
                self._add(t, i)
        for t in range(len(ops)):
            self._reads_are_there(t)
            self._what_is_where(t)
            self._memory(t)
        if self.deadline is not None:
            again = [(c, self._cost[i]) for t in range(len(ops))
                     for i, c in enumerate(self.columns[R, t, :t])]  # fmt: skip
            self.linear.row(again, self.deadline - sum(self._cost))

    def __len__(self) -> int:
        return len(self._nodes)

    def _add(self, t: int, i: int) -> None:
        """The columns of stage t and an earlier op. Outputs of the graph are not copied."""
        add, node = self.linear.column, self._nodes[i]
        self.columns[R, t, i] = add(self._cost[i], True)
        self.columns[SRAM, t, i] = add(0.0, True)
        if not node.is_output and node.memory:
            self.columns[OUT, t, i] = add(self.power * self.link.copy_out(node.memory), True)
            if t > i + 1:
                self.columns[SSD, t, i] = add(0.0, True)
                self.columns[IN, t, i] = add(self.power * self.link.copy_in(node.memory), True)

    def _reads_are_there(self, t: int) -> None:
        """R[t, v] <= R[t, u] + SRAM[t, u] for each read u of v; R[t, t] is 1."""
        for u, v in np.argwhere(self._reads[:, : t + 1]).tolist():
            there = self.columns[[R, SRAM], t, u]
            if v == t:
                self.linear.row([(column, -1.0) for column in there], -1.0)
            else:
                self.linear.at_most([self.columns[R, t, v]], there)

    def _what_is_where(self, t: int) -> None:
        """What is near or far when stage t + 1 begins was so before, or came there in stage t."""
        at, rows = self.columns[:, t, :t], partial(self.linear.rows, -inf)
        rows(0.0, [at[IN], at[SSD]], [1, -1])
        rows(0.0, [at[OUT], at[SRAM]], [1, -1])
        if t + 1 < len(self):
            after = self.columns[:, t + 1, :t]
            rows(0.0, [after[SRAM], at[SRAM], at[R], at[IN]], [1, -1, -1, -1])
            rows(0.0, [after[SSD], at[SSD], at[OUT]], [1, -1, -1])
        else:  # the graph's outputs are there at the end
            ends = at[:, [node.is_output for node in self._nodes[:t]]]
            rows(-1.0, [ends[SRAM], ends[R]], [-1, -1])

    def _near_after(self, t: int, i: int) -> int:
        """SRAM[t + 1, i]; -1 after the last stage."""
        return int(self.columns[SRAM, t + 1, i]) if t + 1 < len(self) else -1

    def _memory(self, t: int) -> None:
        """U after each compute of stage t, as Checkmate has it (equations 2 to 7)."""
        unit = SCALE / self.budget
        fixed = self.graph.resident_bytes + sum(node.pinned for node in self._nodes[:t])
        before = [(self.columns[SRAM, t, i], unit * self._nodes[i].memory) for i in range(t)]
        room = SCALE - unit * fixed
        for k in range(t + 1):
            used = self.linear.column(0.0, lower=0.0, upper=max(0.0, room))
            node, computed = self._nodes[k], int(self.columns[R, t, k])
            own, more = unit * node.memory, unit * (node.unread + node.pinned + self._workspace[k])
            if k < t:
                self.linear.row([*before, (computed, own), (used, -1.0)], 0.0)
                self.linear.row([(used, 1.0), (computed, more)], room)
            else:
                self.linear.row([*before, (used, -1.0)], -own)
                self.linear.row([(used, 1.0)], room - more)
            before = [(used, 1.0)]
            for i in np.flatnonzero(self._reads[:, k]).tolist():
                before.append((self._free(t, i, k), -unit * self._nodes[i].memory))

    def _free(self, t: int, i: int, k: int) -> int:
        """FREE[t, i, k]: value i is given up after the compute of its last reader k in stage t."""
        column = self.linear.column(0.0, True)
        later = [j for j in np.flatnonzero(self._reads[i]).tolist() if k < j <= t]
        hazards: list[Column] = [self.columns[R, t, j] for j in later if j < t]
        hazards.append(self._near_after(t, i))
        sure = int(t in later) + int(t + 1 == len(self) and self._nodes[i].is_output)
        most = float(len(hazards) + sure + 1)
        terms: list[tuple[Column, float]] = [(column, most), *((h, 1.0) for h in hazards)]
        if k < t:  # a hazard, too: k is not computed
            self.linear.row([*terms, (self.columns[R, t, k], -1.0)], most - sure - 1.0)
        else:
            self.linear.row(terms, most - sure)
        return column

    def decode(self, x: FloatArray) -> tuple[IntArray, IntArray, BoolArray]:
        """A solution: the stage and the op of each compute, in order; what is near, per both."""
        padded = np.append(x, 0.0)
        near = padded[self.columns[SRAM]] > 0.5
        computed = padded[self.columns[R]] > 0.5
        np.fill_diagonal(computed, True)
        stages, ops = np.nonzero(computed)
        return stages, ops, near


def pages(near: BoolArray, op: int, stages: Iterable[int]) -> bool:
    """Is an op's value away from the near memory when any of these stages begins?"""
    return not all(near[t, op] for t in stages)
