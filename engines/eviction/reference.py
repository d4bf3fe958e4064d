"""The readable path: simrd's runtime in plain Python, which the compiled one must equal.

Recursion is recursion here, sets are sets, and scores are Python's own divisions. It decides
everything that :mod:`rematbench.engines.eviction.runtime` decides, ten to fifty times more slowly;
sections are those of simrd's paper.
"""

from __future__ import annotations

import math
import random
import sys
from dataclasses import dataclass, field

import numpy as np

from rematbench.engines.eviction.compiled import CompiledStream
from rematbench.engines.eviction.reference_costs import (
    Components,
    Nothing,
    Regions,
    StorageState,
    Walk,
)
from rematbench.engines.eviction.rules import Happened, Rules, Run, Status
from rematbench.streams.ids import StepKind, StreamOp


class NothingLeft(Exception):
    """Nothing is left to evict."""


class TooDear(Exception):
    """Rematerialization costs more than the rules allow."""


class TimeOver(Exception):
    """A time limit is over."""


def play_slowly(compiled: CompiledStream, budget: int | None, rules: Rules) -> Run:
    """Play ``compiled`` as :func:`rematbench.engines.eviction.runtime.play` does."""
    return drive(ReferenceMachine(compiled, math.inf if budget is None else budget, rules))


def drive(machine: ReferenceMachine) -> Run:
    """Play a machine's stream to its end, or to the fault that ends it."""
    compiled = machine.compiled
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(max(depth, 10_000 + 10 * len(compiled.source.ops)))
    status: Status = "ok"
    try:
        for kind, what in compiled.source.steps:
            machine.step(kind, what)
    except NothingLeft:
        status = "oom"
    except TooDear:
        status = "thrash"
    except TimeOver:
        status = "stopped"
    finally:
        sys.setrecursionlimit(depth)
    return machine.outcome(status)


