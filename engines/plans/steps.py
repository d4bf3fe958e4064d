"""Graphs as chains of steps that end in one turn: what Revolve and the join programs schedule.

A step is a group of forward ops; a branch is a sequence of steps; the turn is whatever follows
the last steps: the ops that read several branches, the loss, and the backward ops that need no
more than these. A chain has one branch, a join several.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.engines.plans.stages import missing, needed
from rematbench.graphs.ir import Graph, IntArray, Phase
from rematbench.graphs.plan import Plan
from rematbench.graphs.structure import forward_graph, forward_ops

Place = tuple[int, int]
"""(branch, step)."""

# A value below this share of its op's outputs is a by-product (running statistics that the next
# call of a shared layer reads): it ties no branches together.
_BY_PRODUCT = 0.05


@dataclass(frozen=True)
class Forward:
    """Compute a step; ``in_place`` where its input is not needed any more."""

    place: Place
    in_place: bool = False


@dataclass(frozen=True)
class Backward:
    """Go back over a step."""

    place: Place


@dataclass(frozen=True)
class Turn:
    """Compute the loss."""


Action = Forward | Backward | Turn


@dataclass(frozen=True)
class Steps:
    """A graph cut into steps.

    Attributes:
        graph: the graph.
        branches: forward ops per branch and step.
        inputs: per branch the op that only makes its input, or None.
    """

    graph: Graph
    branches: tuple[tuple[tuple[int, ...], ...], ...]
    inputs: tuple[int | None, ...]

    @cached_property
    def reads(self) -> list[list[int]]:
        """Values that each op reads."""
        return self.graph.tables.inputs.lists()

    @property
    def lengths(self) -> tuple[int, ...]:
        """Number of steps per branch."""
        return tuple(len(steps) for steps in self.branches)

    def places(self) -> dict[int, Place]:
        """Where each forward op of a step belongs; an input is at step -1."""
        inside = {
            op: (b, s)
            for b, steps in enumerate(self.branches)
            for s, ops in enumerate(steps)
            for op in ops
        }
        return inside | {op: (b, -1) for b, op in enumerate(self.inputs) if op is not None}


def chain_steps(graph: Graph, cuts: IntArray) -> Steps:
    """One branch, with a step up to each cut; what follows the last cut belongs to the turn.

    Args:
        cuts: forward ops in program order.
    """
    ops = forward_ops(graph)
    ends = np.searchsorted(ops, cuts, side="right")
    steps = tuple(tuple(ops[a:b].tolist()) for a, b in pairwise([0, *ends.tolist()]))
    return Steps(graph, (steps,), (None,))


def join_steps(graph: Graph) -> Steps:
    """The branches of a join: chains that only meet at the turn.

    A step ends where nothing but its last op is read by what follows in the branch.

    Raises:
        NotApplicable: fewer than two branches meet.
    """
    net = forward_graph(graph)
    tables = graph.tables
    for writer, reader in list(net.edges):
        written = tables.writes[writer]
        read = np.intersect1d(written, tables.inputs[reader])
        if tables.value_bytes[read].sum() < _BY_PRODUCT * tables.value_bytes[written].sum():
            net.remove_edge(writer, reader)
    roots: dict[int, frozenset[int]] = {}
    for op in net:
        above = [roots[w] for w in net.predecessors(op)]
        roots[op] = frozenset().union(*above) if above else frozenset([op])
    members: dict[int, list[int]] = defaultdict(list)
    for op, found in roots.items():
        if len(found) == 1 and op != graph.loss_index:
            members[next(iter(found))].append(op)
    # Constants (a mask, a position table) are roots, too: they join the branch that reads them.
    branches = [ops for root, ops in members.items() if len(ops) > 1 or _is_input(graph, root)]
    if len(branches) < 2 and not any(_is_input(graph, ops[0]) for ops in branches):
        raise NotApplicable(
            f"graph {graph.name!r} is no join: {len(branches)} branch leads to its loss, "
            "two or more are needed; use a strategy for general graphs"
        )
    inputs = [ops[0] if _is_input(graph, ops[0]) else None for ops in branches]
    inner = [ops if start is None else ops[1:] for start, ops in zip(inputs, branches, strict=True)]
    return Steps(graph, tuple(_cut(net.subgraph(ops), ops) for ops in inner), tuple(inputs))


def _is_input(graph: Graph, op: int) -> bool:
    """Does the op only make an input: from nothing, at no cost?"""
    return not graph.ops[op].reads and not graph.ops[op].cost


def _cut(branch: object, ops: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Cut a branch after each op that everything before it passes through."""
    place = {op: i for i, op in enumerate(ops)}
    reach = [max((place[r] for r in branch.successors(op)), default=0) for op in ops]  # type: ignore[attr-defined]
    steps, step, furthest = [], [], 0
    for i, op in enumerate(ops):
        step.append(op)
        if furthest <= i:  # nothing before this op is read after it
            steps.append(tuple(step))
            step = []
        furthest = max(furthest, reach[i])
    if step:
        steps.append(tuple(step))
    return tuple(steps)


