"""The reduced problem F: one forward pass, then one stage per backward op.

Stage b recomputes the forward ops that backward op b cannot do without, in program order, and
runs b. A schedule of F is a boolean matrix ``keep``, of shape (stages, forward ops): may what is
in memory of op i stay when stage b begins? Everything else follows: what is missing is recomputed
(the least that will do), and every value is freed after its last read.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numba
import numpy as np

from graphs.ir import Graph, IntArray, Phase, Rows
from graphs.plan import Plan, with_frees
from graphs.simulate import Trace, simulate
from strategies.stages import BoolArray, needed


@dataclass(frozen=True)
class Schedule:
    """A schedule of F, evaluated.

    Attributes:
        keep: as above.
        available: per stage and forward op, in memory when the stage begins?
        recomputed: per stage and forward op, computed again in it?
        plan, trace: the plan and its simulation.
    """

    keep: BoolArray
    available: BoolArray
    recomputed: BoolArray
    plan: Plan
    trace: Trace


@dataclass(frozen=True)
class Reduced:
    """A training graph seen as F.

    Attributes:
        graph: the graph.
        forward: ops before the loss.
        stages: the loss and the ops after it.
    """

    graph: Graph
    forward: IntArray
    stages: IntArray

    @classmethod
    def of(cls, graph: Graph) -> Reduced:
        ops = needed(graph)
        is_forward = np.array([graph.ops[op].phase is Phase.FORWARD for op in ops], dtype=bool)
        loss = graph.loss_index
        assert loss is not None
        before = is_forward & (ops < loss)
        return cls(graph, ops[before], ops[~before])

    @cached_property
    def cost(self) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        """Per forward op."""
        tables = self.graph.tables
        return tables.cost[tables.op_first[self.forward]]

    @cached_property
    def place(self) -> IntArray:
        """Per op of the graph: its position among the forward ops, or -1."""
        found = np.full(len(self.graph.ops) + 1, -1, dtype=np.int64)
        found[self.forward] = np.arange(len(self.forward))
        return found

    def _dependencies(self, ops: IntArray) -> Rows:
        tables = self.graph.tables
        rows = []
        for op in ops.tolist():
            writers = self.place[tables.writer[tables.reads[int(tables.op_first[op])]]]
            rows.append(sorted({w for w in writers.tolist() if w >= 0}))
        return Rows.of(rows)

    @cached_property
    def inputs(self) -> Rows:
        """Per forward op, the forward ops that it reads."""
        return self._dependencies(self.forward)

    @cached_property
    def uses(self) -> Rows:
        """Per stage, the forward ops that its op reads."""
        return self._dependencies(self.stages)

    @property
    def shape(self) -> tuple[int, int]:
        """(stages, forward ops)."""
        return len(self.stages), len(self.forward)

    def evaluate(self, keep: BoolArray) -> Schedule:
        """The schedule that ``keep`` stands for, simulated."""
        available, recomputed = np.empty(self.shape, dtype=bool), np.zeros(self.shape, dtype=bool)
        sequence = _expand(
            keep,
            available,
            recomputed,
            self.inputs.start,
            self.inputs.items,
            self.uses.start,
            self.uses.items,
        )
        ops = np.concatenate([self.forward, self.stages])[sequence]
        codes = with_frees(self.graph, self.graph.tables.op_first[ops])
        plan = Plan.from_codes(self.graph, codes)
        return Schedule(keep, available, recomputed, plan, simulate(self.graph, plan))


@numba.njit(cache=True)
def _expand(keep, available, recomputed, input_at, inputs, use_at, uses):
    """Fill ``available`` and ``recomputed``; return the sequence of computes.

    Numbers from n on in the sequence are stages.
    """
    stages, n = keep.shape
    live = np.ones(n, dtype=np.bool_)
    sequence = np.empty(n + stages * (n + 1), dtype=np.int64)
    sequence[:n] = np.arange(n)
    end = n
    for s in range(stages):
        again = recomputed[s]
        for i in range(n):
            live[i] = live[i] and keep[s, i]
            available[s, i] = live[i]
        highest = -1
        for k in range(use_at[s], use_at[s + 1]):
            if not live[uses[k]]:
                again[uses[k]] = True
                highest = max(highest, uses[k])
        for i in range(highest, -1, -1):
            if again[i]:
                for k in range(input_at[i], input_at[i + 1]):
                    if not live[inputs[k]]:
                        again[inputs[k]] = True
        for i in range(highest + 1):
            if again[i]:
                sequence[end] = i
                end += 1
                live[i] = True
        sequence[end] = n + s
        end += 1
    return sequence[:end].copy()


@numba.njit(cache=True)
def recompute_cost(op, available, recomputed, cost, input_at, inputs):
    """Cost of computing ``op`` again in a stage whose rows are given."""
    missing = np.zeros(op + 1, dtype=np.bool_)
    missing[op] = True
    total = 0.0
    for i in range(op, -1, -1):
        if missing[i]:
            total += cost[i]
            for k in range(input_at[i], input_at[i + 1]):
                j = inputs[k]
                if not available[j] and not recomputed[j]:
                    missing[j] = True
    return total
