"""A lower bound of the makespan of every plan in program order, with a link and a budget.

Take the moment at which an op first runs. What ops before it have made and ops after it read is
then on the device, or it is fetched after the moment, or it is computed again after it. The first
costs bytes of the budget; the second takes time of both links, out before the moment and in after
it; the third takes time of compute after it. The cheapest split of what the budget does not hold,
in fractions, is a bound.
"""

from __future__ import annotations

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.plans.stages import FloatArray
from rematbench.graphs.ir import Graph, IntArray
from rematbench.graphs.link import Link

MOMENTS = 200
"""Moments that are looked at: those at which the budget lacks most."""


def makespan_bound(graph: Graph, budget: int | None, link: Link) -> float:
    """No plan whose first computes are in program order has a smaller makespan.

    Args:
        budget: bytes on the device, or None.
        link: to the host; without one, nothing is fetched.

    Returns:
        In the graph's cost unit; at least the cost of every needed op once. For graphs with a
        choice of implementations, or with ops in place, it is just that.
    """
    ops = np.flatnonzero(graph.always_needed_ops())
    least = np.array([min(i.cost for i in graph.ops[op].implementations) for op in ops])
    once = float(least.sum())
    chosen = len(graph.tables.op_of) > len(graph.ops) or overwrites(graph)
    if budget is None or chosen or not len(ops):
        return once
    rates = (link.out, link.into) if link.both else (0.0, 0.0)
    held, last = _held(ops, graph.tables)
    lacking = held - (budget - graph.resident_bytes)
    found = [
        _of_moment(graph, ops, int(m), int(lacking[m]), last, least, rates)
        for m in np.argsort(-lacking)[:MOMENTS]
        if lacking[m] > 0
    ]
    return max([once, *found])


def overwrites(graph: Graph) -> bool:
    """Does any implementation overwrite what it reads?"""
    return bool((graph.tables.overwritten_by.items >= 0).any())


def _of_moment(
    graph: Graph,
    ops: IntArray,
    m: int,
    lacking: int,
    last: IntArray,
    least: FloatArray,
    rates: tuple[float, float],
) -> float:
    """The least makespan if so many bytes are not on the device when the m-th op runs."""
    tables = graph.tables
    read = tables.inputs[int(ops[m])]
    wanted = tables.value_bytes * (last > m)
    wanted[read] = 0
    made = tables.writer >= 0
    of_op = np.bincount(tables.writer[made], wanted[made], minlength=len(graph.ops))
    bytes_ = of_op[ops[:m]]
    some = bytes_ > 0
    costs, bytes_ = least[:m][some], bytes_[some]
    order = np.argsort(costs / bytes_, kind="stable")
    paid = np.concatenate([[0.0], np.cumsum(costs[order])])
    covered = np.concatenate([[0.0], np.cumsum(bytes_[order])])
    once, until = float(least.sum()), float(least[: m + 1].sum())
    out, into = rates

    def again(host: FloatArray | float) -> FloatArray:
        found: FloatArray = once + np.interp(lacking - host, covered, paid)
        return found

    if out <= 0:
        return float(again(0.0))
    before = until - float(least[m] + least[0])  # no value is there to be sent before that
    # Recomputing gets cheaper with what the host takes over, and fetching dearer: where they meet,
    # is the least. What is recomputed above that point bounds it from below.
    low, high = 0.0, float(lacking)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if again(middle) > until + middle / into else (low, middle)
    # Waiting for what is sent comes before the moment, recomputing after it: they add up, and are
    # the least at one of these.
    hosts = np.clip(np.concatenate([[0.0, before * out], lacking - covered]), 0.0, lacking)
    sent = again(hosts) + np.maximum(0.0, hosts / out - before)
    return max(float(again(high)), float(sent.min()))


@kernel
def _held(ops, tables):
    """Bytes that each moment asks for, residents aside; and the last op that reads each value."""
    count = ops.size
    last = np.full(tables.value_bytes.size, -1, dtype=np.int64)
    change = np.zeros(count + 2, dtype=np.int64)
    for n in range(count):
        change[n] += tables.workspace[tables.op_first[ops[n]]]
        change[n + 1] -= tables.workspace[tables.op_first[ops[n]]]
        for k in range(tables.inputs.start[ops[n]], tables.inputs.start[ops[n] + 1]):
            last[tables.inputs.items[k]] = n
    for v in range(last.size):
        if tables.is_output[v]:
            last[v] = count
    for n in range(count):
        for k in range(tables.writes.start[ops[n]], tables.writes.start[ops[n] + 1]):
            v = tables.writes.items[k]
            change[n] += tables.value_bytes[v]
            change[max(n, last[v]) + 1] -= tables.value_bytes[v]
    return np.cumsum(change)[:count], last
