"""Numbers that tell one graph from another, for choosing diverse ones.

None depends on what a search finds: three come from the bounds and from one sweep of Chen's greedy
heuristic, the rest from the graph alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from rematbench.graphs.floors import once_floor
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.plan import program_order
from rematbench.graphs.planning import Problem
from rematbench.graphs.simulate import simulate
from rematbench.strategies.chen.planner import LinearizedGreedy

SWEPT = 24
"""Segment sizes of the greedy heuristic that are tried."""


@dataclass(frozen=True)
class Features:
    """What is known of a graph before anybody plans for it. Bytes, and shares.

    Attributes:
        ops, values: counts.
        floor_bytes, once_floor_bytes, peak_bytes: no plan is below; none that computes backward
            ops once; checkpoint-all's.
        lean_bytes: the least peak in a sweep of Chen's greedy heuristic over all forward ops
            (``linearized_greedy``); the floor in a graph without a loss.
        lean_overhead: what that plan costs more than checkpoint-all, relative.
        forward: share of the ops that are forward ops.
        reads: values that an op reads, on average.
        fan_out: the most readers of a value that is not resident, over ops.
        skip: program order between a forward value's compute and its last forward read, on average
            over forward values; ``longest_skip``: at most. In shares of the forward ops.
        byte_skew, cost_skew: Gini coefficients over the values that are not resident, over ops.
        cost_of_bytes: rank correlation of an op's cost with the bytes that it writes.
        resident: residents' share of the peak.
        kinds: different pairs of cost and bytes written, over ops: 1 means that no op repeats.
        choices: share of the ops with several implementations.
        random: share of the ops that draw random numbers.
    """

    ops: int
    values: int
    floor_bytes: int
    once_floor_bytes: int
    peak_bytes: int
    lean_bytes: int
    lean_overhead: float
    forward: float
    reads: float
    fan_out: float
    skip: float
    longest_skip: float
    byte_skew: float
    cost_skew: float
    cost_of_bytes: float
    resident: float
    kinds: float
    choices: float
    random: float

    def vector(self) -> list[float]:
        """What distances are of: sizes on a logarithmic scale, peaks as shares of the peak."""
        found = asdict(self)
        sizes = [np.log(found.pop("ops")), found.pop("values") / self.ops]
        peak = found.pop("peak_bytes")
        bounds = ("floor_bytes", "once_floor_bytes", "lean_bytes")
        sizes += [found.pop(key) / peak for key in bounds]
        return [*sizes, *found.values()]


def features(graph: Graph) -> Features:
    """The features of a graph; shares are rounded to four digits."""
    tables, n = graph.tables, len(graph.ops)
    all_once = simulate(graph, program_order(graph))
    floor, once = graph.floor_bytes(), once_floor(graph)[0]
    lean, overhead = _lean(graph, all_once.peak_bytes, all_once.cost, floor)
    costs = tables.cost[tables.op_first[:-1]]
    movable = np.where(tables.resident, 0, tables.value_bytes)
    written = np.zeros(n, dtype=np.int64)
    made = tables.writer >= 0
    np.add.at(written, tables.writer[made], movable[made])
    skips = _skips(graph)
    readers = np.bincount(tables.inputs.items, minlength=len(graph.values))[~tables.resident]
    shares = (
        overhead,
        float(tables.forward.mean()),
        len(tables.inputs.items) / n,
        int(readers.max(initial=0)) / n,
        float(skips.mean()) if len(skips) else 0.0,
        float(skips.max(initial=0.0)),
        gini(movable[made]),
        gini(costs),
        rank_correlation(costs, written),
        graph.resident_bytes / max(1, all_once.peak_bytes),
        len({*zip(costs.tolist(), written.tolist(), strict=True)}) / n,
        float((np.diff(tables.op_first) > 1).mean()),
        sum(op.random for op in graph.ops) / n,
    )
    rounded = [round(share, 4) for share in shares]
    return Features(n, len(graph.values), floor, once, all_once.peak_bytes, lean, *rounded)


def _lean(graph: Graph, peak: int, cost: float, floor: int) -> tuple[int, float]:
    """The least peak of the greedy heuristic's sweep, and its plan's overhead."""
    if graph.loss_index is None:
        return floor, 0.0
    solution = LinearizedGreedy(most=SWEPT).plan(Problem(graph, time_limit=1e6))
    curve = [(point["peak_bytes"], point["cost"]) for point in solution.details["curve"]]
    least, dearest = min([*curve, (peak, cost)])
    return int(least), float(dearest / cost - 1) if cost else 0.0


def _skips(graph: Graph) -> NDArray[np.float64]:
    """Per forward value that forward ops read: how far away the last of them is."""
    tables = graph.tables
    end = len(graph.ops) if graph.loss_index is None else graph.loss_index
    last: IntArray = np.full(len(graph.values), -1, dtype=np.int64)
    for op in range(end):
        last[tables.inputs[op]] = op
    counted = (last >= 0) & (tables.writer >= 0)
    return (last[counted] - tables.writer[counted]) / max(1, end)


def gini(amounts: NDArray[np.generic]) -> float:
    """0 where all are equal, towards 1 where one has everything.

    >>> gini(np.array([1, 1, 1]))
    0.0
    """
    ordered = np.sort(amounts.astype(float))
    total, n = ordered.sum(), len(ordered)
    if not total:
        return 0.0
    return float(2 * (ordered * np.arange(1, n + 1)).sum() / (n * total) - (n + 1) / n)


def rank_correlation(first: NDArray[np.generic], second: NDArray[np.generic]) -> float:
    """Spearman's; 0 where one of them does not vary."""
    from scipy.stats import rankdata

    one, two = rankdata(first), rankdata(second)
    if one.std() == 0 or two.std() == 0:
        return 0.0
    return float(np.corrcoef(one, two)[0, 1])