def plan_from_actions(steps: Steps, actions: Iterable[Action]) -> Plan:
    """A schedule of steps as a plan.

    Before going back over a step whose inner values are needed, which the chain model does not
    know, it is computed again, unless it was the last one computed. Ops outside the steps
    (counters, sums of gradients over branches) run as soon as they can.
    """
    writer = _Writer(steps)
    latest: Place | None = None
    for action in actions:
        if isinstance(action, Turn):
            writer.turn()
        elif isinstance(action, Forward):
            writer.forward(action.place, action.in_place)
            latest = action.place
        else:
            if action.place in writer.taped and latest != action.place:
                writer.forward(action.place, False)
            latest = None
            writer.backward(action.place)
    return Plan.of_computes(steps.graph, writer.finish())


class _Writer:
    """Collects computes (implementation numbers), op by op."""

    def __init__(self, steps: Steps) -> None:
        self.steps, self.graph = steps, steps.graph
        self.tables = steps.graph.tables
        self.computes: list[int] = []
        self.done: list[bool] = self.tables.resident.tolist()
        self.places = steps.places()
        # Steps that must be computed again before going back over them.
        self.taped: set[Place] = set()
        wanted = needed(self.graph).tolist()
        in_loss = set(forward_ops(self.graph).tolist()) | {self.graph.loss_index}
        self.turn_ops = [op for op in wanted if op in in_loss and op not in self.places]
        self.groups: dict[Place | None, list[int]] = defaultdict(list)
        self.aside = [op for op in steps.inputs if op is not None]  # forward, in no step
        self.loose: list[int] = []  # backward, of gradients only
        for op in wanted:
            if self.graph.ops[op].phase is Phase.BACKWARD:
                self._assign(op)
            elif op not in self.places and op not in self.turn_ops:
                self.aside.append(op)
        self._settle_aside()

    def _assign(self, op: int) -> None:
        """A backward op that reads inner values of a step belongs to it.

        One that reads no more than the output of a step belongs to the step that has it as its
        input, or to the turn. Others, of gradients only, are loose.
        """
        writers = self.tables.writer[self.steps.reads[op]].tolist()
        found = {w: self.places[w] for w in writers if w in self.places}
        lengths, branches = self.steps.lengths, self.steps.branches
        inner = {(b, s) for w, (b, s) in found.items() if s >= 0 and w != branches[b][s][-1]}
        after = {(b, s + 1) for b, s in found.values() if s + 1 < lengths[b]}
        if inner:
            place = max(inner, key=lambda place: place[1])
            self.taped.add(place)
            self.groups[place].append(op)
        elif after:
            self.groups[max(after, key=lambda place: place[1])].append(op)
        elif found or any(w in self.turn_ops for w in writers):
            self.groups[None].append(op)
        else:
            self.loose.append(op)

    def _run(self, op: int, in_place: bool = False) -> None:
        # A branch may read a by-product of another that the schedule has not come to yet.
        if not self._ready(op):
            for each in missing(self.graph, op, np.array(self.done)):
                self._emit(each, False)
        self._emit(op, in_place)

    def _emit(self, op: int, in_place: bool) -> None:
        first = int(self.tables.op_first[op])
        implementations = self.graph.ops[op].implementations
        chosen = next(
            (
                i
                for i, implementation in enumerate(implementations)
                if in_place and implementation.overwrites
            ),
            0,
        )
        self.computes.append(first + chosen)
        for value in self.tables.writes[op].tolist():
            self.done[value] = True

    def _ready(self, op: int) -> bool:
        return all(self.done[value] for value in self.steps.reads[op])

    def _settle(self, ops: list[int]) -> None:
        """Run those of ``ops`` and of the loose ones that can run, in program order."""
        waiting = sorted(ops + self.loose)
        self.loose = [op for op in waiting if not self._try(op)]

    def _settle_aside(self) -> None:
        self.aside = [op for op in self.aside if not self._try(op)]

    def _try(self, op: int) -> bool:
        if self._ready(op):
            self._run(op, in_place=True)
            return True
        return False

    def forward(self, place: Place, in_place: bool) -> None:
        branch, step = place
        for op in self.steps.branches[branch][step]:
            self._run(op, in_place)
        self._settle_aside()

    def turn(self) -> None:
        for op in self.turn_ops:
            self._run(op, in_place=True)
        self._settle(self.groups.pop(None, []))

    def backward(self, place: Place) -> None:
        self._settle(self.groups.pop(place, []))

    def finish(self) -> list[int]:
        """The computes; whatever is left runs at the end."""
        self._settle_aside()
        rest = [op for group in self.groups.values() for op in group]
        self._settle(rest)
        left = self.loose + self.aside
        assert not left, [self.graph.ops[op].name for op in left]
        return self.computes
