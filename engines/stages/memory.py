"""What the memory rows of a space count: values, their readers, and what is there regardless."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from rematbench.engines.plans.stages import BoolArray, FloatArray
from rematbench.engines.stages.space import Space
from rematbench.graphs.ir import IntArray, Rows


class ValueTables(NamedTuple):
    """A space in arrays, for the kernels of :mod:`~rematbench.engines.stages.cuts`.

    Values, in program order, are those whose keeping is a choice: written by a repeatable op,
    read by some op or an output of the graph, and not negligible. Negligible ones are taken to
    be always there and to take no space, which only relaxes the space. Sizes are in units of
    ``unit`` bytes.

    Attributes:
        size: per value.
        writer: per value, its op.
        first: per value, the stage that computes it first, or -1.
        final: per value, is it an output of the graph?
        readers: per value, the repeatable ops that read it, ascending.
        reads: per repeatable op, the values that it reads.
        writes: per repeatable op, the values that it writes.
        uses: per stage, the values that its op reads.
        stage_place: per stage, the number of its op among the repeatable ones, or -1.
        transient: per repeatable op, what else it needs while it runs: workspace, other values.
        before: per stage, what is there whatever the schedule, before its op runs.
        during: the same while it runs, without the values above.
        resident: what is there from the beginning.
        prefix: ops whose first computes have memory rows: in F all, in (9) none, since what (9)
            does before its first stage here is not said.
    """

    size: FloatArray
    writer: IntArray
    first: IntArray
    final: BoolArray
    readers: Rows
    reads: Rows
    writes: Rows
    uses: Rows
    stage_place: IntArray
    transient: FloatArray
    before: FloatArray
    during: FloatArray
    resident: float
    prefix: int

    @classmethod
    def of(cls, space: Space, unit: float, negligible: float) -> ValueTables:
        """The tables of ``space``; values of at most ``negligible`` bytes are left out."""
        graph, tables = space.graph, space.graph.tables
        size = tables.value_bytes / unit
        writer = space.values.writer
        op_reads = tables.inputs.lists()
        read = np.zeros(len(graph.values), dtype=bool)
        read[[v for op in [*space.ops, *space.stages] for v in op_reads[op]]] = True
        chosen = (writer >= 0) & (read | tables.is_output) & (tables.value_bytes > negligible)
        picked = np.flatnonzero(chosen)
        picked = picked[np.argsort(writer[picked], kind="stable")]
        number = np.full(len(chosen), -1, dtype=np.int64)
        number[picked] = np.arange(len(picked))

        def rows(lists: Iterable[Iterable[int]]) -> Rows:
            kept = [sorted(number[v] for v in row if chosen[v]) for row in lists]
            return Rows.of(kept)

        reads = rows(op_reads[op] for op in space.ops)
        workspace = tables.workspace[tables.op_first[:-1]] / unit
        others = (tables.writer >= 0) & ~chosen
        transient = workspace + np.bincount(tables.writer[others], size[others], len(workspace))
        resident = float(size[tables.resident].sum())
        before = resident + _unchosen(space, size, op_reads)
        return cls(
            size[picked],
            writer[picked],
            space.stage[writer[picked]],
            tables.is_output[picked],
            reads.transposed(len(picked)),
            reads,
            rows(tables.writes[op].tolist() for op in space.ops),
            rows(op_reads[op] for op in space.stages),
            space.structure.stage_place,
            transient[space.ops],
            before,
            before + transient[space.stages],
            resident,
            len(space.ops) if space.name == "F" else 0,
        )


def _unchosen(space: Space, size: FloatArray, op_reads: list[list[int]]) -> FloatArray:
    """Per stage: values of ops that are never repeated, in memory before the stage's op."""
    tables = space.graph.tables
    there = np.zeros(len(space.stages))
    last: dict[int, int] = {}
    for s, op in enumerate(space.stages.tolist()):
        last |= dict.fromkeys(op_reads[op], s)
    for s, op in enumerate(space.stages.tolist()):
        for v in tables.writes[op].tolist() if space.structure.stage_place[s] < 0 else ():
            end = len(there) - 1 if tables.is_output[v] else last.get(v, s)
            there[s + 1 : end + 1] += size[v]
    return there