@dataclass
class ReferenceMachine:
    """The state of section 4.4: memory, clock, pool, and what each storage knows of itself."""

    compiled: CompiledStream
    budget: float
    rules: Rules
    clock: int = 1
    memory: int = 0
    peak: int = 0
    remat_cost: int = 0
    accesses: int = 0
    pool: list[StorageState] = field(default_factory=list)
    records: list[tuple[Happened, int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        source, rules = self.compiled.source, self.rules
        self.tensors, self.ops = source.tensors, source.ops
        self.defined = [False] * len(source.tensors)
        self.storages = [StorageState(s.bytes, s.root) for s in source.storages]
        self.random = random.Random(rules.seed)
        self.banishing = rules.dealloc == "banish"
        costs = {"estar": Walk if self.banishing else Regions, "eqclass": Components}
        self.neighbours = costs.get(rules.heuristic.cost, Nothing)()
        limit = rules.thrash_limit
        self.remat_limit = math.inf if limit is None else source.cost * (limit - 1)

    def step(self, kind: StepKind, what: int) -> None:
        """One event (section 4.6)."""
        if kind == StepKind.COMPUTE:
            self.create(what)
            self.materialize(self.ops[what].outputs[0], again=False)
            for t in self.ops[what].outputs:
                self.storage(t).last = self.clock
            return
        storage = self.storage(what)
        if kind == StepKind.TAKE:
            storage.refs += 1
        elif kind == StepKind.RELEASE:
            self.release(storage)
        else:
            if not self.defined[what]:
                self.materialize(what, again=True)
            self.pin(storage)

    def storage(self, tensor: int) -> StorageState:
        return self.storages[self.tensors[tensor].storage]

    def op(self, tensor: int) -> StreamOp:
        return self.ops[self.tensors[tensor].op]

    def arguments(self, op: StreamOp) -> list[int]:
        """Those that are not banished, in the order of their rematerialization."""
        row = sorted(op.arguments) if self.compiled.semantics.order_by_id else op.arguments
        return [t for t in row if not self.storage(t).banished]

    def create(self, number: int) -> None:
        """New tensors; section 4.2 says what their storages cost and depend on."""
        op, semantics = self.ops[number], self.compiled.semantics
        parents = [self.storage(t) for t in op.arguments]
        charged: set[int] = set()
        for t in op.outputs:
            storage = self.storage(t)
            of_root = storage.root == t
            if id(storage) not in charged and (of_root or not semantics.root_cost):
                storage.cost += op.cost
            charged.add(id(storage))
            storage.tensors.append(t)
            storage.refs += 1
            storage.reads += len(parents)
            for parent in parents:
                parent.readers += 1
                if parent is not storage:
                    parent.made[storage] = None
                    if of_root or not semantics.root_dependencies:
                        storage.parents[parent] = parent.children[storage] = None
            if of_root:
                self.neighbours.created(storage)
            if self.banishing:
                self.wait(t)

    def materialize(self, t: int, again: bool) -> None:
        """Section 4.4: lock the parents, rematerialize the undefined ones, make room, compute."""
        op = self.op(t)
        arguments = self.arguments(op)
        for parent in map(self.storage, arguments):
            if not self.banishing or parent.refs > 0:
                parent.last = self.clock
        undefined = [a for a in arguments if not self.defined[a]]
        for a in arguments:
            if self.defined[a]:
                self.lock(self.storage(a))
        for a in undefined:
            if not self.defined[a]:
                self.materialize(a, again=True)
            self.lock(self.storage(a))
        need = sum(self.tensors[u].bytes for u in op.outputs)
        self.make_room(op, need)
        made = self.compute(op, t, need, again)
        if self.banishing:
            self.release_parents(op, made)
        else:
            for a in arguments:
                self.unlock(self.storage(a))
        if self.remat_cost > self.remat_limit:
            raise TooDear

    def make_room(self, op: StreamOp, need: int) -> None:
        """Evict until ``op`` has the memory that it needs."""
        while self.memory + need + op.workspace_bytes > self.budget:
            if not self.pool:
                raise NothingLeft
            self.evict(self.choose())

    def compute(self, op: StreamOp, t: int, need: int, again: bool) -> list[int]:
        """Run ``op`` for its output ``t``; returns what it defined."""
        self.clock += op.cost
        self.memory += need
        self.peak = max(self.peak, self.memory + op.workspace_bytes)
        self.remat_cost += op.cost if again else 0
        self.happened(Happened.RECOMPUTED if again else Happened.COMPUTED, t)
        self.memory -= sum(self.tensors[u].bytes for u in op.outputs if self.defined[u])
        made = [u for u in op.outputs if u != t and not self.defined[u]] + [t]
        fresh = []
        for u in made:
            self.defined[u] = True
            if not self.storage(u).resident:
                self.storage(u).resident = True
                fresh.append(self.storage(u))
        self.pool += fresh
        self.accesses += self.neighbours.computed(fresh)
        return made

    def evict(self, storage: StorageState) -> None:
        """Free a storage: all that views it becomes undefined."""
        storage.resident = False
        self.memory -= storage.bytes
        if storage in self.pool:
            self.pool.remove(storage)
        for t in storage.tensors:
            self.defined[t] = False
            if self.banishing:
                self.wait(t)
        self.happened(Happened.EVICTED, storage.root)
        self.accesses += self.neighbours.evicted(storage)

    def choose(self) -> StorageState:
        """The last of the least scores; the first score of exactly 0 ends the search."""
        if self.rules.heuristic.random:
            self.accesses += 1
            return self.pool[self.random.randrange(len(self.pool))]
        best, chosen = math.inf, self.pool[0]
        for storage in self.pool:
            self.accesses += 1
            score = self.score(storage)
            if score <= best:
                best, chosen = score, storage
            if score == 0:
                break
        return chosen

    def score(self, storage: StorageState) -> float:
        """h(s, m, c) of section 4.3."""
        heuristic, cost, last = self.rules.heuristic, storage.cost, storage.last
        if heuristic.cost in ("estar", "eqclass"):
            more, accesses, latest = self.neighbours.cost(storage)
            cost, last = cost + more, max(last, latest)
            self.accesses += accesses
        try:
            score: float = heuristic.score(cost, storage.bytes, last, self.clock - last)
        except ZeroDivisionError:
            return math.inf
        return score

    def lock(self, storage: StorageState) -> None:
        if storage in self.pool:
            self.pool.remove(storage)
        storage.locks += 1

    def unlock(self, storage: StorageState) -> None:
        storage.locks -= 1
        if storage.locks == 0:
            self.pool.append(storage)

    def pin(self, storage: StorageState) -> None:
        if not storage.pinned:
            self.lock(storage)
            storage.pinned = True

    def release(self, storage: StorageState) -> None:
        """Section 4.5: evict or banish what nobody holds any longer."""
        if self.rules.dealloc == "none":
            return
        storage.refs -= 1
        if storage.refs > 0:
            return
        if self.banishing:
            self.try_banish(storage)
        elif storage.resident and not storage.pinned:
            self.evict(storage)

    def wait(self, t: int) -> None:
        """An undefined tensor keeps its parents from being banished."""
        for a in self.arguments(self.op(t)):
            if self.storage(a) is not self.storage(t):
                self.storage(a).waiting.add(t)

    def release_parents(self, op: StreamOp, made: list[int]) -> None:
        """Unlock the parents, and banish those that nothing needs.

        simrd walks a list from which banishing takes elements: the parent after a banished one
        is passed over, and keeps its lock.
        """
        position = 0
        while position < len(parents := self.arguments(op)):
            storage = self.storage(parents[position])
            self.unlock(storage)
            for t in made:
                if self.storage(t) is not storage:
                    storage.waiting.discard(t)
            self.try_banish(storage)
            position += 1

    def try_banish(self, storage: StorageState) -> None:
        """Section 4.4: needs no references and no evicted dependents; pins the children."""
        if storage.refs > 0 or storage.waiting or storage.banished:
            return
        if storage.resident:
            storage.locks = 0
            self.evict(storage)
        for t in storage.tensors:
            for a in self.arguments(self.op(t)):
                if self.storage(a) is not storage:
                    self.storage(a).waiting.discard(t)
                    self.storage(a).readers -= 1
        storage.banished = True
        for child in storage.made:
            if child.banished:
                continue
            sources = [self.storage(a) for t in child.tensors for a in self.op(t).arguments]
            child.reads -= sources.count(storage)
            if child.resident:
                self.pin(child)
        self.happened(Happened.BANISHED, storage.root)

    def happened(self, kind: Happened, number: int) -> None:
        self.records.append((kind, number, self.clock))

    def outcome(self, status: Status) -> Run:
        kinds = [kind for kind, _, _ in self.records]
        return Run(
            status,
            self.clock,
            self.remat_cost,
            self.peak,
            kinds.count(Happened.EVICTED),
            kinds.count(Happened.RECOMPUTED),
            self.accesses,
            None,
            np.array(self.records, dtype=np.int64).reshape(-1, 3),
        )
