"""XLA's rematerialization pass (``hlo_rematerialization``), on our graphs.

It walks a fixed schedule with the bytes that are live. At an instruction above the limit it takes,
among blocks of consecutive instructions that have run, the one that is best to compute again, puts
it right before the next use (and before the last ones of what it reads, so that these live no
longer), and repeats while something helps. Blocks are single instructions first; where none helps,
sizes double up to a limit. What was decided at an earlier point stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np

from rematbench.base.checks import check_choice, check_count
from rematbench.base.clock import planning_seconds
from rematbench.base.errors import Infeasible, Stopped
from rematbench.graphs.ir import Graph, Phase
from rematbench.graphs.plan import Plan, program_order
from rematbench.graphs.simulate import simulate
from rematbench.strategies.base import Problem, Solution, Traits, cheapest_within

Rank = Literal["bytes", "cost"]

# Larger blocks are looked at no more often than this many times what single ones were (XLA's
# block_rematerialization_factor).
_EFFORT = 10
# Limits below the budget, where the pass itself ends above it.
_LIMITS = (1.0, 0.95, 0.9, 0.8)
# A plan this far above the budget is no matter of lower limits.
_HOPELESS = 1.25


@dataclass(eq=False)
class _Item:
    """One computation of an op.

    Attributes:
        op: which one.
        sources: per value that it reads, the computation that it takes it from.
        users: per value that it writes, the computations that have yet to read it.
        position: in the schedule.
        placed: has the walk come to it?
        read: has one that was placed read from it, or must it run where it is?
        moved: is it a copy that made its original needless?
        denied: not to be computed again.
    """

    op: int
    sources: dict[int, _Item] = field(default_factory=dict)
    users: dict[int, set[_Item]] = field(default_factory=dict)
    position: int = 0
    placed: bool = False
    read: bool = False
    moved: bool = False
    denied: bool = False


class _Pass:
    """One walk over the schedule.

    Args:
        graph: whose program order is the schedule.
        limit: bytes.
        rank: ``bytes``, as XLA does: the block that frees most; ``cost``: the least cost per byte.
        block_size: the largest block.
        ended: when to give up, by ``planning_seconds``.
        random: ops that draw random numbers. They are not moved, which would change the order in
            which they draw: only computed again, from the same state.
    """

    def __init__(
        self,
        graph: Graph,
        limit: int,
        rank: Rank,
        block_size: int,
        ended: float,
        random: Set[int],
    ) -> None:
        tables = graph.tables
        self.random = random
        self.ended = ended
        self.graph, self.limit, self.rank, self.block_size = graph, limit, rank, block_size
        self.size: list[int] = tables.value_bytes.tolist()
        self.workspace = tables.workspace[tables.op_first[:-1]].tolist()
        self.cost = [op.cost for op in graph.ops]
        self.outputs = set(tables.outputs.tolist())
        self.live = graph.resident_bytes
        self.again = 0
        self.order = self._schedule()

    def _schedule(self) -> list[_Item]:
        tables = self.graph.tables
        writer: dict[int, _Item] = {}
        order: list[_Item] = []
        for position, op in enumerate(np.flatnonzero(self.graph.needed_ops()).tolist()):
            item = _Item(op, position=position)
            for v in tables.inputs[op].tolist():
                if v in writer:
                    item.sources[v] = writer[v]
                    writer[v].users[v].add(item)
            for v in tables.writes[op].tolist():
                writer[v] = item
                item.users[v] = set()
            item.denied = self.graph.ops[op].phase is Phase.LOSS
            item.read = op in self.random
            order.append(item)
        return order

    def run(self) -> list[int]:
        """Ops in the order of their computations."""
        at = 0
        while at < len(self.order):
            item = self.order[at]
            item.placed = True
            self.live += sum(self.size[v] for v in item.users)
            self._relieve(item)
            self._finish(item)
            at = item.position + 1
        return [item.op for item in self.order]

    def _finish(self, item: _Item) -> None:
        """Free what ``item`` read last, and what nobody will read of its own."""
        for v, source in item.sources.items():
            source.users[v].discard(item)
            source.read = True
            if not source.users[v] and v not in self.outputs:
                self.live -= self.size[v]
        for v, users in item.users.items():
            if not users and v not in self.outputs:
                self.live -= self.size[v]

    def _relieve(self, item: _Item) -> None:
        """Compute blocks again later, until ``item`` fits."""
        low = high = 1
        effort = [0, 0]
        while self.live + self.workspace[item.op] > self.limit and planning_seconds() < self.ended:
            block, tried = self._best(item, low, high)
            effort[high > 1] += tried
            if block:
                self._again(item, block)
                low = high = 1
            else:
                low, high = high + 1, 2 * high
            if high > self.block_size or effort[1] > _EFFORT * effort[0]:
                return

    def _best(self, now: _Item, low: int, high: int) -> tuple[list[_Item], int]:
        """The best block of ``low`` to ``high`` computations, and how many were tried."""
        best: list[_Item] = []
        least, tried = 0.0, 0
        for start in range(now.position):
            freed = 0
            extended: set[tuple[_Item, int]] = set()
            for stop in range(start + 1, min(start + high, now.position) + 1):
                item = self.order[stop - 1]
                change = None if item.denied else self._freed(now, item, start, extended)
                if change is None:
                    break
                freed += change
                if stop - start < low:
                    continue
                tried += 1
                if freed > 0:
                    block = self.order[start:stop]
                    rank = self._rank(block, freed)
                    if not best or rank < least:
                        best, least = block, rank
        return best, tried

    def _rank(self, block: Sequence[_Item], freed: int) -> float:
        if not any(item.read for item in block):
            return 0.0  # only a move
        if self.rank == "bytes":
            return float(self.limit // freed)
        return sum(self.cost[item.op] for item in block) / freed

    def _freed(
        self, now: _Item, item: _Item, start: int, extended: set[tuple[_Item, int]]
    ) -> int | None:
        """Bytes less at this point if ``item`` joins a block from ``start`` on; None if it cannot.

        What it read and is gone would have to live longer, unless the block computes it.

        Args:
            extended: what the block has in this way so far; added to.
        """
        freed = 0
        for v, users in item.users.items():
            if users and v not in self.outputs:
                if now in users:
                    return None
                freed += self.size[v]
        for v, source in item.sources.items():
            if source.position >= start or source.users[v] or v in self.outputs:
                continue
            if (source, v) not in extended:
                extended.add((source, v))
                freed -= self.size[v]
        return freed

    def _again(self, now: _Item, block: Sequence[_Item]) -> None:
        """Compute the members of a block again, the last first, before they are read next."""
        for item in reversed(block):
            if not any(item.users.values()):
                continue
            copy = _Item(item.op, dict(item.sources), placed=False)
            before: list[_Item] = []
            for v, users in item.users.items():
                copy.users[v] = set(users)
                before += users
                for user in users:
                    user.sources[v] = copy
                if users and v not in self.outputs:
                    self.live -= self.size[v]
                users.clear()
            for v, source in item.sources.items():
                if not source.users[v] and v not in self.outputs:
                    self.live += self.size[v]
                before += [user for user in source.users[v] if not user.placed]
                source.users[v].add(copy)
            if not item.read and not self.outputs & set(item.users):  # a move
                copy.denied, copy.moved = item.moved, True
            self.order.insert(min(user.position for user in before), copy)
            self.again += 1
            for position in range(now.position, len(self.order)):
                self.order[position].position = position


@dataclass(frozen=True)
class XlaRemat:
    """What XLA does to a schedule that is above the memory limit: greedy, one walk.

    Attributes:
        rank: ``bytes``, XLA's own: the block that frees most bytes, whatever it costs; ``cost``:
            the least cost per byte; ``both``: the cheaper of the two plans.
        block_size: computations that may be computed again together, at most.

    Raises:
        ConfigError: an unknown rank, or a block size below 1.
    """

    traits: ClassVar[Traits] = Traits("yes", "partly", "yes", budgeted=True)
    rank: Literal["bytes", "cost", "both"] = "both"
    block_size: int = 8

    def __post_init__(self) -> None:
        check_choice("rank", self.rank, ("bytes", "cost", "both"))
        check_count("block_size", self.block_size)

    def plan(self, problem: Problem) -> Solution:
        """The cheapest of the passes' plans whose simulated peak fits.

        Raises:
            Infeasible: the pass ends above the budget; carries the smallest peak seen.
            Stopped: the same, but time was up before its end.
        """
        if problem.budget is None:
            return Solution(program_order(problem.graph), details={"limit_bytes": None})
        ended = planning_seconds() + problem.time_limit
        try:
            found, plan, _, curve = cheapest_within(problem, self._candidates(problem, ended))
        except Infeasible as short:
            if planning_seconds() <= ended:
                raise
            reason = f"{short.reason}; it was stopped after {problem.time_limit:g} s: give more"
            raise Stopped(reason, smallest_peak_found=short.smallest_peak_found) from None
        rank, _, limit = found.partition(" ")
        facts = {"rank": rank, "limit_bytes": int(limit), "curve": curve}
        return Solution(plan, variant=rank, details=facts)

    def _candidates(self, problem: Problem, ended: float) -> Iterator[tuple[str, Plan]]:
        """(rank and limit, plan); a lower limit only where the plan is above the budget."""
        assert problem.budget is not None
        ranks: tuple[Rank, ...] = ("bytes", "cost") if self.rank == "both" else (self.rank,)
        movable = problem.budget - problem.graph.resident_bytes
        random = {i for i, op in enumerate(problem.graph.ops) if op.random}
        for share in _LIMITS:
            left: list[Rank] = []
            for rank in ranks:
                limit = problem.graph.resident_bytes + int(share * movable)
                walk = _Pass(problem.graph, limit, rank, self.block_size, ended, random)
                plan = _plan(walk)
                yield f"{rank} {limit}", plan
                peak = simulate(problem.graph, plan).peak_bytes
                if problem.budget < peak <= _HOPELESS * problem.budget:
                    left.append(rank)
            ranks = tuple(left)
            if not ranks or planning_seconds() > ended:
                return


def _plan(walk: _Pass) -> Plan:
    graph = walk.graph
    computes = graph.tables.op_first[walk.run()].tolist()
    # An original whose every reader was given a copy is dead code.
    return Plan.of_computes(graph, _without_dead(graph, computes, walk.random))


def _without_dead(graph: Graph, given: list[int], random: Set[int]) -> list[int]:
    """The computes without those whose every output is never read.

    Random ops keep their first compute: it draws in its turn.
    """
    tables = graph.tables
    while True:
        waiting: dict[int, int] = {}  # value: position of the compute that nobody has read yet
        needed: set[int] = set()
        drawn: set[int] = set()
        for position, code in enumerate(given):
            op = int(tables.op_of[code])
            if op in random and op not in drawn:
                needed.add(position)
                drawn.add(op)
            for v in tables.reads[code].tolist():
                needed.add(waiting.get(v, -1))
            for v in tables.writes[op].tolist():
                waiting[v] = position
        needed |= {waiting[v] for v in tables.outputs.tolist() if v in waiting}
        kept = [code for position, code in enumerate(given) if position in needed]
        if len(kept) == len(given):
            return kept
        given = kept
