"""The DTR runtime: computes, rematerializes and evicts as simrd does, one step at a time.

Rematerialization recurses; here it is a stack of frames, so that depth costs nothing and a run
can stop between any two steps and go on.
"""

from __future__ import annotations

from typing import Any

from rematbench.base.kernels import inner_kernel, kernel
from rematbench.engines.eviction.banish import evict, parent, release_parents, try_banish, wait
from rematbench.engines.eviction.components import components_compute, new_node
from rematbench.engines.eviction.regions import regions_compute
from rematbench.engines.eviction.scores import choose
from rematbench.engines.eviction.state import (
    COMPUTED,
    COST_CLASSES,
    COST_FULL,
    DEALLOC_BANISH,
    DEALLOC_NONE,
    DONE,
    OOM,
    RECOMPUTED,
    RUNNING,
    THRASHED,
    USED_DEAD,
    Row,
    RuntimeState,
    emit,
    lock,
    pin,
    pool_add,
    unlock,
)
from rematbench.streams.ids import StepKind

COMPUTE, TAKE, RELEASE = int(StepKind.COMPUTE), int(StepKind.TAKE), int(StepKind.RELEASE)


# Storage accesses after which a run pauses, a fraction of a second, so that time limits hold.
_MOST_ACCESSES = 2**24


@inner_kernel
def _play(s: RuntimeState, ticks: int) -> Any:
    """Play until the end, a fault, ``ticks`` more ticks, or until an array needs room."""
    now = s.now
    until, accesses = now.ticks + ticks, now.accesses + _MOST_ACCESSES
    most = 2 * s.storages.size + 8  # the most records or nodes that one tick can add
    while now.ticks < until and now.accesses < accesses and now.records + most < s.records.size:
        if now.nodes + most >= s.nodes.size:
            break
        now.ticks += 1
        if now.depth > 0:
            status = _resume(s)
        elif now.pending != 0:
            status = _finish(s)
        elif now.step == s.steps.shape[0]:
            return DONE
        else:
            status = _start(s)
        if status != RUNNING:
            return status
    return RUNNING


@kernel
def advance(s: RuntimeState, ticks: int) -> Any:
    """The compiled runtime, the one entry that is kept on disk."""
    return _play(s, ticks)


@inner_kernel
def _start(s: RuntimeState) -> Any:
    """Begin the step at hand."""
    kind, what = s.steps[s.now.step, 0], s.steps[s.now.step, 1]
    s.now.pending = 1
    if kind == COMPUTE:
        _create(s, s.ops[what])
        return _begin(s, s.ops[what].first, 0)
    if kind == TAKE:
        s.storages[s.tensors[what].storage].refs += 1
    elif kind == RELEASE:
        _release(s, s.tensors[what].storage)
    elif s.tensors[what].defined == 0:
        return _begin(s, what, 1)
    return RUNNING


@inner_kernel
def _finish(s: RuntimeState) -> int:
    """End the step at hand; what it had to materialize is there."""
    kind, what = s.steps[s.now.step, 0], s.steps[s.now.step, 1]
    if kind == COMPUTE:
        first = s.ops[what].first
        for t in range(first, first + s.ops[what].count):
            s.storages[s.tensors[t].storage].last = s.now.clock
    elif kind != TAKE and kind != RELEASE:
        pin(s, s.tensors[what].storage)
    s.now.pending = 0
    s.now.step += 1
    return RUNNING


@inner_kernel
def _create(s: RuntimeState, op: Row) -> None:
    """Let the runtime know a new op, its tensors and its edges."""
    s.now.tensors = op.first + op.count
    for t in range(op.first, op.first + op.count):
        g = s.tensors[t].storage
        storage = s.storages[g]
        storage.refs += 1
        storage.cost += s.tensors[t].cost
        storage.reads += op.narguments
        if s.now.cost == COST_CLASSES and storage.root == t:
            new_node(s, g, 0)
    for k in range(op.narguments):
        s.storages[parent(s, op, k)].readers += op.count
    for edge in range(op.edges, op.edges + 2 * op.nedges, 2):
        s.storages[s.flat[edge]].nchildren += 1
        s.storages[s.flat[edge + 1]].nparents += 1
    if s.now.dealloc == DEALLOC_BANISH:
        for t in range(op.first, op.first + op.count):
            wait(s, t)


