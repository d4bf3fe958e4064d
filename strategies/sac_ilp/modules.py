"""A graph's modules, by the ops' scopes, and what ``sac_milp`` wants to know of each.

Its own numbers come from trackers that run the model on a CUDA device; these come from the plan
that keeps everything, replayed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from rematbench.base.errors import NotApplicable
from rematbench.engines.plans.stages import needed
from rematbench.graphs.ir import Graph, IntArray, Phase
from rematbench.graphs.plan import program_order

ROOT = "model"
"""The name of the whole model; other modules are ``model.NAME``."""


@dataclass(frozen=True)
class Module:
    """One module; sizes in bytes.

    Attributes:
        name: qualified, from :data:`ROOT` on.
        is_leaf: has it no modules inside?
        ops: its forward ops, in program order.
        kept: what its forward pass leaves for backward, without its output.
        output: values that it makes and others read.
        live: activations when its forward pass has ended.
        gradients: gradients of parameters that are there when its backward pass begins.
        transient: what its backward pass needs at its peak beside what was there when it began.
    """

    name: str
    is_leaf: bool
    ops: tuple[int, ...]
    kept: int
    output: int
    live: int
    gradients: int
    transient: int


@dataclass(frozen=True)
class ModuleTree:
    """All modules of a graph.

    Attributes:
        modules: in the order in which their forward passes begin, outer ones first.
        ended: their names in the order in which these end, inner ones first.
    """

    modules: tuple[Module, ...]
    ended: tuple[str, ...]


def modules_of(graph: Graph) -> ModuleTree:
    """The modules of a training step.

    Raises:
        NotApplicable: there is no loss op, or no op says which module it is from.
    """
    if graph.loss_index is None:
        raise NotApplicable("the graph has no loss op, so that there is no backward pass to plan")
    ops = needed(graph).tolist()
    if not any(graph.ops[op].scope for op in ops):
        raise NotApplicable(
            f"sac_ilp chooses among modules, but no op of graph {graph.name!r} says which one it "
            "is from; capture a PyTorch model, or give the ops of the graph file a scope"
        )
    course = _Course(graph)
    forward: dict[str, list[int]] = {ROOT: []}
    backward: dict[str, list[int]] = {ROOT: []}
    for op in ops:
        phase = graph.ops[op].phase
        if phase is Phase.LOSS:
            continue
        for name in _around(graph.ops[op].scope):
            if phase is Phase.FORWARD:
                forward.setdefault(name, []).append(op)
            else:
                backward.setdefault(name, []).append(op)
    children: dict[str, list[str]] = {name: [] for name in forward}
    for name in forward:
        if name != ROOT:
            children[name.rpartition(".")[0]].append(name)
    names, ended = list(_down(ROOT, children)), list(_up(ROOT, children))
    modules = (
        course.module(name, not children[name], forward[name], backward.get(name, []))
        for name in names
    )
    return ModuleTree(tuple(modules), tuple(ended))


def _around(scope: str) -> Iterator[str]:
    """A module and those around it, outermost first."""
    name = ROOT
    yield name
    for part in scope.split(".") if scope else ():
        name = f"{name}.{part}"
        yield name


def _down(name: str, children: dict[str, list[str]]) -> Iterator[str]:
    yield name
    for child in children[name]:
        yield from _down(child, children)


def _up(name: str, children: dict[str, list[str]]) -> Iterator[str]:
    for child in children[name]:
        yield from _up(child, children)
    yield name


class _Course:
    """Bytes at each op of the plan that keeps everything, by what they are."""

    def __init__(self, graph: Graph) -> None:
        tables = graph.tables
        self.graph, self.size = graph, tables.value_bytes
        outputs = tables.is_output
        forward = np.append(tables.forward, False)[tables.writer]
        kinds = {"live": forward, "gradients": outputs & ~forward, "transient": ~outputs & ~forward}
        codes = program_order(graph).codes(graph)
        self.before = {kind: np.zeros(len(graph.ops), dtype=np.int64) for kind in kinds}
        self.during = {kind: np.zeros(len(graph.ops), dtype=np.int64) for kind in kinds}
        now = dict.fromkeys(kinds, 0)
        for code in codes.tolist():
            op = int(tables.op_of[code]) if code >= 0 else -1
            values = tables.writes[op] if code >= 0 else np.array([~code])
            for kind, mask in kinds.items():
                if code >= 0:
                    self.before[kind][op] = now[kind]
                bytes_ = int(self.size[values[mask[values]]].sum())
                now[kind] += bytes_ if code >= 0 else -bytes_
                if code >= 0:
                    self.during[kind][op] = now[kind]
        self.during["transient"] += tables.workspace[tables.op_first[:-1]]
        self.saved = tables.inputs.picked(np.flatnonzero(tables.backward)).items

    def module(self, name: str, is_leaf: bool, ops: list[int], backward: list[int]) -> Module:
        own = np.concatenate([self.graph.tables.writes[op] for op in ops])
        output = np.intersect1d(own, self._read_outside(set(ops)))
        kept = np.setdiff1d(np.intersect1d(own, self.saved), output)
        transient, gradients = 0, 0
        if backward:
            begun = int(self.before["transient"][backward[0]])
            transient = max(0, int(self.during["transient"][backward].max()) - begun)
            gradients = int(self.before["gradients"][backward[0]])
        return Module(
            name,
            is_leaf,
            tuple(ops),
            int(self.size[kept].sum()),
            int(self.size[output].sum()),
            int(self.during["live"][ops[-1]]),
            gradients,
            transient,
        )

    def _read_outside(self, ops: Collection[int]) -> IntArray:
        """Values that forward ops, or the loss, read outside of ``ops``."""
        tables = self.graph.tables
        others = [op for op in np.flatnonzero(~tables.backward).tolist() if op not in ops]
        return tables.inputs.picked(others).items
