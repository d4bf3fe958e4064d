"""Compiled loops over the schedules of a :class:`~rematbench.engines.stages.space.Space`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.engines.plans.stages import BoolArray
from rematbench.graphs.ir import IntArray, Rows


class Structure(NamedTuple):
    """The dependencies of a space.

    Attributes:
        stage: per repeatable op, the stage that it ends, or -1.
        stage_place: per stage, the number of its op among the repeatable ones, or -1.
        inputs: per repeatable op, the repeatable ops that it reads.
        uses: per stage, the repeatable ops that its op reads.
    """

    stage: IntArray
    stage_place: IntArray
    inputs: Rows
    uses: Rows


class Values(NamedTuple):
    """The values of a space's graph.

    Attributes:
        size: per value, its bytes.
        writer: per value, its repeatable op, or -1.
        place: per implementation, its repeatable op, or -1.
        reads: per implementation, the values that it reads.
    """

    size: IntArray
    writer: IntArray
    place: IntArray
    reads: Rows


class Course(NamedTuple):
    """A schedule as it runs; see :class:`~rematbench.engines.stages.space.Schedule`.

    Attributes:
        codes: the statements, as in :class:`~rematbench.graphs.simulate.Trace`.
        during: per statement, the bytes live while it runs.
        stage_of, keep, available, recomputed: of the schedule.
    """

    codes: IntArray
    during: IntArray
    stage_of: IntArray
    keep: BoolArray
    available: BoolArray
    recomputed: BoolArray


@kernel
def row(ragged, i):
    """The items of row i."""
    return ragged.items[ragged.start[i] : ragged.start[i + 1]]


@kernel
def derive(keep, structure):
    """What is available and what is recomputed, per stage and repeatable op."""
    stages, n = keep.shape
    available = np.empty((stages, n), dtype=np.bool_)
    recomputed = np.zeros((stages, n), dtype=np.bool_)
    live = structure.stage < 0
    for s in range(stages):
        again = recomputed[s]
        for i in range(n):
            live[i] = live[i] and keep[s, i]
            available[s, i] = live[i]
        highest = -1
        for used in row(structure.uses, s):
            if not live[used]:
                again[used] = True
                highest = max(highest, used)
        for i in range(highest, -1, -1):
            if again[i]:
                live[i] = True
                for read in row(structure.inputs, i):
                    if not live[read]:
                        again[read] = True
        if structure.stage_place[s] >= 0:
            live[structure.stage_place[s]] = True
    return available, recomputed


@kernel
def liveness(recomputed, first, final, uses, reads, writes):
    """Per stage and value: does a later read want what is in memory when the stage begins?

    Args:
        recomputed: per stage and op.
        first: per value, the stage that computes it first, or -1.
        final: per value, is it wanted at the end?
        uses: per stage, the values that its op reads.
        reads, writes: per op, values.
    """
    stages, n = recomputed.shape
    live = np.zeros((stages, first.size), dtype=np.bool_)
    wanted = final.copy()
    for s in range(stages - 1, -1, -1):
        for used in row(uses, s):
            wanted[used] = True
        for i in range(n - 1, -1, -1):
            if recomputed[s, i]:
                for written in row(writes, i):
                    wanted[written] = False
                for read in row(reads, i):
                    wanted[read] = True
        for v in range(first.size):
            live[s, v] = wanted[v] and first[v] < s
    return live


@kernel
def computes(recomputed, stage):
    """The computes in order, and their stages. Numbers from n on are stages."""
    stages, n = recomputed.shape
    size = n + stages + np.count_nonzero(recomputed)
    sequence = np.empty(size, dtype=np.int64)
    stage_of = np.empty(size, dtype=np.int64)
    end = 0
    for i in range(n):
        if stage[i] < 0:
            sequence[end] = i
            stage_of[end] = -1
            end += 1
    for s in range(stages):
        for i in range(n):
            if recomputed[s, i]:
                sequence[end] = i
                stage_of[end] = s
                end += 1
        sequence[end] = n + s
        stage_of[end] = s
        end += 1
    return sequence[:end], stage_of[:end]


@kernel
def cheapest_eviction(course, values, structure, cost, budget, factor):
    """Stage and op of the eviction that costs least per byte and crowded moment, or (-1, -1)."""
    codes, keep = course.codes, course.keep
    stage_at, over = _stages(codes, course.stage_of, course.during, budget)
    bytes_of, last, following = _idle(codes, np.argmax(course.during), values, keep.shape[1])
    best = np.inf
    best_stage = best_op = -1
    for i in range(keep.shape[1]):
        if bytes_of[i] == 0 or following[i] < 0 or following[i] >= codes.size:
            continue
        s = stage_at[following[i]]
        if s <= stage_at[last[i]] and last[i] >= 0:
            continue
        if not keep[s, i] or not course.available[s, i]:
            continue
        crowded = over[following[i]] - over[last[i] + 1]
        price = _recompute_cost(i, course.available[s], course.recomputed[s], cost, structure)
        score = (price + 1e-12) * factor[i] / (bytes_of[i] * crowded + 1e-12)
        if crowded > 0 and score < best:
            best, best_stage, best_op = score, s, i
    return best_stage, best_op


@kernel
def _recompute_cost(op, available, recomputed, cost, structure):
    """Cost of computing ``op`` again in a stage whose rows are given."""
    missing = np.zeros(op + 1, dtype=np.bool_)
    missing[op] = True
    total = 0.0
    for i in range(op, -1, -1):
        if missing[i]:
            total += cost[i]
            for j in row(structure.inputs, i):
                if not available[j] and not recomputed[j]:
                    missing[j] = True
    return total


@kernel
def _stages(codes, stage_of, during, budget):
    """Per event its stage; per event the number of moments above the budget before it."""
    stage_at = np.empty(codes.size, dtype=np.int64)
    over = np.zeros(codes.size + 1, dtype=np.int64)
    stage = -1
    computed = 0
    for p in range(codes.size):
        over[p + 1] = over[p] + (during[p] > budget)
        if codes[p] >= 0:
            stage = stage_of[computed]
            computed += 1
        stage_at[p] = stage
    return stage_at, over


@kernel
def _idle(codes, peak, values, n):
    """What lies unused over the peak, per repeatable op.

    Returns:
        Bytes of its values that do; the last event that touched it before; the next that reads
        it: the number of events if none does, -1 if the peak itself does.
    """
    before, last = _until(codes[:peak], values, n)
    after = _from(codes, peak, values, n)
    bytes_of = np.zeros(n)
    following = np.full(n, codes.size, dtype=np.int64)
    computed = last >= 0
    for v in range(values.size.size):
        i = values.writer[v]
        if i >= 0 and after[v] > peak and computed[i]:
            bytes_of[i] += values.size[v]
            last[i] = max(last[i], before[v])
            following[i] = min(following[i], after[v])
        elif i >= 0 and after[v] == peak:
            following[i] = -1
    return bytes_of, last, following


@kernel
def _until(codes, values, n):
    """The last event that reads each value, and the last that computes each op; or -1."""
    before = np.full(values.size.size, -1, dtype=np.int64)
    last = np.full(n, -1, dtype=np.int64)
    for p in range(codes.size):
        code = codes[p]
        if code < 0:
            continue
        if values.place[code] >= 0:
            last[values.place[code]] = p
        for read in row(values.reads, code):
            before[read] = p
    return before, last


@kernel
def _from(codes, peak, values, n):
    """The next event, from the peak on, that reads what was made before; or -1."""
    after = np.full(values.size.size, -1, dtype=np.int64)
    made = np.zeros(n, dtype=np.bool_)
    for p in range(peak, codes.size):
        code = codes[p]
        if code < 0:
            continue
        for v in row(values.reads, code):
            if after[v] < 0 and values.writer[v] >= 0 and not made[values.writer[v]]:
                after[v] = p
        if values.place[code] >= 0:
            made[values.place[code]] = True
    return after
