"""auto_perf: torchtitan's rule (pytorch/torchtitan#4636) to keep, recompute or offload."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Literal

import numpy as np

from rematbench.base.errors import Infeasible
from rematbench.engines.bridges.across import across_loss, copyable
from rematbench.engines.bridges.gaps import Sequence
from rematbench.engines.bridges.weave import plan_at
from rematbench.engines.lp.program import LinearProgram
from rematbench.engines.lp.solver import SOLVER, Solver
from rematbench.engines.plans.stages import BoolArray, FloatArray
from rematbench.graphs.blocks import Block
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import (
    Problem,
    Solution,
    Traits,
    cheapest_within,
    check_choice,
    planning_seconds,
)
from rematbench.strategies.offload.planner import blocks_of, sequence_of_regions

KEEP, RECOMPUTE, OFFLOAD = range(3)
SHARES = (1.0, 0.97, 0.94, 0.91, 0.88, 0.84, 0.8, 0.75, 0.7, 0.6, 0.5)
"""Of the budget: peaks that the estimate is asked for."""
EARLY = 1e-6
"""What offloading all costs beside recomputing all: where time is equal, less is moved."""


@dataclass(frozen=True)
class AutoPerf:
    """A linear program splits each layer's activations; a second step turns shares into tags.

    The program's peak is an estimate: it is asked for several, and the cheapest plan that fits as
    simulated is the answer.

    Attributes:
        solver: of the second step: ``greedy`` or ``ilp``.
    """

    traits: ClassVar[Traits] = Traits("yes", "yes", "yes", budgeted=True, offloads=True)
    solver: Literal["greedy", "ilp"] = "greedy"

    def __post_init__(self) -> None:
        check_choice("solver", self.solver, ("greedy", "ilp"))

    def plan(self, problem: Problem) -> Solution:
        """The cheapest plan of the peaks that were asked for.

        Raises:
            NotApplicable: there is no link, or no repeated block.
            Infeasible: no plan fits the budget and the host.
        """
        layers = LayerCosts(copyable(problem), blocks_of(problem.graph))
        order = program_order(problem.graph)
        if problem.holds(simulate(problem.graph, order).peak_bytes):
            return Solution(order, variant=self.solver)
        (_, tags), plan, _, curve = cheapest_within(problem, self._plans(problem, layers))
        size = layers.bytes.sum() or 1
        facts: dict[str, Any] = {
            "layers": len(layers.blocks),
            "offloaded_values": int((layers.bytes[tags == OFFLOAD] > 0).sum()),
            "shares": [float(layers.bytes[tags == tag].sum() / size) for tag in range(3)],
            "curve": [point | {"knob": point["knob"][0]} for point in curve],
        }
        solver = SOLVER if self.solver == "ilp" else None
        return Solution(plan, variant=self.solver, details=facts, solver=solver)

    def _plans(
        self, problem: Problem, layers: LayerCosts
    ) -> Iterator[tuple[tuple[float, IntArray], Plan]]:
        assert problem.budget is not None
        some = False
        for share in SHARES:
            split = _split(problem, layers, int(share * problem.budget))
            if split is None:
                continue
            tags = self._tags(layers, split)
            plan = _plan(problem, layers, tags)
            if plan is not None:
                some = True
                yield (share, tags), plan
        if not some:
            raise Infeasible(
                f"no split of {len(layers.blocks)} layers is estimated to fit {problem.budget} "
                "bytes and the host; give more, or use hybrid"
            )

    def _tags(self, layers: LayerCosts, split: FloatArray) -> IntArray:
        """Per op of the graph; equal layers are tagged once."""
        tags = np.full(len(layers.graph.ops), KEEP)
        known: dict[Any, IntArray] = {}
        for block, shares in zip(layers.blocks, split, strict=True):
            ops = np.array(block.ops)
            kind = layers.of(ops), tuple(shares.round(9))
            if kind not in known:
                step = _greedy if self.solver == "greedy" else _by_program
                known[kind] = step(layers, ops, shares)
            tags[ops] = known[kind]
        return tags


@dataclass(frozen=True)
class LayerCosts:
    """The activations of repeated blocks; arrays are per op of the graph.

    Attributes:
        graph: with a backward pass.
        blocks: the layers, in program order.
    """

    graph: Graph
    blocks: tuple[Block, ...]

    @cached_property
    def region(self) -> IntArray:
        """The layer of each op, or -1."""
        found = np.full(len(self.graph.ops), -1, dtype=np.int64)
        for number, block in enumerate(self.blocks):
            found[list(block.ops)] = number
        return found

    @cached_property
    def order(self) -> Sequence:
        """Checkpoint-all's computes."""
        codes = program_order(self.graph).codes(self.graph)
        return Sequence.of(self.graph, codes[codes >= 0])

    @cached_property
    def bytes(self) -> IntArray:
        """Bytes of an op in a layer that the backward pass reads."""
        tables, across = self.graph.tables, np.unique(self.order.value[across_loss(self.order)])
        found = np.bincount(
            tables.writer[across], tables.value_bytes[across], len(self.graph.ops)
        ).astype(np.int64)
        return np.where(self.region >= 0, found, 0)

    @cached_property
    def again(self) -> BoolArray:
        """May it run again? No op that draws random numbers, none whose value leaves its layer."""
        tables, found = self.graph.tables, np.array([not op.random for op in self.graph.ops])
        for op in np.flatnonzero(~tables.backward).tolist():
            writers = tables.writer[tables.inputs[op]]
            writers = writers[writers >= 0]
            found[writers[self.region[writers] != self.region[op]]] = False
        return found

    @cached_property
    def cost(self) -> FloatArray:
        """Of running it again."""
        tables = self.graph.tables
        return np.asarray(tables.cost[tables.op_first[:-1]])

    def of(self, ops: IntArray) -> tuple[Any, ...]:
        """What a layer's tags depend on."""
        return tuple(
            (int(self.bytes[op]), float(self.cost[op]), bool(self.again[op])) for op in ops
        )

    @cached_property
    def totals(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Per layer: bytes, the share of them that may be computed again, and the time of that."""
        parts = [np.array(block.ops) for block in self.blocks]
        size = np.array([float(self.bytes[ops].sum()) for ops in parts])
        may = [float((self.bytes * self.again)[ops].sum()) for ops in parts]
        time = [float((self.cost * self.again)[ops].sum()) for ops in parts]
        return size, np.array(may) / np.maximum(size, 1), np.array(time)

    @cached_property
    def peaks(self) -> FloatArray:
        """Bytes beside all layers' activations, per layer while its backward pass reads them.

        One more at the end: between the forward and the backward pass over layers.
        """
        sequence, count = self.order, len(self.blocks)
        layer = self.region[self.graph.tables.writer[sequence.value]]
        away = across_loss(sequence) & (layer >= 0)
        rest = sequence.levels_with(away)
        first, last = np.full(count, len(rest) - 1), np.zeros(count, dtype=np.int64)
        np.minimum.at(first, layer[away], sequence.end[away])
        np.maximum.at(last, layer[away], sequence.end[away])
        spans = [*zip(first, np.maximum(first, last), strict=True)]
        middle = int(sequence.begin[away].max(initial=0)), int(first.min(initial=len(rest) - 1))
        return np.array([float(rest[a : b + 1].max()) for a, b in (*spans, middle)])

    @cached_property
    def windows(self) -> tuple[FloatArray, FloatArray]:
        """Time in which a layer's copies leave, and come back: that of the layer after it."""
        tables, starts = self.graph.tables, [block.ops[0] for block in self.blocks]
        ends = [*starts[1:], self.graph.loss_index]
        ahead = [float((self.cost * tables.forward)[a:b].sum())
                 for a, b in zip(starts, ends, strict=True)]  # fmt: skip
        last = np.full(len(self.blocks), len(self.graph.ops))
        layer = self.region[tables.writer[self.order.value]]
        computed = tables.op_of[self.order.computes]
        across = across_loss(self.order) & (layer >= 0)
        np.minimum.at(last, layer[across], computed[self.order.end[across]])
        backs = [float((self.cost * tables.backward)[b:a].sum()) for a, b in pairwise(last)]
        return np.array([*ahead[1:], 0.0]), np.array([*backs, 0.0])


def _split(problem: Problem, layers: LayerCosts, budget: int) -> FloatArray | None:
    """Shares of each layer to keep, recompute and offload, for the least time; shape (n, 3).

    Estimated: a layer is whole while its backward pass runs, and what the layer before it
    offloaded is there, too; a layer's copies move while the layer after it runs.
    """
    size, may, time = layers.totals
    program, link = LinearProgram(), problem.link
    window = np.minimum(link.out * layers.windows[0], link.into * layers.windows[1])
    most = np.minimum(1.0, window / np.maximum(size, 1.0))
    cost = EARLY * float(time.max())
    again = [program.column(t, upper=m) for t, m in zip(time, may, strict=True)]
    away = [program.column(cost, upper=m) for m in most]
    for pair in zip(again, away, strict=True):
        program.at_most(pair, (), 1.0)
    _add_peaks(program, layers, (again, away), budget)
    if problem.host is not None:
        program.row(zip(away, size, strict=True), float(problem.host))
    outcome = Solver(program, seed=problem.seed).run(planning_seconds() + problem.time_limit)
    if outcome is None or outcome.x is None:
        return None
    shares = outcome.x[np.array([again, away])].T.clip(0, 1)
    return np.column_stack([1 - shares.sum(axis=1), shares])


def _add_peaks(
    program: LinearProgram, layers: LayerCosts, columns: tuple[list[int], list[int]], budget: int
) -> None:
    """Rows: the estimated peak while each layer is gone back over, and before."""
    size, away = layers.totals[0], columns[1]
    gone = [[(again, -bytes_), (out, -bytes_)] for again, out, bytes_ in
            zip(*columns, size, strict=True)]  # fmt: skip
    for b, base in enumerate(layers.peaks):
        before = [term for terms in gone[:b] for term in terms]
        ahead = [(away[b - 1], size[b - 1])] if b else []
        program.row([*before, *ahead], budget - base - float(size[: b + 1].sum()))


def _greedy(layers: LayerCosts, ops: IntArray, shares: FloatArray) -> IntArray:
    """Tags: what is dearest to compute per byte goes, what is cheapest is computed again."""
    size, tags = layers.bytes[ops], np.full(len(ops), KEEP)
    total = float(size.sum())
    rate = np.where(layers.again[ops], layers.cost[ops], np.inf) / np.maximum(size, 1)
    order = np.argsort(rate, kind="stable")
    left = shares[OFFLOAD] * total
    for at in order[::-1]:
        if 0 < size[at] <= left + 0.5:
            tags[at], left = OFFLOAD, left - size[at]
    kept = total - float(size[tags == OFFLOAD].sum())
    for at in order:
        if kept > shares[KEEP] * total + 0.5 and tags[at] == KEEP and np.isfinite(rate[at]):
            tags[at], kept = RECOMPUTE, kept - size[at]
    return tags


def _by_program(layers: LayerCosts, ops: IntArray, shares: FloatArray) -> IntArray:
    """Tags of the least time, by an integer program; the greedy ones where it finds none."""
    size, program = layers.bytes[ops].astype(float), LinearProgram()
    total, greedy = float(size.sum()), _greedy(layers, ops, shares)
    chosen = np.flatnonzero(size > 0)
    again = [program.column(layers.cost[ops[at]], True, upper=float(layers.again[ops[at]]))
             for at in chosen]  # fmt: skip
    away = [program.column(0.0, True) for _ in chosen]
    for pair in zip(again, away, strict=True):
        program.at_most(pair, (), 1.0)
    gone = [(column, -size[at] / max(total, 1)) for both in (again, away)
            for column, at in zip(both, chosen, strict=True)]  # fmt: skip
    program.row(gone, shares[KEEP] - 1 + 1e-9)
    moved = [(c, size[at] / max(total, 1)) for c, at in zip(away, chosen, strict=True)]
    program.row(moved, shares[OFFLOAD] + 1e-9)
    outcome = Solver(program, integral=True).run(planning_seconds() + 2.0)
    if outcome is None or outcome.x is None:
        return greedy
    tags = np.full(len(ops), KEEP)
    tags[chosen[outcome.x[again] > 0.5]] = RECOMPUTE
    tags[chosen[outcome.x[away] > 0.5]] = OFFLOAD
    return tags


def _plan(problem: Problem, layers: LayerCosts, tags: IntArray) -> Plan | None:
    """Tags as a plan: copies come back one layer ahead, and free one layer later."""
    graph, count = problem.graph, len(layers.blocks)
    saved = (tags != RECOMPUTE) & (layers.bytes > 0) | ~layers.again
    sequence = sequence_of_regions(graph, layers.region, saved)
    writer = graph.tables.writer[sequence.value]
    across = across_loss(sequence) & (layers.region[writer] >= 0)
    gaps = np.flatnonzero(across & (tags[writer] == OFFLOAD))
    ops = graph.tables.op_of[sequence.computes]
    loss = int(np.flatnonzero(ops == graph.loss_index)[0])
    starts = [int(np.flatnonzero(ops == block.ops[0])[0]) for block in layers.blocks]
    leave = np.array([*starts, loss, loss])[2:]
    backs = np.full(count + 1, len(ops))
    np.minimum.at(backs, layers.region[writer][across], sequence.end[across])
    layer = layers.region[writer[gaps]]
    frees = np.maximum(sequence.begin[gaps] + 1, leave[layer])
    fetches = np.minimum(sequence.end[gaps], backs[layer + 1])
    fetches = np.maximum(fetches, frees + 1)
    frees = np.where(fetches <= sequence.end[gaps], frees, -1)
    return plan_at(sequence, gaps, frees, fetches, problem.host)
