"""Lower bounds of the reduced problem F: its linear relaxation with exact liveness, in rows on demand.

Consecutive stages are merged into groups. What a schedule of F recomputes in a group (R) and has
in memory when the group begins (S) satisfies every row below, so the optimum of these rows is a
lower bound; with groups of one stage they describe F exactly. Memory rows are generated where the
current solution violates them: in each, a value counts with one of the reasons for which it must
be live, whichever is strongest there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from graphs.ir import IntArray
from strategies.checkmate.space import Space

FloatArray = NDArray[np.float64]
SCALE = 100.0


@dataclass(frozen=True)
class Memory:
    """What F's memory rows count, in bytes.

    Values are the forward values whose keeping is a choice: read by some op, no output of the
    graph, and not negligible. Negligible ones are taken to be always there and to take no space,
    which only relaxes F.

    Attributes:
        size: per value.
        writer: per value, its forward op.
        readers: per value, the forward ops that read it, ascending.
        stages: per value, the stages whose op reads it, ascending.
        transient: per forward op, what else it needs while it runs: workspace, values that are
            no choice.
        before: per stage, bytes that are there whatever the schedule, before its op runs.
        during: the same while it runs.
    """

    size: FloatArray
    writer: IntArray
    readers: tuple[tuple[int, ...], ...]
    stages: tuple[tuple[int, ...], ...]
    transient: FloatArray
    before: FloatArray
    during: FloatArray

    @classmethod
    def of(cls, problem: Space, negligible: float) -> Memory:
        graph, tables = problem.graph, problem.graph.tables
        n, m = len(problem.forward), len(problem.stages)
        count = len(graph.values)
        stage_of = np.full(len(graph.ops) + 1, -1, dtype=np.int64)
        stage_of[problem.stages] = np.arange(m)
        readers: list[list[int]] = [[] for _ in range(count)]
        stages: list[list[int]] = [[] for _ in range(count)]
        for at, ops, found in ((0, problem.forward, readers), (0, problem.stages, stages)):
            for place, op in enumerate(ops.tolist(), at):
                for v in set(tables.reads[int(tables.op_first[op])].tolist()):
                    found[v].append(place)
        place_of = problem.place[tables.writer]
        is_output = np.zeros(count, dtype=bool)
        is_output[tables.outputs] = True
        chosen = [
            v
            for v in range(count)
            if place_of[v] >= 0
            and not is_output[v]
            and (readers[v] or stages[v])
            and tables.value_bytes[v] > negligible
        ]
        is_chosen = np.zeros(count, dtype=bool)
        is_chosen[chosen] = True
        size = tables.value_bytes.astype(np.float64)
        workspace = tables.workspace[tables.op_first[:-1]].astype(np.float64)
        other = np.array([size[w[~is_chosen[w]]].sum() for w in map(tables.writes.__getitem__, range(len(graph.ops)))])
        fixed = size[tables.resident].sum() + size[is_output & (place_of >= 0)].sum()
        before = np.full(m, fixed)
        for v in np.flatnonzero(stage_of[tables.writer] >= 0).tolist():
            first = int(stage_of[tables.writer[v]])
            last = m - 1 if is_output[v] else max(stages[v], default=first)
            before[first + 1 : last + 1] += size[v]
        return cls(
            size[chosen],
            place_of[chosen],
            tuple(tuple(readers[v]) for v in chosen),
            tuple(tuple(stages[v]) for v in chosen),
            workspace[problem.forward] + other[problem.forward],
            before,
            before + workspace[problem.stages] + other[problem.stages],
        )
