"""A model of PyTorch's caching allocator for CUDA: what a plan makes it reserve.

Sizes are rounded up to 512 bytes. Up to 1 MiB comes from segments of 2 MiB, up to 10 MiB from
segments of 20 MiB, more from segments of its own, rounded up to 2 MiB. Among the free blocks of
its pool the smallest that is large enough is taken, and split where what remains is worth it;
neighbours merge when they are freed. Defaults of PyTorch; the device itself is taken to be as
large as need be, so that no cached segment is ever given back.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rematbench.base.kernels import kernel
from rematbench.graphs.ir import Graph
from rematbench.graphs.plan import FETCH, FREE, Plan

_KIB, _MIB = 2**10, 2**20
ROUNDING = 512
SMALL = _MIB
SMALL_SEGMENT, LARGE_SEGMENT = 2 * _MIB, 20 * _MIB
LARGE = 10 * _MIB
SEGMENT_ROUNDING = 2 * _MIB
# Columns of the table of blocks; `previous` and `next` are neighbours in the segment, or -1.
_SIZE, _FREE, _PREVIOUS, _NEXT, _SEGMENT, _OFFSET, _POOL = range(7)


@dataclass(frozen=True)
class Allocation:
    """What the allocator had at most, in bytes.

    Attributes:
        reserved: from the device.
        allocated: in use, roundings included.
        requested: in use, as asked for.
        segments: taken from the device.
    """

    reserved: int
    allocated: int
    requested: int
    segments: int

    @property
    def fragmentation(self) -> int:
        """Reserved bytes that no value had even when most were in use."""
        return self.reserved - self.allocated


def replay(graph: Graph, plan: Plan) -> Allocation:
    """Play a valid plan's allocations: residents first, then statement by statement.

    A compute allocates its outputs in order (again, where one is live), then its workspace; then
    the workspace and the old copies go. What overwrites a read takes over its block.
    """
    _, totals = _replay_plan(plan.codes(graph), graph.tables)
    return Allocation(*totals.tolist())


@kernel
def _new(capacity):
    """No blocks yet, and totals: reserved, allocated, requested, segments, and the first three now.

    The table's last row holds how many rows are in use.
    """
    blocks = np.zeros((capacity + 1, 7), dtype=np.int64)
    return blocks, np.zeros(7, dtype=np.int64)


@kernel
def _rounded(size, unit):
    return (size + unit - 1) // unit * unit


@kernel
def _allocate(blocks, totals, size):
    """A block, or -1 for nothing; the table must have two rows to spare."""
    if size == 0:
        return -1
    wanted = _rounded(size, ROUNDING)
    pool = 0 if wanted <= SMALL else 1
    best = _smallest_free(blocks, pool, wanted)
    if best < 0:
        segment = SMALL_SEGMENT
        if pool == 1:
            segment = LARGE_SEGMENT if wanted < LARGE else _rounded(wanted, SEGMENT_ROUNDING)
        best = blocks[-1, 0]
        blocks[-1, 0] += 1
        blocks[best] = (segment, 1, -1, -1, totals[3], 0, pool)
        totals[3] += 1
        totals[4] += segment
    rest = blocks[best, _SIZE] - wanted
    if (pool == 0 and rest >= ROUNDING) or rest > SMALL:
        _split(blocks, best, wanted)
    blocks[best, _FREE] = 0
    totals[5] += blocks[best, _SIZE]
    totals[6] += size
    for k in range(3):
        totals[k] = max(totals[k], totals[4 + k])
    return best


@kernel
def _smallest_free(blocks, pool, wanted):
    """The smallest free block of a pool that holds so many bytes, the first of equals; else -1."""
    best = -1
    for b in range(blocks[-1, 0]):
        fits = blocks[b, _FREE] == 1 and blocks[b, _POOL] == pool and blocks[b, _SIZE] >= wanted
        if fits and (best < 0 or blocks[b, _SIZE] < blocks[best, _SIZE]):
            best = b
    return best


@kernel
def _split(blocks, block, wanted):
    """Leave a block so many bytes; what follows them becomes a free block."""
    used, after = blocks[-1, 0], blocks[block, _NEXT]
    rest, offset = blocks[block, _SIZE] - wanted, blocks[block, _OFFSET] + wanted
    segment, pool = blocks[block, _SEGMENT], blocks[block, _POOL]
    blocks[used] = (rest, 1, block, after, segment, offset, pool)
    if after >= 0:
        blocks[after, _PREVIOUS] = used
    blocks[block, _NEXT], blocks[block, _SIZE] = used, wanted
    blocks[-1, 0] = used + 1


@kernel
def _release(blocks, totals, block, size):
    """Free a block, merge it with free neighbours; rows of merged blocks have no size."""
    if block < 0:
        return
    totals[5] -= blocks[block, _SIZE]
    totals[6] -= size
    blocks[block, _FREE] = 1
    after = blocks[block, _NEXT]
    if after >= 0 and blocks[after, _FREE] == 1:
        _merge(blocks, block, after)
    before = blocks[block, _PREVIOUS]
    if before >= 0 and blocks[before, _FREE] == 1:
        _merge(blocks, before, block)


@kernel
def _merge(blocks, left, right):
    blocks[left, _SIZE] += blocks[right, _SIZE]
    after = blocks[right, _NEXT]
    blocks[left, _NEXT] = after
    if after >= 0:
        blocks[after, _PREVIOUS] = left
    blocks[right, _FREE], blocks[right, _SIZE] = 2, 0  # no block any longer


@kernel
def _enlarged(blocks, rows, block):
    """The table with so many rows to spare: without merged rows, and larger, where it is full.

    Where rows move, ``block`` (row numbers, or -1) follows.
    """
    if blocks[-1, 0] + rows < blocks.shape[0]:
        return blocks
    used = blocks[-1, 0]
    number = np.full(used + 1, -1, dtype=np.int64)
    count = 0
    for b in range(used):
        if blocks[b, _FREE] != 2:
            number[b] = count
            count += 1
    found = np.zeros((2 * count + 64, 7), dtype=np.int64)
    for b in range(used):
        if number[b] >= 0:
            found[number[b]] = blocks[b]
            for side in (_PREVIOUS, _NEXT):
                if blocks[b, side] >= 0:
                    found[number[b], side] = number[blocks[b, side]]
    found[-1, 0] = count
    for k in range(block.size):
        if block[k] >= 0:
            block[k] = number[block[k]]
    return found


@kernel
def _replay_plan(codes, tables):
    blocks, totals = _new(64)
    value_bytes, op_of, workspace = tables.value_bytes, tables.op_of, tables.workspace
    write_at, writes = tables.writes
    over_at, over = tables.overwritten_by
    count = value_bytes.size
    most = max(1, np.diff(write_at).max()) if write_at.size > 1 else 1
    block = np.full(count + most, -1, dtype=np.int64)  # of values, then of old copies
    for v in np.flatnonzero(tables.resident):
        blocks = _enlarged(blocks, 2, block)
        block[v] = _allocate(blocks, totals, value_bytes[v])
    for code in codes:
        if code < 0:
            blocks = _move(code, blocks, totals, block, value_bytes)
            continue
        first, end = write_at[op_of[code]], write_at[op_of[code] + 1]
        for k in range(first, end):
            blocks = _enlarged(blocks, 4, block)
            v, taken = writes[k], -1
            if over_at[code + 1] > over_at[code]:
                taken = over[over_at[code] + k - first]
            block[count + k - first] = block[v]
            if taken >= 0:
                block[v], block[taken] = block[taken], -1
            else:
                block[v] = _allocate(blocks, totals, value_bytes[v])
        scratch = _allocate(blocks, totals, workspace[code])
        _release(blocks, totals, scratch, workspace[code])
        for k in range(first, end):
            _release(blocks, totals, block[count + k - first], value_bytes[writes[k]])
            block[count + k - first] = -1
    return block, totals[:4]


@kernel
def _move(code, blocks, totals, block, value_bytes):
    """A free gives a block back, a fetch takes one; other copies do neither."""
    kind, v = ~code // value_bytes.size, ~code % value_bytes.size
    if kind == FREE:
        _release(blocks, totals, block[v], value_bytes[v])
        block[v] = -1
    elif kind == FETCH:
        blocks = _enlarged(blocks, 4, block)
        block[v] = _allocate(blocks, totals, value_bytes[v])
    return blocks
