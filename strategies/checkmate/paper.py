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

from graphs.errors import NotApplicable
from graphs.ir import Graph
from strategies.stages import dependencies, needed

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
            NotApplicable: more than ``most`` ops, or ops that overwrite what they read.
        """
        ops, tables = needed(graph), graph.tables
        _check(graph, len(ops), most)
        first = tables.op_first[ops]
        read = np.zeros(len(graph.values), dtype=bool)
        read[[v for i in first for v in tables.reads[int(i)]]] = True
        is_output = np.zeros(len(graph.values), dtype=bool)
        is_output[tables.outputs] = True
        split = [_split(tables.writes[op], tables.value_bytes, read, is_output) for op in ops]
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


def _check(graph: Graph, count: int, most: int) -> None:
    if count > most:
        raise NotApplicable(
            f"problem (9) of {count} ops is too large for an open solver (at most {most}); "
            "use checkmate_ilp"
        )
    overwriting = (op.name for op in graph.ops if op.implementations[0].overwrites)
    name = next(overwriting, None)
    if name is not None:
        raise NotApplicable(f"op {name!r} overwrites what it reads, which (9) does not model")


def _split(written: Any, size: Any, read: Any, is_output: Any) -> tuple[int, int, int, bool]:
    """(memory, pinned, unread bytes, is the node an output?)."""
    outputs = written[is_output[written]]
    kept = written[read[written] & ~is_output[written]]
    unread = written[~read[written] & ~is_output[written]]
    if len(outputs) and not size[kept].any():
        return int(size[outputs].sum()), 0, int(size[unread].sum()), True
    return int(size[kept].sum()), int(size[outputs].sum()), int(size[unread].sum()), False


def problem_9(nodes: Nodes, budget: int, partitioned: bool = True) -> pyo.ConcreteModel:
    """Problem (9) as a Pyomo model, with the budget and the cost of all nodes scaled to 100.

    Args:
        nodes: the graph.
        budget: in bytes.
        partitioned: frontier-advancing stages (8a-8c); otherwise (1d, 1e), where every stage
            may compute every node.

    Returns:
        A model with binaries R[t, i], S[t, i], FREE[t, i, k] and memory U[t, k].
    """
    model = pyo.ConcreteModel()
    model.nodes, model.partitioned = nodes, partitioned
    model.stages = range(1, len(nodes) + 1)
    _schedule(model)
    _memory(model, SCALE / max(budget, 1), SCALE * (budget > 0))
    return model


def _last(model: pyo.ConcreteModel, t: int) -> int:
    """The last node that stage t may compute."""
    return t if model.partitioned else len(model.nodes)


def _kept(model: pyo.ConcreteModel, t: int, i: int) -> Any:
    """S[t, i], and 1 for outputs after the last stage."""
    if t > len(model.nodes):
        return int(i in _final(model))
    return model.S[t, i] if (t, i) in model.S else 0


def _final(model: pyo.ConcreteModel) -> frozenset[int]:
    """Nodes that must stay to the end; a last node that is the only output is computed by (1e)."""
    outputs, n = model.nodes.outputs, len(model.nodes)
    return frozenset() if not model.partitioned and outputs == {n} else outputs


def _schedule(model: pyo.ConcreteModel) -> None:
    nodes, stages, n = model.nodes, model.stages, len(model.nodes)
    # (1f); (8b), (8c): the partitioned form has lower triangular matrices.
    computes = [(t, i) for t in stages for i in range(1, _last(model, t) + 1)]
    model.R = pyo.Var(computes, domain=pyo.Binary)
    keeps = [(t, i) for t, i in computes if i < t or not model.partitioned]
    model.S = pyo.Var(keeps, domain=pyo.Binary)

    unit = SCALE / (sum(nodes.cost) or 1.0)
    model.cost = pyo.Objective(  # (1a)
        expr=pyo.quicksum(unit * nodes.cost[i - 1] * model.R[t, i] for t, i in computes)
    )
    model.inputs_there = pyo.Constraint(  # (1b)
        [(t, i, j) for t in stages for i, j in nodes.edges if j <= _last(model, t)],
        rule=lambda m, t, i, j: m.R[t, j] <= m.R[t, i] + _kept(m, t, i),
    )
    later = [(t, i) for t, i in keeps if t >= 2]
    model.kept_was_there = pyo.Constraint(  # (1c); after the last stage, the graph's outputs
        later + [(n + 1, i) for i in sorted(_final(model))],
        rule=lambda m, t, i: _there(_kept(m, t, i) <= m.R[t - 1, i] + _kept(m, t - 1, i)),
    )
    if model.partitioned:
        for t in stages:
            model.R[t, t].fix(1)  # (8a)
    else:
        for i in stages:
            model.S[1, i].fix(0)  # (1d)
        if n in nodes.outputs:
            model.end_reached = pyo.Constraint(  # (1e)
                expr=pyo.quicksum(model.R[t, n] for t in stages) >= 1
            )


def _there(relation: Any) -> Any:
    """Pyomo wants to be told about relations between constants."""
    return pyo.Constraint.Feasible if relation is True else relation


def _memory(model: pyo.ConcreteModel, unit: float, budget: float) -> None:
    nodes, stages = model.nodes, model.stages
    parents = _parents(nodes)
    size = [unit * m for m in nodes.memory]
    accounts = [(t, k) for t in stages for k in range(_last(model, t) + 1)]
    frees = [(t, i, k) for t in stages for i, k in nodes.edges if k <= _last(model, t)]
    model.U = pyo.Var(accounts, bounds=(0, budget))  # (9): U <= M_budget
    model.FREE = pyo.Var(frees, domain=pyo.Binary)  # (7a)

    def memory_used(m: Any, t: int, k: int) -> Any:
        if k == 0:  # (2)
            kept = (size[i - 1] * _kept(m, t, i) for i in stages if (t, i) in m.S)
            return m.U[t, 0] == unit * _constant(m, t) + pyo.quicksum(kept)
        freed = (size[i - 1] * m.FREE[t, i, k - 1] for i in parents[k - 1])  # (4), as in 4.8
        return m.U[t, k] == m.U[t, k - 1] - pyo.quicksum(freed) + size[k - 1] * m.R[t, k]  # (3)

    model.memory_used = pyo.Constraint(accounts, rule=memory_used)
    model.workspace = pyo.Constraint(  # ours: what a node needs only while it runs
        [(t, k) for t, k in accounts if k and nodes.transient[k - 1]],
        rule=lambda m, t, k: m.U[t, k] + unit * nodes.transient[k - 1] * m.R[t, k] <= budget,
    )
    model.freed_or_hazard = pyo.Constraint(  # (7b)
        frees, rule=lambda m, t, i, k: 1 - m.FREE[t, i, k] <= _hazards(m, t, i, k)[0]
    )

    def no_hazard_if_freed(m: Any, t: int, i: int, k: int) -> Any:
        hazards, most = _hazards(m, t, i, k)
        return most * (1 - m.FREE[t, i, k]) >= hazards

    model.no_hazard_if_freed = pyo.Constraint(frees, rule=no_hazard_if_freed)  # (7c)


def _hazards(model: pyo.ConcreteModel, t: int, i: int, k: int) -> tuple[Any, int]:
    """num_hazards(t, i, k) of (6), and its largest value, kappa."""
    users = [j for j in model.users[i] if k < j <= _last(model, t)]
    later = pyo.quicksum(model.R[t, j] for j in users)
    return (1 - model.R[t, k]) + _kept(model, t + 1, i) + later, 2 + len(users)
