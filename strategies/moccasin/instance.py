"""A graph in whole numbers, as the constraint program takes it and as JSON carries it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import floor, gcd
from typing import Any, Self

import numpy as np

from rematbench.engines.plans.stages import needed
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import Plan

# Costs that are no whole numbers, or larger ones, become multiples of this share of their sum.
_FINEST = 1e-9


@dataclass(frozen=True)
class Instance:
    """What is computed, in which order, and what it needs; sizes in units, residents left out.

    Ops are the needed ones, numbered in program order. Values without bytes are left out: keeping
    them costs nothing.

    Attributes:
        computes: the most computes of an op (the paper's C).
        budget: the allowed peak.
        peak: that of computing every op once, in program order.
        cost, workspace: per op.
        writes, reads: values per op.
        size: per value.
        outputs: values to keep at the end.
    """

    computes: int
    budget: int
    peak: int
    cost: Sequence[int]
    workspace: Sequence[int]
    writes: Sequence[Sequence[int]]
    reads: Sequence[Sequence[int]]
    size: Sequence[int]
    outputs: Sequence[int]

    def as_json(self) -> dict[str, Any]:
        """For another process."""
        return asdict(self)

    @classmethod
    def of_json(cls, given: dict[str, Any]) -> Self:
        """The same, there."""
        return cls(**given)


@dataclass(frozen=True)
class Scaled:
    """An instance, and what its numbers stand for.

    Attributes:
        graph: what it was made from.
        ops: the graph's ops that it numbers.
        instance: the numbers.
        byte_unit: bytes of a unit of size.
        cost_unit: of a unit of cost, in the graph's; each cost is rounded down to such units.
        base_cost: of computing every op once.
    """

    graph: Graph
    ops: IntArray
    instance: Instance
    byte_unit: int
    cost_unit: float
    base_cost: float

    def plan(self, order: Iterable[int]) -> Plan:
        """Computes of the instance's ops, in order, as a plan with the earliest frees."""
        first = self.graph.tables.op_first
        return Plan.of_computes(self.graph, first[self.ops[np.array(list(order), dtype=np.int64)]])

    def order(self, plan: Plan) -> list[int]:
        """The computes of a plan, as :meth:`plan` takes them."""
        codes = plan.codes(self.graph)
        ops = self.graph.tables.op_of[codes[codes >= 0]]
        numbers: list[int] = np.searchsorted(self.ops, ops).tolist()
        return numbers

    def bound(self, recomputed: float) -> float:
        """A lower bound of the cost, from one of the recomputations' units."""
        return self.base_cost + max(0.0, recomputed) * self.cost_unit

    def peak_bytes(self, units: int) -> int:
        """A peak in units, residents added."""
        return units * self.byte_unit + self.graph.resident_bytes


def instance_of(graph: Graph, budget: int, peak: int, computes: int) -> Scaled:
    """A graph in numbers.

    Args:
        budget, peak: bytes, residents included.
        computes: the most computes of an op.
    """
    tables, ops = graph.tables, needed(graph)
    first, written = tables.op_first[ops], tables.writes.picked(ops)
    values = written.items[tables.value_bytes[written.items] > 0]
    place = np.full(len(graph.values), -1, dtype=np.int64)
    place[values] = np.arange(len(values))
    size = tables.value_bytes[values].tolist()
    workspace = tables.workspace[first].tolist()
    unit = gcd(*size, *workspace) or 1
    costs = tables.cost[first].tolist()
    cost_unit, scaled = _whole(costs)
    resident = graph.resident_bytes
    instance = Instance(
        computes,
        (budget - resident) // unit,
        (peak - resident) // unit,
        scaled,
        [each // unit for each in workspace],
        written.numbered(place).lists(),
        tables.inputs.picked(ops).numbered(place).lists(),
        [each // unit for each in size],
        [v for v in place[tables.outputs].tolist() if v >= 0],
    )
    return Scaled(graph, ops, instance, unit, cost_unit, float(sum(costs)))


def _whole(costs: Sequence[float]) -> tuple[float, list[int]]:
    """A unit, and costs in whole units: exact where they are whole numbers of moderate size."""
    total = sum(costs)
    if not total:
        return 1.0, [0] * len(costs)
    if all(float(cost).is_integer() for cost in costs):
        whole = [int(cost) for cost in costs]
        unit = gcd(*whole)
        if total / unit <= 1 / _FINEST:
            return float(unit), [cost // unit for cost in whole]
    finest = total * _FINEST
    return finest, [floor(cost / finest) for cost in costs]


def peak_of(instance: Instance, order: Iterable[int]) -> int:
    """The peak of computes in an order, by the program's rules, in units."""
    sequence = list(order)
    last: dict[tuple[int, int], int] = {}
    copy: dict[int, int] = {}
    for moment, op in enumerate(sequence):
        for v in instance.reads[op]:
            last[v, copy[v]] = moment
        for v in instance.writes[op]:
            copy[v] = moment
            last[v, moment] = moment
    for v in instance.outputs:
        last[v, copy[v]] = len(sequence)
    change = [0] * (len(sequence) + 2)
    for (v, start), end in last.items():
        change[start] += instance.size[v]
        change[end + 1] -= instance.size[v]
    live = peak = 0
    for moment, op in enumerate(sequence):
        live += change[moment]
        peak = max(peak, live + instance.workspace[op])
    return peak
