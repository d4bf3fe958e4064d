"""DTR's runtime on memory that has addresses: a storage needs its bytes in one piece.

What frees a piece is the policy: DTR's own, which evicts the storage of least score, wherever it
lies, until some hole is large enough; or Coop's (Zhang et al., NeurIPS 2023), which evicts the
contiguous run of storages that costs least.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf, isinf
from typing import Literal

from rematbench.base.clock import planning_seconds
from rematbench.engines.eviction.compiled import CompiledStream
from rematbench.engines.eviction.reference import NothingLeft, ReferenceMachine, TimeOver
from rematbench.engines.eviction.reference_costs import StorageState
from rematbench.engines.eviction.rules import Rules
from rematbench.streams.ids import StreamOp

Policy = Literal["window", "single"]
_UNLIMITED = 2**62


@dataclass(eq=False)
class MemoryPiece:
    """A piece of memory.

    Attributes:
        start, size: in bytes.
        owner: the storage that lives in it; None for a hole, or for what an op needs meanwhile.
        free: is it a hole?
    """

    start: int
    size: int
    owner: StorageState | None = None
    free: bool = True


class Arena:
    """Memory from address 0 on, as blocks in the order of their addresses.

    Attributes:
        blocks: without gaps; neighbouring holes are one.
        free: bytes in holes.
    """

    def __init__(self, size: int) -> None:
        self.blocks = [MemoryPiece(0, size)]
        self.free = size

    def place(self, size: int, high: bool, owner: StorageState | None) -> MemoryPiece | None:
        """A block in the first hole from one end that is large enough; None if there is none.

        Args:
            high: from the end of high addresses, and at the hole's own high end.
        """
        order = range(len(self.blocks))
        for k in reversed(order) if high else order:
            hole = self.blocks[k]
            if not hole.free or hole.size < size:
                continue
            start = hole.start + hole.size - size if high else hole.start
            block = MemoryPiece(start, size, owner, free=False)
            hole.size -= size
            if not high:
                hole.start += size
            self.blocks.insert(k + 1 if high else k, block)
            if hole.size == 0:
                self.blocks.remove(hole)
            self.free -= size
            return block
        return None

    def release(self, block: MemoryPiece) -> None:
        """Make a hole of a block."""
        block.free, block.owner = True, None
        self.free += block.size
        k = self.blocks.index(block)
        for neighbour in self.blocks[k + 1 : k + 2] + self.blocks[max(k - 1, 0) : k]:
            if neighbour.free:
                block.start = min(block.start, neighbour.start)
                block.size += neighbour.size
                self.blocks.remove(neighbour)


@dataclass
class AddressMachine(ReferenceMachine):
    """A machine whose storages lie in an :class:`Arena` of as many bytes as the budget.

    Attributes:
        policy: ``window`` (Coop) or ``single`` (DTR).
        ends: put what is dear to compute at one end of the memory, what is cheap at the other.
        deadline: by :func:`~rematbench.base.clock.planning_seconds`.
        wanted: bytes of the last block that was asked for.
        scattered: evictions while enough bytes were free, in too small pieces.
        idle_shares: free share of the memory, at each block for which something was evicted.
    """

    policy: Policy = "window"
    ends: bool = True
    deadline: float = inf
    wanted: int = 0
    scattered: int = 0
    idle_shares: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arena = Arena(_UNLIMITED if isinf(self.budget) else int(self.budget))
        self.homes: dict[StorageState, MemoryPiece] = {}
        self.meanwhile: list[MemoryPiece] = []
        self.seen_cost, self.seen_bytes = 0, 0

    def make_room(self, op: StreamOp, need: int) -> None:
        """A block for each output (again, where one is there), and one for the workspace."""
        high = self.is_dear(op, need)
        for u in op.outputs:
            storage, size = self.storage(u), self.tensors[u].bytes
            if size == 0:
                continue
            is_there = storage.resident
            block = self.block(size, high, None if is_there else storage)
            if is_there:
                self.meanwhile.append(block)
            else:
                self.homes[storage] = block
        if op.workspace_bytes:
            self.meanwhile.append(self.block(op.workspace_bytes, high, None))

    def is_dear(self, op: StreamOp, need: int) -> bool:
        """Does the op cost more per byte than those so far did? Constants count as dear."""
        if not self.ends:
            return False
        self.seen_cost += op.cost
        self.seen_bytes += need
        return op.name is None or op.cost * self.seen_bytes > self.seen_cost * need

    def block(self, size: int, high: bool, owner: StorageState | None) -> MemoryPiece:
        """A block, after evictions if need be."""
        self.wanted = size
        found = self.arena.place(size, high, owner)
        if found is None:
            self.idle_shares.append(self.arena.free / int(self.budget))
        while found is None:
            if planning_seconds() > self.deadline:
                raise TimeOver
            if not self.pool:
                raise NothingLeft
            going = self.cheapest_run(size) if self.policy == "window" else [self.choose()]
            self.scattered += len(going) if self.arena.free >= size else 0
            for storage in going:
                self.evict(storage)
            found = self.arena.place(size, high, owner)
        return found

    def cheapest_run(self, size: int) -> list[StorageState]:
        """The storages of the contiguous run of at least ``size`` bytes whose costs sum to least.

        A window slides over the blocks; what cannot be evicted ends it (Coop, its sliding window
        algorithm).
        """
        best, chosen = inf, (0, 0)
        blocks = self.arena.blocks
        prices: list[float] = []
        left, total, price = 0, 0, 0.0
        for right, block in enumerate(blocks):
            owner = block.owner
            if not block.free and (owner is None or owner.locks or not owner.resident):
                prices.append(inf)
                left, total, price = right + 1, 0, 0.0
                continue
            prices.append(0.0 if owner is None else self.price(owner))
            total, price = total + block.size, price + prices[right]
            while total - blocks[left].size >= size:
                total, price = total - blocks[left].size, price - prices[left]
                left += 1
            if total >= size and price < best:
                best, chosen = price, (left, right + 1)
        going = [b.owner for b in blocks[slice(*chosen)] if b.owner is not None]
        if not going:
            raise NothingLeft
        return going

    def price(self, storage: StorageState) -> float:
        """DTR's score times the bytes: windows are about as large, so that bytes are no matter."""
        self.accesses += 1
        cost = storage.cost
        if self.rules.heuristic.cost != "local":
            more, accesses, _ = self.neighbours.cost(storage)
            cost += more
            self.accesses += accesses
        return float(cost) / max(1, self.clock - storage.last)

    def compute(self, op: StreamOp, t: int, need: int, again: bool) -> list[int]:
        """As DTR's, and then the workspace and second copies go."""
        made = super().compute(op, t, need, again)
        for block in self.meanwhile:
            self.arena.release(block)
        self.meanwhile.clear()
        return made

    def evict(self, storage: StorageState) -> None:
        """As DTR's; its block becomes a hole."""
        super().evict(storage)
        block = self.homes.pop(storage, None)
        if block is not None:
            self.arena.release(block)


def machine_for(
    compiled: CompiledStream,
    budget: int | None,
    rules: Rules,
    policy: Policy,
    ends: bool,
    deadline: float = inf,
) -> AddressMachine:
    """A machine that is ready to play; see :class:`AddressMachine`."""
    size = inf if budget is None else budget
    return AddressMachine(compiled, size, rules, policy=policy, ends=ends, deadline=deadline)
