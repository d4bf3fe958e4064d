"""Every schedule of problem (9), one after the other: the least cost at each peak.

Written from the paper's definitions (Checkmate, section 4.2), with nothing of the planners: R from
S by what each stage needs, memory by what is live at each compute.
"""

from __future__ import annotations

import numpy as np

from rematbench.graphs.ir import Graph

_AT_A_TIME = 1 << 17


def frontier(graph: Graph) -> list[tuple[int, float]]:
    """(peak in bytes, least cost) of all S, of the Pareto-optimal ones, peaks rising.

    Args:
        graph: every op writes one value and is needed; at most seven ops (two million S).
    """
    writer = {op.writes[0]: i for i, op in enumerate(graph.ops)}
    n = len(writer)
    assert n <= 7
    assert len(graph.ops) == n
    reads = [sum(1 << writer[name] for name in {*op.reads} & {*writer}) for op in graph.ops]
    outputs = sum(1 << writer[name] for name in graph.outputs)
    found: dict[int, float] = {}
    bits = n * (n - 1) // 2
    for start in range(0, 1 << bits, _AT_A_TIME):
        numbers = np.arange(start, min(start + _AT_A_TIME, 1 << bits))
        cost, peak = _schedules(graph, reads, outputs, numbers)
        order = np.lexsort((cost, peak))
        peaks, first = np.unique(peak[order], return_index=True)
        for each, least in zip(peaks.tolist(), cost[order][first].tolist(), strict=True):
            found[each] = min(least, found.get(each, np.inf))
    pareto: list[tuple[int, float]] = []
    for peak_bytes in sorted(found):
        if not pareto or found[peak_bytes] < pareto[-1][1]:
            pareto.append((peak_bytes, found[peak_bytes]))
    return pareto


def _schedules(
    graph: Graph, reads: list[int], outputs: int, numbers: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Cost and peak of the S whose lower triangles spell these numbers in bits.

    Sets of ops are bits: op i is ``1 << i``.
    """
    n = len(reads)
    sizes = np.array(
        [
            sum(
                graph.values[graph.value_index[op.writes[0]]].bytes
                for i, op in enumerate(graph.ops)
                if which >> i & 1
            )
            for which in range(1 << n)
        ]
    )
    kept = np.zeros((n + 1, len(numbers)), dtype=np.uint8)  # S, and what must be there at the end
    for bit, (t, i) in enumerate(zip(*np.tril_indices(n, -1), strict=True)):
        kept[t] |= ((numbers >> bit & 1) << i).astype(np.uint8)
    kept[n] = outputs
    cost, peak = np.zeros(len(numbers)), np.zeros(len(numbers), dtype=np.int64)
    for t in range(n):
        computed = kept[t + 1] & ~kept[t] | np.uint8(1 << t)  # R: what a later stage cannot do
        for j in reversed(range(n)):  # without, and what that reads
            computed |= np.where(computed >> j & 1, reads[j], 0).astype(np.uint8) & ~kept[t]
        later = kept[t + 1].copy()
        for k in reversed(range(n)):
            runs = (computed >> k & 1).astype(bool)
            later |= np.where(runs, reads[k], 0).astype(np.uint8)
            there = kept[t] | computed & np.uint8((2 << k) - 1)
            live = sizes[there & (later | np.uint8(1 << k))]
            op = graph.ops[k].implementations[0]
            need = graph.resident_bytes + live + op.workspace_bytes
            peak = np.where(runs, np.maximum(peak, need), peak)
            cost += np.where(runs, op.cost, 0.0)
    return cost, peak
