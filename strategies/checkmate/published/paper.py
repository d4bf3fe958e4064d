"""Checkmate's problem (9), equation by equation (Jain et al., MLSys 2020, section 4).

The reference for small graphs: it does not scale on an open solver. A node is a needed op of the
graph, a node's memory the bytes of all the outputs that it writes; nodes and stages count from 1,
as in the paper. Where the graph knows more than the paper's, the model is on the safe side: a
plan within the budget in the model is within the budget in the simulator, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyomo.environ as pyo

from rematbench.base.errors import NotApplicable
from rematbench.engines.plans.nodes import node_bytes
from rematbench.engines.plans.stages import dependencies, needed
from rematbench.graphs.ir import Graph

MOST_OPS = 100
SCALE = 100.0
"""What the budget, and the cost without recomputation, are scaled to."""


@dataclass(frozen=True)
class Nodes:
    """A graph as problem (9) sees it; sequences are per node, the first entry is node 1.

    Attributes:
        memory: M, bytes that are kept or freed together.
        transient: bytes needed only while the node runs: its workspace, what it writes and
            nobody reads, and the second copy of ``pinned``.
        pinned: bytes of outputs of the graph that the node writes besides other values; they
            stay from the stage of the node on.
        cost: C.
        fixed: bytes that are always there.
        edges: (i, j): node j reads node i.
        outputs: nodes that must be in memory at the end.
        exact: does every plan in the space of (9) have its simulated peak in the model?
    """

    memory: tuple[int, ...]
    transient: tuple[int, ...]
    pinned: tuple[int, ...]
    cost: tuple[float, ...]
    fixed: int
    edges: tuple[tuple[int, int], ...]
    outputs: frozenset[int]
    exact: bool

    @classmethod
    def of(cls, graph: Graph, most: int = MOST_OPS) -> Nodes:
        """The needed ops of ``graph``.

        Raises:
            NotApplicable: more than ``most`` ops.
        """
        ops, tables = needed(graph), graph.tables
        if len(ops) > most:
            raise NotApplicable(
                f"problem (9) of {len(ops)} ops is too large for an open solver (at most {most}); "
                "use anytime"
            )
        first = tables.op_first[ops]
        split = node_bytes(graph)
        memory, pinned, unread, output = zip(*split, strict=True) if split else ((),) * 4
        workspace = tables.workspace[first].tolist()
        return cls(
            memory,
            tuple(w + u + p for w, u, p in zip(workspace, unread, pinned, strict=True)),
            pinned,
            tuple(tables.cost[first].tolist()),
            graph.resident_bytes,
            tuple((int(i) + 1, int(j) + 1) for i, j in np.argwhere(dependencies(graph))),
            frozenset(i for i, is_one in enumerate(output, 1) if is_one),
            all(np.count_nonzero(tables.value_bytes[tables.writes[op]]) <= 1 for op in ops),
        )

    def __len__(self) -> int:
        return len(self.memory)


def problem_9(nodes: Nodes, budget: int, partitioned: bool = True) -> pyo.ConcreteModel:
    """Problem (9) as a Pyomo model, with the budget and the cost of all nodes scaled to 100.

    Args:
        nodes: the graph.
        budget: in bytes, above 0.
        partitioned: frontier-advancing stages (8a-8c); otherwise (1d, 1e), where every stage
            may compute every node.

    Returns:
        A model with binaries R[t, i], S[t, i], FREE[t, i, k] and memory U[t, k].
    """
    builder = _PaperProgram(nodes, partitioned)
    builder.schedule()
    builder.memory(SCALE / budget)
    return builder.model


class _PaperProgram:
    """Variables and constraints of (9), in the order of the paper."""

    def __init__(self, nodes: Nodes, partitioned: bool) -> None:
        self.model = pyo.ConcreteModel()
        self.nodes, self.partitioned = nodes, partitioned
        self.n = len(nodes)
        self.stages = range(1, self.n + 1)
        self.deps: dict[int, list[int]] = {k: [] for k in self.stages}
        self.users: dict[int, list[int]] = {i: [] for i in self.stages}
        for i, k in nodes.edges:
            self.deps[k].append(i)
            self.users[i].append(k)
        # What (1c) must find in memory after the last stage. Where the only output is the last
        # node, as in the paper, (1e) does without.
        ends = not partitioned and nodes.outputs == {self.n}
        self.final = frozenset() if ends else nodes.outputs

    def last(self, t: int) -> int:
        """The last node that stage t may compute."""
        return t if self.partitioned else self.n

    def kept(self, t: int, i: int) -> Any:
        """S[t, i], also after the last stage."""
        if t > self.n:
            return int(i in self.final)
        return self.model.S[t, i] if i < t or not self.partitioned else 0

    def schedule(self) -> None:
        """Problem (1), and what makes the stages advance the frontier."""
        m, stages, last, kept = self.model, self.stages, self.last, self.kept
        # (1f); in the partitioned form R and S are lower triangular, (8b) and (8c).
        computes = [(t, i) for t in stages for i in range(1, last(t) + 1)]
        keeps = [(t, i) for t, i in computes if i < t or not self.partitioned]
        m.R = pyo.Var(computes, domain=pyo.Binary)
        m.S = pyo.Var(keeps, domain=pyo.Binary)

        unit = SCALE / (sum(self.nodes.cost) or 1.0)
        costs = (unit * self.nodes.cost[i - 1] * m.R[t, i] for t, i in computes)
        m.cost = pyo.Objective(expr=pyo.quicksum(costs))  # (1a)
        m.inputs_there = pyo.Constraint(  # (1b)
            [(t, i, j) for t in stages for i, j in self.nodes.edges if j <= last(t)],
            rule=lambda m, t, i, j: m.R[t, j] <= m.R[t, i] + kept(t, i),
        )
        m.kept_was_there = pyo.Constraint(  # (1c)
            [(t, i) for t, i in keeps if t >= 2] + [(self.n + 1, i) for i in sorted(self.final)],
            rule=lambda m, t, i: kept(t, i) <= m.R[t - 1, i] + kept(t - 1, i),
        )
        for t in stages:
            if self.partitioned:
                m.R[t, t].fix(1)  # (8a)
            else:
                m.S[1, t].fix(0)  # (1d)
        if not self.partitioned:
            m.end_reached = pyo.Constraint(  # (1e)
                expr=pyo.quicksum(m.R[t, self.n] for t in stages) >= 1
            )

    def memory(self, unit: float) -> None:
        """Memory accounting, with ``unit`` for a byte."""
        m, stages, last, kept = self.model, self.stages, self.last, self.kept
        size = {i: unit * bytes_ for i, bytes_ in zip(stages, self.nodes.memory, strict=True)}
        frees = [(t, i, k) for t in stages for i, k in self.nodes.edges if k <= last(t)]
        accounts = [(t, k) for t in stages for k in range(last(t) + 1)]
        m.FREE = pyo.Var(frees, domain=pyo.Binary)  # (7a)
        m.U = pyo.Var(accounts, bounds=(0, SCALE))  # (9): U <= M_budget

        def memory_used(m: Any, t: int, k: int) -> Any:
            if k == 0:  # (2)
                checkpoints = (size[i] * kept(t, i) for i in range(1, last(t) + 1))
                return m.U[t, 0] == unit * self.constant(t) + pyo.quicksum(checkpoints)
            freed = (size[i] * m.FREE[t, i, k - 1] for i in self.deps.get(k - 1, ()))  # (4), 4.8
            return m.U[t, k] == m.U[t, k - 1] - pyo.quicksum(freed) + size[k] * m.R[t, k]  # (3)

        m.memory_used = pyo.Constraint(accounts, rule=memory_used)
        transient = dict(zip(stages, (unit * b for b in self.nodes.transient), strict=True))
        m.workspace = pyo.Constraint(  # not in the paper: what a node needs while it runs
            [(t, k) for t, k in accounts if k and transient[k]],
            rule=lambda m, t, k: m.U[t, k] + transient[k] * m.R[t, k] <= SCALE,
        )
        m.free_without_hazard = pyo.Constraint(  # (7b)
            frees, rule=lambda m, t, i, k: 1 - m.FREE[t, i, k] <= self.hazards(t, i, k)
        )
        m.keep_at_hazard = pyo.Constraint(  # (7c)
            frees,
            rule=lambda m, t, i, k: (
                self.most_hazards(t, i, k) * (1 - m.FREE[t, i, k]) >= self.hazards(t, i, k)
            ),
        )

    def constant(self, t: int) -> int:
        """The constant overhead of (2), in bytes."""
        pinned = self.nodes.pinned[: t - 1] if self.partitioned else self.nodes.pinned
        return self.nodes.fixed + sum(pinned)

    def later_users(self, t: int, i: int, k: int) -> list[int]:
        return [j for j in self.users[i] if k < j <= self.last(t)]

    def hazards(self, t: int, i: int, k: int) -> Any:
        """num_hazards(t, i, k), the number of zero factors in (5)."""
        m = self.model
        later = pyo.quicksum(m.R[t, j] for j in self.later_users(t, i, k))
        return (1 - m.R[t, k]) + self.kept(t + 1, i) + later

    def most_hazards(self, t: int, i: int, k: int) -> int:
        """Kappa, the largest value of num_hazards(t, i, k)."""
        return 2 + len(self.later_users(t, i, k))