@inner_kernel
def _begin(s: RuntimeState, t: int, again: int) -> Any:
    """Want tensor ``t``: lock its defined parents, and list the others."""
    now = s.now
    op = s.ops[s.tensors[t].op]
    for k in range(op.narguments):
        storage = s.storages[parent(s, op, k)]
        if storage.banished != 0 and again == 0:
            return USED_DEAD
        if storage.banished == 0 and (now.dealloc != DEALLOC_BANISH or storage.refs > 0):
            storage.last = now.clock
    frame = s.frames[now.depth]
    frame.tensor, frame.again, frame.cursor = t, again, now.snapped
    for k in range(op.narguments):
        g = parent(s, op, k)
        if s.storages[g].banished != 0:
            continue
        if s.tensors[s.flat[op.arguments + k]].defined != 0:
            lock(s, g)
        else:
            s.snap[now.snapped] = s.flat[op.arguments + k]
            now.snapped += 1
    frame.end = now.snapped
    now.depth += 1
    return RUNNING


@inner_kernel
def _resume(s: RuntimeState) -> Any:
    """Go on with the innermost tensor: rematerialize its next parent, or compute it."""
    now = s.now
    frame = s.frames[now.depth - 1]
    while frame.cursor < frame.end:
        undefined = s.snap[frame.cursor]
        if s.tensors[undefined].defined == 0:
            return _begin(s, undefined, 1)
        lock(s, s.tensors[undefined].storage)
        frame.cursor += 1
    op = s.ops[s.tensors[frame.tensor].op]
    while now.memory + op.total + op.workspace > now.budget:
        if now.evictable == 0:
            return OOM
        evict(s, choose(s))
    count = _compute(s, op, frame.tensor, frame.again)
    now.depth -= 1
    now.snapped = s.frames[now.depth - 1].end if now.depth else 0
    if now.dealloc == DEALLOC_BANISH:
        release_parents(s, frame.tensor, count)
    else:
        for k in range(op.narguments):
            unlock(s, parent(s, op, k))
    return THRASHED if now.remat_cost > now.remat_limit else RUNNING


@inner_kernel
def _compute(s: RuntimeState, op: Row, t: int, again: int) -> int:
    """Run the op of tensor ``t``; returns how many tensors it defined (in ``made[1]``)."""
    now = s.now
    now.clock += op.cost
    now.memory += op.total
    now.peak = max(now.peak, now.memory + op.workspace)
    if again != 0:
        now.remats += 1
        now.remat_cost += op.cost
    emit(s, RECOMPUTED if again != 0 else COMPUTED, t)
    storages = tensors = 0
    for i in range(op.count):  # the siblings in order, then t
        u = t if i == op.count - 1 else op.first + i + (op.first + i >= t)
        if s.tensors[u].defined != 0:
            now.memory -= s.tensors[u].bytes
            continue
        s.tensors[u].defined = 1
        s.made[1, tensors] = u
        tensors += 1
        g = s.tensors[u].storage
        if s.resident[g] == 0:
            s.resident[g] = 1
            s.made[0, storages] = g
            storages += 1
    for i in range(storages):
        pool_add(s, s.made[0, i])
    if now.cost == COST_CLASSES:
        components_compute(s, s.made[0], storages)
    elif now.cost == COST_FULL and now.dealloc != DEALLOC_BANISH:
        regions_compute(s, s.made[0], storages)
    return tensors


@inner_kernel
def _release(s: RuntimeState, g: int) -> None:
    """One reference to storage ``g`` goes away."""
    if s.now.dealloc == DEALLOC_NONE:
        return
    storage = s.storages[g]
    storage.refs -= 1
    if storage.refs > 0:
        return
    if s.now.dealloc == DEALLOC_BANISH:
        try_banish(s, g)
    elif s.resident[g] != 0 and storage.pinned == 0:
        evict(s, g)
