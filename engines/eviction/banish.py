"""Evicting storages, and banishing them: those without references leave for good.

What was made from a banished storage can no longer be rematerialized and is pinned (section 4.4).
A storage waits for each undefined tensor that an op would make from it.
"""

from __future__ import annotations

from typing import Any

from rematbench.base.kernels import inner_kernel
from rematbench.engines.eviction.components import components_evict
from rematbench.engines.eviction.regions import regions_evict
from rematbench.engines.eviction.state import (
    BANISHED,
    COST_CLASSES,
    COST_FULL,
    DEALLOC_BANISH,
    EVICTED,
    Row,
    RuntimeState,
    emit,
    pin,
    pool_remove,
    unlock,
)


@inner_kernel
def evict(s: RuntimeState, g: int) -> None:
    """Free the resident storage ``g``; all tensors that view it become undefined."""
    storage = s.storages[g]
    s.resident[g] = 0
    s.now.memory -= storage.bytes
    s.now.evictions += 1
    pool_remove(s, g)
    banishing = s.now.dealloc == DEALLOC_BANISH
    for k in range(storage.views, storage.views + storage.nviews):
        t = s.flat[k]
        if t >= s.now.tensors:  # not created yet
            break
        s.tensors[t].defined = 0
        if banishing:
            wait(s, t)
    emit(s, EVICTED, storage.root)
    if s.now.cost == COST_CLASSES:
        components_evict(s, g)
    elif s.now.cost == COST_FULL and not banishing:
        regions_evict(s, g)


@inner_kernel
def parent(s: RuntimeState, op: Row, k: int) -> Any:
    """The storage of argument ``k``."""
    return s.tensors[s.flat[op.arguments + k]].storage


@inner_kernel
def _flag(s: RuntimeState, t: int, k: int) -> Any:
    """Which flag says that the storage of argument ``k`` waits for tensor ``t``."""
    op = s.ops[s.tensors[t].op]
    return op.flags + (t - op.first) * op.narguments + s.flat[op.slots + k]


@inner_kernel
def wait(s: RuntimeState, t: int) -> None:
    """Tensor ``t`` is undefined: the storages of its parents wait for it."""
    op = s.ops[s.tensors[t].op]
    for k in range(op.narguments):
        g, flag = parent(s, op, k), _flag(s, t, k)
        if g != s.tensors[t].storage and s.storages[g].banished == 0 and s.waiting[flag] == 0:
            s.waiting[flag] = 1
            s.storages[g].waiting += 1


@inner_kernel
def wait_no_more(s: RuntimeState, t: int, k: int) -> None:
    """The storage of argument ``k`` of tensor ``t`` waits for it no longer."""
    flag = _flag(s, t, k)
    if s.waiting[flag] != 0:
        s.waiting[flag] = 0
        s.storages[parent(s, s.ops[s.tensors[t].op], k)].waiting -= 1


@inner_kernel
def release_parents(s: RuntimeState, t: int, count: int) -> None:
    """Tensor ``t`` was computed: unlock its parents, and banish those that nothing needs.

    simrd walks the list of parents while banishing takes parents out of it, so that the one
    after a banished parent is passed over and keeps its lock. So do we: the schedules depend
    on it.

    Args:
        count: of the tensors that were defined together with ``t``, in ``made[1]``.
    """
    op = s.ops[s.tensors[t].op]
    position = 0
    while True:
        k, skipped = 0, 0  # the argument at this position among those that are not banished
        while k < op.narguments:
            if s.storages[parent(s, op, k)].banished == 0:
                if skipped == position:
                    break
                skipped += 1
            k += 1
        if k == op.narguments:
            return
        g = parent(s, op, k)
        unlock(s, g)
        for i in range(count):
            if s.tensors[s.made[1, i]].storage != g:
                wait_no_more(s, s.made[1, i], k)
        try_banish(s, g)
        position += 1


@inner_kernel
def try_banish(s: RuntimeState, g: int) -> None:
    """Banish storage ``g`` if it has no references and no evicted dependents."""
    storage = s.storages[g]
    if storage.refs > 0 or storage.waiting > 0 or storage.banished != 0:
        return
    if s.resident[g] != 0:
        storage.locks = 0
        evict(s, g)
    for i in range(storage.views, storage.views + storage.nviews):
        if s.flat[i] < s.now.tensors:
            _leave_parents(s, s.flat[i], g)
    storage.banished = 1
    for i in range(storage.made, storage.made + storage.nmade):
        if s.flat[i] >= s.now.tensors:
            continue
        child = s.tensors[s.flat[i]].storage
        if s.storages[child].banished == 0:
            _leave_child(s, child, g)
            if s.resident[child] != 0:
                pin(s, child)
    emit(s, BANISHED, storage.root)


@inner_kernel
def _leave_parents(s: RuntimeState, t: int, g: int) -> None:
    """Tensor ``t`` of ``g`` depends on nothing any longer."""
    op = s.ops[s.tensors[t].op]
    for k in range(op.narguments):
        other = parent(s, op, k)
        if other != g and s.storages[other].banished == 0:
            wait_no_more(s, t, k)
            s.storages[other].readers -= 1


@inner_kernel
def _leave_child(s: RuntimeState, child: int, g: int) -> None:
    """No tensor of ``child`` depends on ``g`` any longer."""
    storage = s.storages[child]
    for i in range(storage.views, storage.views + storage.nviews):
        t = s.flat[i]
        if t < s.now.tensors:
            op = s.ops[s.tensors[t].op]
            for k in range(op.narguments):
                if parent(s, op, k) == g:
                    storage.reads -= 1
