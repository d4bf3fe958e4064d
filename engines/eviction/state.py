"""What changes while a stream plays, and the smallest operations on it."""

from __future__ import annotations

import random
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rematbench.base.kernels import inner_kernel
from rematbench.engines.eviction.compiled import CompiledStream, Table, row_type
from rematbench.engines.eviction.rules import Happened
from rematbench.graphs.ir import IntArray

Row = Any  # of a table


SCALARS = row_type(
    "clock memory peak budget step pending depth snapped "  # how far it is
    "pooled evictable tensors nodes epoch ticks "  # how much is in use
    "evictions remats accesses remat_cost remat_limit records "  # what happened
    "rule cost by_size by_staleness dealloc "  # the heuristic
    "views"  # does an op make a view of an older storage?
)

# What a heuristic is made of.
BY_SCORE, BY_LRU, BY_CHANCE = range(3)
COST_NONE, COST_LOCAL, COST_CLASSES, COST_FULL = range(4)
DEALLOC_NONE, DEALLOC_EAGER, DEALLOC_BANISH = range(3)

# How a run ends.
RUNNING, DONE, OOM, THRASHED, USED_DEAD = range(5)

# Kinds of records.
EVICTED, COMPUTED, RECOMPUTED, BANISHED = (int(kind) for kind in Happened)

FRAME = row_type("tensor again cursor end")
NODE = row_type("parent cost mark")
RECORD = row_type("kind number clock")

NEVER = -(2**62)
UNLIMITED = 2**62


class RuntimeState(NamedTuple):
    """The arrays of a run; numba sees them as one tuple.

    Attributes:
        now: scalars.
        storages, tensors: this run's copies of the compiled stream's tables.
        resident: per storage, since walks look at little else.
        ops, steps, flat: the compiled stream's.
        pool: evictable storages in order, with -1 where one left.
        frames: each pending tensor: is it a rematerialization, and its part of ``snap``.
        snap: the parents that each frame still has to rematerialize.
        made: the storages, and the tensors, that the op at hand has just made.
        waiting: per output and argument of an op: does the argument's storage wait for it?
        todo: a stack for walks.
        bits: per storage, interior and frontier of its two evicted regions, as bit sets.
        nodes: of the evicted components' trees.
        records: what happened.
        twister: Python's Mersenne twister, 624 words and the position.
    """

    now: Row
    storages: Table
    resident: NDArray[np.uint8]
    tensors: Table
    ops: Table
    steps: IntArray
    flat: IntArray
    pool: IntArray
    frames: Table
    snap: IntArray
    made: IntArray
    waiting: IntArray
    todo: IntArray
    bits: NDArray[np.uint64]
    nodes: Table
    records: Table
    twister: IntArray


def new_state(compiled: CompiledStream, regions: bool, seed: int) -> RuntimeState:
    """A run of ``compiled`` before its first step.

    Args:
        regions: keep evicted regions (bit sets, quadratic in the storages)?
        seed: of random choices.
    """
    many = len(compiled.storages)
    storages = compiled.storages.copy()
    storages["place"] = storages["node"] = -1
    storages["last"] = NEVER
    now: Any = np.zeros(1, dtype=SCALARS).view(np.recarray)[0]
    now.clock = 1
    roots = compiled.storages["root"][compiled.tensors["storage"]]
    now.views = (compiled.tensors["op"] != compiled.tensors["op"][roots]).any()
    widest = 1 + int(compiled.ops["count"].max(initial=0))
    rows = many + 2 if regions else 1
    return RuntimeState(
        now=now,
        storages=storages,
        resident=np.zeros(many, dtype=np.uint8),
        tensors=compiled.tensors.copy(),
        ops=compiled.ops,
        steps=compiled.steps,
        flat=compiled.flat,
        pool=np.full(2 * many + 16, -1, dtype=np.int64),
        frames=np.zeros(len(compiled.ops) + 2, dtype=FRAME),
        snap=np.zeros(int(compiled.ops["narguments"].sum()) + 1, dtype=np.int64),
        made=np.zeros((2, widest), dtype=np.int64),
        waiting=np.zeros(compiled.flags, dtype=np.int64),
        todo=np.zeros(many + 1, dtype=np.int64),
        bits=np.zeros((4, rows, max(1, (many + 63) // 64)), dtype=np.uint64),
        nodes=np.zeros(4 * many + 64, dtype=NODE),
        records=np.zeros(4 * many + 64, dtype=RECORD),
        twister=np.array(random.Random(seed).getstate()[1], dtype=np.int64),
    )


@inner_kernel
def pool_add(s: RuntimeState, g: int) -> None:
    """Make storage ``g`` evictable, unless it is."""
    if s.storages[g].place >= 0:
        return
    if s.now.pooled == s.pool.size:
        pool_compact(s)
    s.pool[s.now.pooled] = g
    s.storages[g].place = s.now.pooled
    s.now.pooled += 1
    s.now.evictable += 1


@inner_kernel
def pool_remove(s: RuntimeState, g: int) -> None:
    """Make storage ``g`` unevictable, unless it is; the others keep their order."""
    if s.storages[g].place < 0:
        return
    s.pool[s.storages[g].place] = -1
    s.storages[g].place = -1
    s.now.evictable -= 1


@inner_kernel
def pool_compact(s: RuntimeState) -> None:
    """Close the gaps in the pool."""
    count = 0
    for i in range(s.now.pooled):
        g = s.pool[i]
        if g >= 0:
            s.pool[count] = g
            s.storages[g].place = count
            count += 1
    s.now.pooled = count


@inner_kernel
def lock(s: RuntimeState, g: int) -> None:
    """Keep storage ``g`` from being evicted until it is unlocked as often."""
    if s.storages[g].locks == 0:
        pool_remove(s, g)
    s.storages[g].locks += 1


@inner_kernel
def unlock(s: RuntimeState, g: int) -> None:
    """Give up one lock of storage ``g``."""
    s.storages[g].locks -= 1
    if s.storages[g].locks == 0:
        pool_add(s, g)


@inner_kernel
def pin(s: RuntimeState, g: int) -> None:
    """Keep storage ``g`` for good."""
    if s.storages[g].pinned == 0:
        lock(s, g)
        s.storages[g].pinned = 1


@inner_kernel
def emit(s: RuntimeState, kind: int, number: int) -> None:
    """Note that something happened."""
    row = s.records[s.now.records]
    row.kind, row.number, row.clock = kind, number, s.now.clock
    s.now.records += 1
